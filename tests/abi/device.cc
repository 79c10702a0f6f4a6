// Compiled against the CUDA headers of the installed wheel: our declarations must be theirs.
#include <cuda.h>

#include <type_traits>

#include "device/abi.h"

namespace ours = prism::device;

// Parameter by parameter: pointers for pointers (handles are void*), numbers of the same size and
// sign; enumerations count as int.
template <class Ours, class Theirs>
constexpr bool same_value() {
  if constexpr (std::is_pointer_v<Ours> || std::is_pointer_v<Theirs>) {
    return std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>;
  } else if constexpr (std::is_enum_v<Theirs>) {
    return std::is_same_v<Ours, int> && sizeof(Theirs) == sizeof(int);
  } else {
    return std::is_integral_v<Ours> && sizeof(Ours) == sizeof(Theirs) &&
           std::is_signed_v<Ours> == std::is_signed_v<Theirs>;
  }
}
template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class... Ours, class... Theirs>
  requires(sizeof...(Ours) == sizeof...(Theirs))
struct SameCall<int (*)(Ours...), CUresult (*)(Theirs...)>
    : std::bool_constant<(same_value<Ours, Theirs>() && ...)> {};

#define SAME_CALL(word, theirs) \
  static_assert(SameCall<ours::CallType<ours::Call::word>::type, decltype(&theirs)>::value, #theirs)
#define SAME_NUMBER(ours, theirs) \
  static_assert(static_cast<long>(ours) == static_cast<long>(theirs), #ours)

// The names as the header's macros spell them (with _v2), so each is the version that we look up.
SAME_CALL(init, cuInit);
SAME_CALL(driver_version, cuDriverGetVersion);
SAME_CALL(error_name, cuGetErrorName);
SAME_CALL(device_count, cuDeviceGetCount);
SAME_CALL(device_get, cuDeviceGet);
SAME_CALL(device_attribute, cuDeviceGetAttribute);
SAME_CALL(primary_retain, cuDevicePrimaryCtxRetain);
SAME_CALL(primary_release, cuDevicePrimaryCtxRelease);
SAME_CALL(context_push, cuCtxPushCurrent);
SAME_CALL(context_pop, cuCtxPopCurrent);
SAME_CALL(context_current, cuCtxGetCurrent);
SAME_CALL(memory_info, cuMemGetInfo);
SAME_CALL(allocate, cuMemAlloc);
SAME_CALL(free, cuMemFree);
SAME_CALL(host_allocate, cuMemHostAlloc);
SAME_CALL(host_free, cuMemFreeHost);
SAME_CALL(host_address, cuMemHostGetDevicePointer);
SAME_CALL(stream_create, cuStreamCreate);
SAME_CALL(stream_destroy, cuStreamDestroy);
SAME_CALL(stream_query, cuStreamQuery);
SAME_CALL(stream_synchronize, cuStreamSynchronize);
SAME_CALL(stream_wait_event, cuStreamWaitEvent);
SAME_CALL(stream_is_capturing, cuStreamIsCapturing);
SAME_CALL(wait_value32, cuStreamWaitValue32);
SAME_CALL(wait_value64, cuStreamWaitValue64);
SAME_CALL(write_value32, cuStreamWriteValue32);
SAME_CALL(write_value64, cuStreamWriteValue64);
SAME_CALL(event_create, cuEventCreate);
SAME_CALL(event_destroy, cuEventDestroy);
SAME_CALL(event_record, cuEventRecord);
SAME_CALL(event_query, cuEventQuery);
SAME_CALL(event_synchronize, cuEventSynchronize);
SAME_CALL(event_elapsed, cuEventElapsedTime);
SAME_CALL(copy_to_host, cuMemcpyDtoHAsync);
SAME_CALL(copy_to_device, cuMemcpyHtoDAsync);
SAME_CALL(copy_on_device, cuMemcpyDtoDAsync);
SAME_CALL(set_bytes, cuMemsetD8Async);
SAME_CALL(module_load, cuModuleLoadData);
SAME_CALL(module_unload, cuModuleUnload);
SAME_CALL(module_function, cuModuleGetFunction);
SAME_CALL(launch, cuLaunchKernel);
SAME_CALL(host_function, cuLaunchHostFunc);
SAME_CALL(process_state, cuCheckpointProcessGetState);
SAME_CALL(process_lock, cuCheckpointProcessLock);
SAME_CALL(process_checkpoint, cuCheckpointProcessCheckpoint);
SAME_CALL(process_restore, cuCheckpointProcessRestore);
SAME_CALL(process_unlock, cuCheckpointProcessUnlock);

SAME_NUMBER(ours::success, CUDA_SUCCESS);
SAME_NUMBER(ours::invalid_value, CUDA_ERROR_INVALID_VALUE);
SAME_NUMBER(ours::out_of_memory, CUDA_ERROR_OUT_OF_MEMORY);
SAME_NUMBER(ours::not_initialized, CUDA_ERROR_NOT_INITIALIZED);
SAME_NUMBER(ours::deinitialized, CUDA_ERROR_DEINITIALIZED);
SAME_NUMBER(ours::driver_mismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME_NUMBER(ours::no_device, CUDA_ERROR_NO_DEVICE);
SAME_NUMBER(ours::invalid_device, CUDA_ERROR_INVALID_DEVICE);
SAME_NUMBER(ours::invalid_image, CUDA_ERROR_INVALID_IMAGE);
SAME_NUMBER(ours::invalid_context, CUDA_ERROR_INVALID_CONTEXT);
SAME_NUMBER(ours::no_binary_for_gpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_NUMBER(ours::invalid_handle, CUDA_ERROR_INVALID_HANDLE);
SAME_NUMBER(ours::illegal_state, CUDA_ERROR_ILLEGAL_STATE);
SAME_NUMBER(ours::not_found, CUDA_ERROR_NOT_FOUND);
SAME_NUMBER(ours::not_ready, CUDA_ERROR_NOT_READY);
SAME_NUMBER(ours::illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME_NUMBER(ours::launch_timeout, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME_NUMBER(ours::context_is_destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
SAME_NUMBER(ours::launch_failed, CUDA_ERROR_LAUNCH_FAILED);
SAME_NUMBER(ours::not_permitted, CUDA_ERROR_NOT_PERMITTED);
SAME_NUMBER(ours::not_supported, CUDA_ERROR_NOT_SUPPORTED);
SAME_NUMBER(ours::capture_unsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
SAME_NUMBER(ours::sm_count, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_NUMBER(ours::capability_major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_NUMBER(ours::capability_minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_NUMBER(ours::can_wait_for_64_bits, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
SAME_NUMBER(ours::stream_non_blocking, CU_STREAM_NON_BLOCKING);
SAME_NUMBER(ours::event_disable_timing, CU_EVENT_DISABLE_TIMING);
SAME_NUMBER(ours::host_portable, CU_MEMHOSTALLOC_PORTABLE);
SAME_NUMBER(ours::host_mapped, CU_MEMHOSTALLOC_DEVICEMAP);
SAME_NUMBER(ours::wait_until_at_least, CU_STREAM_WAIT_VALUE_GEQ);
SAME_NUMBER(ours::write_default, CU_STREAM_WRITE_VALUE_DEFAULT);
SAME_NUMBER(ours::not_capturing, CU_STREAM_CAPTURE_STATUS_NONE);
SAME_NUMBER(ours::capturing, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME_NUMBER(ours::capture_invalidated, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
SAME_NUMBER(ours::process_running, CU_PROCESS_STATE_RUNNING);
SAME_NUMBER(ours::process_locked, CU_PROCESS_STATE_LOCKED);
SAME_NUMBER(ours::process_checkpointed, CU_PROCESS_STATE_CHECKPOINTED);
SAME_NUMBER(ours::process_failed, CU_PROCESS_STATE_FAILED);
static_assert(sizeof(ours::LockArguments) == sizeof(CUcheckpointLockArgs));
static_assert(offsetof(ours::LockArguments, reserved1) ==
              offsetof(CUcheckpointLockArgs, reserved1));
