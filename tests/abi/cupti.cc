// Compiled against the CUPTI headers of the installed wheel: our declarations must be theirs.
#include <cuda.h>
#include <cupti.h>

#include <cstddef>
#include <type_traits>

#include "device/cupti/abi.h"

namespace ours = prism::device::cupti::abi;

#define SAME_NUMBER(mine, theirs) \
  static_assert(static_cast<long>(ours::mine) == static_cast<long>(theirs), #mine)
#define SAME_FIELD(type, field, theirs, their_field)                            \
  static_assert(offsetof(ours::type, field) == offsetof(theirs, their_field) && \
                    sizeof(ours::type::field) == sizeof(theirs::their_field),   \
                #type "." #field)
// No more is read than a record holds, in a buffer that is aligned as theirs are.
#define A_PREFIX(type, theirs)                                                                     \
  static_assert(                                                                                   \
      sizeof(ours::type) <= sizeof(theirs) && alignof(ours::type) <= 8 && sizeof(theirs) % 8 == 0, \
      #type)

SAME_NUMBER(success, CUPTI_SUCCESS);
SAME_NUMBER(invalid_operation, CUPTI_ERROR_INVALID_OPERATION);
SAME_NUMBER(max_limit_reached, CUPTI_ERROR_MAX_LIMIT_REACHED);
SAME_NUMBER(not_compatible, CUPTI_ERROR_NOT_COMPATIBLE);
SAME_NUMBER(not_initialized, CUPTI_ERROR_NOT_INITIALIZED);
SAME_NUMBER(invalid_kind, CUPTI_ERROR_INVALID_KIND);
SAME_NUMBER(virtualized_device, CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED);
SAME_NUMBER(insufficient_privileges, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
SAME_NUMBER(old_profiler_in_use, CUPTI_ERROR_OLD_PROFILER_API_INITIALIZED);
SAME_NUMBER(other_subscriber, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME_NUMBER(Kind::memcpy, CUPTI_ACTIVITY_KIND_MEMCPY);
SAME_NUMBER(Kind::memset, CUPTI_ACTIVITY_KIND_MEMSET);
SAME_NUMBER(Kind::driver, CUPTI_ACTIVITY_KIND_DRIVER);
SAME_NUMBER(Kind::runtime, CUPTI_ACTIVITY_KIND_RUNTIME);
SAME_NUMBER(Kind::concurrent_kernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME_NUMBER(Kind::peer_memcpy, CUPTI_ACTIVITY_KIND_MEMCPY2);
SAME_NUMBER(Kind::cuda_event, CUPTI_ACTIVITY_KIND_CUDA_EVENT);
SAME_NUMBER(Kind::stream, CUPTI_ACTIVITY_KIND_STREAM);
SAME_NUMBER(Kind::synchronization, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION);
SAME_NUMBER(Kind::memory, CUPTI_ACTIVITY_KIND_MEMORY2);
SAME_NUMBER(flush_forced, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
SAME_NUMBER(thread_id_default, CUPTI_ACTIVITY_THREAD_ID_TYPE_DEFAULT);
SAME_NUMBER(thread_id_system, CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM);
SAME_NUMBER(invalid_value, CUPTI_SYNCHRONIZATION_INVALID_VALUE);
SAME_NUMBER(CopyKind::host_to_device, CUPTI_ACTIVITY_MEMCPY_KIND_HTOD);
SAME_NUMBER(CopyKind::device_to_host, CUPTI_ACTIVITY_MEMCPY_KIND_DTOH);
SAME_NUMBER(CopyKind::host_to_array, CUPTI_ACTIVITY_MEMCPY_KIND_HTOA);
SAME_NUMBER(CopyKind::array_to_host, CUPTI_ACTIVITY_MEMCPY_KIND_ATOH);
SAME_NUMBER(CopyKind::device_to_device, CUPTI_ACTIVITY_MEMCPY_KIND_DTOD);
SAME_NUMBER(CopyKind::host_to_host, CUPTI_ACTIVITY_MEMCPY_KIND_HTOH);
SAME_NUMBER(memory_pageable, CUPTI_ACTIVITY_MEMORY_KIND_PAGEABLE);
SAME_NUMBER(memory_device, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE);
SAME_NUMBER(SyncType::event, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE);
SAME_NUMBER(SyncType::stream_wait, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT);
SAME_NUMBER(SyncType::stream, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE);
SAME_NUMBER(SyncType::context, CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE);
SAME_NUMBER(StreamFlag::blocking, CUPTI_ACTIVITY_STREAM_CREATE_FLAG_DEFAULT);
SAME_NUMBER(StreamFlag::non_blocking, CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING);
SAME_NUMBER(StreamFlag::null, CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL);
SAME_NUMBER(MemoryOperation::allocation, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION);
SAME_NUMBER(MemoryOperation::release, CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE);
static_assert(ours::least_version <= CUPTI_API_VERSION);
static_assert(CUPTI_API_VERSION < 140000, "read the new headers: have records changed?");

SAME_FIELD(Record, kind, CUpti_Activity, kind);

SAME_FIELD(Kernel, kind, CUpti_ActivityKernel10, kind);
SAME_FIELD(Kernel, start, CUpti_ActivityKernel10, start);
SAME_FIELD(Kernel, end, CUpti_ActivityKernel10, end);
SAME_FIELD(Kernel, device, CUpti_ActivityKernel10, deviceId);
SAME_FIELD(Kernel, context, CUpti_ActivityKernel10, contextId);
SAME_FIELD(Kernel, stream, CUpti_ActivityKernel10, streamId);
static_assert(offsetof(ours::Kernel, grid) == offsetof(CUpti_ActivityKernel10, gridX));
static_assert(offsetof(ours::Kernel, grid) + 8 == offsetof(CUpti_ActivityKernel10, gridZ));
static_assert(offsetof(ours::Kernel, block) == offsetof(CUpti_ActivityKernel10, blockX));
static_assert(offsetof(ours::Kernel, block) + 8 == offsetof(CUpti_ActivityKernel10, blockZ));
SAME_FIELD(Kernel, static_shared_bytes, CUpti_ActivityKernel10, staticSharedMemory);
SAME_FIELD(Kernel, dynamic_shared_bytes, CUpti_ActivityKernel10, dynamicSharedMemory);
SAME_FIELD(Kernel, correlation, CUpti_ActivityKernel10, correlationId);
SAME_FIELD(Kernel, name, CUpti_ActivityKernel10, name);
SAME_FIELD(Kernel, graph_node, CUpti_ActivityKernel10, graphNodeId);
SAME_FIELD(Kernel, graph, CUpti_ActivityKernel10, graphId);
A_PREFIX(Kernel, CUpti_ActivityKernel10);

#define SAME_WORK(type, theirs)                         \
  SAME_FIELD(type, kind, theirs, kind);                 \
  SAME_FIELD(type, bytes, theirs, bytes);               \
  SAME_FIELD(type, start, theirs, start);               \
  SAME_FIELD(type, end, theirs, end);                   \
  SAME_FIELD(type, device, theirs, deviceId);           \
  SAME_FIELD(type, context, theirs, contextId);         \
  SAME_FIELD(type, stream, theirs, streamId);           \
  SAME_FIELD(type, correlation, theirs, correlationId); \
  SAME_FIELD(type, graph_node, theirs, graphNodeId);    \
  SAME_FIELD(type, graph, theirs, graphId);             \
  A_PREFIX(type, theirs)
#define SAME_COPY(type, theirs)                  \
  SAME_WORK(type, theirs);                       \
  SAME_FIELD(type, copy_kind, theirs, copyKind); \
  SAME_FIELD(type, source, theirs, srcKind);     \
  SAME_FIELD(type, destination, theirs, dstKind)
SAME_COPY(Memcpy, CUpti_ActivityMemcpy6);
SAME_COPY(PeerMemcpy, CUpti_ActivityMemcpyPtoP4);
SAME_WORK(Memset, CUpti_ActivityMemset4);

SAME_FIELD(Api, kind, CUpti_ActivityAPI, kind);
SAME_FIELD(Api, callback, CUpti_ActivityAPI, cbid);
SAME_FIELD(Api, start, CUpti_ActivityAPI, start);
SAME_FIELD(Api, end, CUpti_ActivityAPI, end);
SAME_FIELD(Api, thread, CUpti_ActivityAPI, threadId);
SAME_FIELD(Api, correlation, CUpti_ActivityAPI, correlationId);
SAME_FIELD(Api, result, CUpti_ActivityAPI, returnValue);
A_PREFIX(Api, CUpti_ActivityAPI);

SAME_FIELD(Synchronization, kind, CUpti_ActivitySynchronization2, kind);
SAME_FIELD(Synchronization, type, CUpti_ActivitySynchronization2, type);
SAME_FIELD(Synchronization, correlation, CUpti_ActivitySynchronization2, correlationId);
SAME_FIELD(Synchronization, context, CUpti_ActivitySynchronization2, contextId);
SAME_FIELD(Synchronization, stream, CUpti_ActivitySynchronization2, streamId);
SAME_FIELD(Synchronization, event_sync, CUpti_ActivitySynchronization2, cudaEventSyncId);
SAME_FIELD(Synchronization, result, CUpti_ActivitySynchronization2, returnValue);
A_PREFIX(Synchronization, CUpti_ActivitySynchronization2);

SAME_FIELD(CudaEvent, kind, CUpti_ActivityCudaEvent2, kind);
SAME_FIELD(CudaEvent, correlation, CUpti_ActivityCudaEvent2, correlationId);
SAME_FIELD(CudaEvent, context, CUpti_ActivityCudaEvent2, contextId);
SAME_FIELD(CudaEvent, stream, CUpti_ActivityCudaEvent2, streamId);
SAME_FIELD(CudaEvent, event_sync, CUpti_ActivityCudaEvent2, cudaEventSyncId);
A_PREFIX(CudaEvent, CUpti_ActivityCudaEvent2);

SAME_FIELD(Stream, kind, CUpti_ActivityStream, kind);
SAME_FIELD(Stream, context, CUpti_ActivityStream, contextId);
SAME_FIELD(Stream, stream, CUpti_ActivityStream, streamId);
SAME_FIELD(Stream, flag, CUpti_ActivityStream, flag);
SAME_FIELD(Stream, correlation, CUpti_ActivityStream, correlationId);
A_PREFIX(Stream, CUpti_ActivityStream);

SAME_FIELD(Memory, kind, CUpti_ActivityMemory4, kind);
SAME_FIELD(Memory, operation, CUpti_ActivityMemory4, memoryOperationType);
SAME_FIELD(Memory, memory_kind, CUpti_ActivityMemory4, memoryKind);
SAME_FIELD(Memory, correlation, CUpti_ActivityMemory4, correlationId);
SAME_FIELD(Memory, address, CUpti_ActivityMemory4, address);
SAME_FIELD(Memory, bytes, CUpti_ActivityMemory4, bytes);
SAME_FIELD(Memory, timestamp, CUpti_ActivityMemory4, timestamp);
A_PREFIX(Memory, CUpti_ActivityMemory4);

// Signatures, as they are called by.
static_assert(std::is_same_v<decltype(&cuptiActivityRegisterCallbacks),
                             CUptiResult (*)(CUpti_BuffersCallbackRequestFunc,
                                             CUpti_BuffersCallbackCompleteFunc)>);
static_assert(std::is_same_v<ours::BufferRequested, CUpti_BuffersCallbackRequestFunc>);
static_assert(std::is_same_v<decltype(&cuptiActivityEnableRuntimeApi),
                             CUptiResult (*)(std::uint32_t, std::uint8_t)>);
static_assert(std::is_same_v<decltype(&cuptiActivityEnableDriverApi),
                             CUptiResult (*)(std::uint32_t, std::uint8_t)>);
static_assert(std::is_same_v<decltype(&cuptiActivityFlushAll), CUptiResult (*)(std::uint32_t)>);
static_assert(std::is_same_v<decltype(&cuptiActivityGetNumDroppedRecords),
                             CUptiResult (*)(CUcontext, std::uint32_t, std::size_t*)>);
static_assert(std::is_same_v<decltype(&cuptiActivityGetNextRecord),
                             CUptiResult (*)(std::uint8_t*, std::size_t, CUpti_Activity**)>);
static_assert(std::is_same_v<decltype(&cuptiGetTimestamp), CUptiResult (*)(std::uint64_t*)>);
static_assert(std::is_same_v<decltype(&cuptiGetVersion), CUptiResult (*)(std::uint32_t*)>);
static_assert(std::is_same_v<decltype(&cuptiGetStreamIdEx),
                             CUptiResult (*)(CUcontext, CUstream, std::uint8_t, std::uint32_t*)>);
static_assert(
    std::is_same_v<decltype(&cuptiGetContextId), CUptiResult (*)(CUcontext, std::uint32_t*)>);

int main() {}
