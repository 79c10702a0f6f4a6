// The CUDA driver's C interface as far as we call it: names, signatures and numbers. Handles are
// void*, device addresses 64-bit numbers. Checked against the wheel's headers by
// tests/python/test_device_abi.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace prism::device {

using Address = unsigned long long;  // CUdeviceptr

enum Result : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,

  no_device = 100,
  invalid_device = 101,
  invalid_image = 200,
  invalid_context = 201,
  no_binary_for_gpu = 209,
  invalid_handle = 400,
  illegal_state = 401,
  not_found = 500,
  not_ready = 600,
  illegal_address = 700,
  launch_timeout = 702,
  context_is_destroyed = 709,
  launch_failed = 719,
  not_permitted = 800,
  not_supported = 801,
  driver_mismatch = 803,
  capture_unsupported = 900,
};

enum Attribute : int {
  sm_count = 16,
  capability_major = 75,
  capability_minor = 76,
  can_wait_for_64_bits = 122,
};
constexpr unsigned stream_non_blocking = 1;
constexpr unsigned event_disable_timing = 2;
constexpr unsigned host_portable = 1, host_mapped = 2;
constexpr unsigned wait_until_at_least = 0;  // cyclic: (int)(*address - value) >= 0
constexpr unsigned write_default = 0;
enum CaptureStatus : int { not_capturing = 0, capturing = 1, capture_invalidated = 2 };
enum ProcessState : int {
  process_running = 0,
  process_locked = 1,
  process_checkpointed = 2,
  process_failed = 3,
};

struct LockArguments {
  unsigned timeout_ms = 0;  // 0: no limit
  unsigned reserved0 = 0;
  std::uint64_t reserved1[7] = {};
};
static_assert(sizeof(LockArguments) == 64);

using HostFunction = void (*)(void*);

// X(word, symbol, first CUDA version that has it, parameters)
#define PRISM_DRIVER_CALLS(X)                                                                    \
  X(init, "cuInit", 2000, (unsigned))                                                            \
  X(driver_version, "cuDriverGetVersion", 2020, (int*))                                          \
  X(error_name, "cuGetErrorName", 6000, (int, const char**))                                     \
  X(device_count, "cuDeviceGetCount", 2000, (int*))                                              \
  X(device_get, "cuDeviceGet", 2000, (int*, int))                                                \
  X(device_attribute, "cuDeviceGetAttribute", 2000, (int*, int, int))                            \
  X(primary_retain, "cuDevicePrimaryCtxRetain", 7000, (void**, int))                             \
  X(primary_release, "cuDevicePrimaryCtxRelease_v2", 11000, (int))                               \
  X(context_push, "cuCtxPushCurrent_v2", 4000, (void*))                                          \
  X(context_pop, "cuCtxPopCurrent_v2", 4000, (void**))                                           \
  X(context_current, "cuCtxGetCurrent", 4000, (void**))                                          \
  X(memory_info, "cuMemGetInfo_v2", 3020, (std::size_t*, std::size_t*))                          \
  X(allocate, "cuMemAlloc_v2", 3020, (Address*, std::size_t))                                    \
  X(free, "cuMemFree_v2", 3020, (Address))                                                       \
  X(host_allocate, "cuMemHostAlloc", 2020, (void**, std::size_t, unsigned))                      \
  X(host_free, "cuMemFreeHost", 2000, (void*))                                                   \
  X(host_address, "cuMemHostGetDevicePointer_v2", 3020, (Address*, void*, unsigned))             \
  X(stream_create, "cuStreamCreate", 2000, (void**, unsigned))                                   \
  X(stream_destroy, "cuStreamDestroy_v2", 4000, (void*))                                         \
  X(stream_query, "cuStreamQuery", 2000, (void*))                                                \
  X(stream_synchronize, "cuStreamSynchronize", 2000, (void*))                                    \
  X(stream_wait_event, "cuStreamWaitEvent", 3020, (void*, void*, unsigned))                      \
  X(stream_is_capturing, "cuStreamIsCapturing", 10000, (void*, int*))                            \
  X(wait_value32, "cuStreamWaitValue32_v2", 11070, (void*, Address, std::uint32_t, unsigned))    \
  X(wait_value64, "cuStreamWaitValue64_v2", 11070, (void*, Address, std::uint64_t, unsigned))    \
  X(write_value32, "cuStreamWriteValue32_v2", 11070, (void*, Address, std::uint32_t, unsigned))  \
  X(write_value64, "cuStreamWriteValue64_v2", 11070, (void*, Address, std::uint64_t, unsigned))  \
  X(event_create, "cuEventCreate", 2000, (void**, unsigned))                                     \
  X(event_destroy, "cuEventDestroy_v2", 4000, (void*))                                           \
  X(event_record, "cuEventRecord", 2000, (void*, void*))                                         \
  X(event_query, "cuEventQuery", 2000, (void*))                                                  \
  X(event_synchronize, "cuEventSynchronize", 2000, (void*))                                      \
  X(event_elapsed, "cuEventElapsedTime", 2000, (float*, void*, void*))                           \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2", 3020, (void*, Address, std::size_t, void*))            \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2", 3020, (Address, const void*, std::size_t, void*))    \
  X(copy_on_device, "cuMemcpyDtoDAsync_v2", 3020, (Address, Address, std::size_t, void*))        \
  X(set_bytes, "cuMemsetD8Async", 3020, (Address, unsigned char, std::size_t, void*))            \
  X(module_load, "cuModuleLoadData", 2000, (void**, const void*))                                \
  X(module_unload, "cuModuleUnload", 2000, (void*))                                              \
  X(module_function, "cuModuleGetFunction", 2000, (void**, void*, const char*))                  \
  X(launch, "cuLaunchKernel", 4000,                                                              \
    (void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, \
     void**))                                                                                    \
  X(host_function, "cuLaunchHostFunc", 10000, (void*, HostFunction, void*))                      \
  X(process_state, "cuCheckpointProcessGetState", 12080, (int, int*))                            \
  X(process_lock, "cuCheckpointProcessLock", 12080, (int, LockArguments*))                       \
  X(process_checkpoint, "cuCheckpointProcessCheckpoint", 12080, (int, void*))                    \
  X(process_restore, "cuCheckpointProcessRestore", 12080, (int, void*))                          \
  X(process_unlock, "cuCheckpointProcessUnlock", 12080, (int, void*))

enum class Call : std::size_t {
#define PRISM_DRIVER_WORD(word, symbol, since, parameters) word,
  PRISM_DRIVER_CALLS(PRISM_DRIVER_WORD)
#undef PRISM_DRIVER_WORD
      count
};

template <Call>
struct CallType;
#define PRISM_DRIVER_TYPE(word, symbol, since, parameters) \
  template <>                                              \
  struct CallType<Call::word> {                            \
    using type = int(*) parameters;                        \
  };
PRISM_DRIVER_CALLS(PRISM_DRIVER_TYPE)
#undef PRISM_DRIVER_TYPE

}  // namespace prism::device
