// Which calls of the CUDA runtime and driver are recorded, and what each does. CUPTI is asked for
// these alone: a call that is not here (cudaGetDevice, cudaGetLastError, ...) makes no record.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace prism::device::cupti {

enum class CallRole : std::uint8_t {
  none,
  launch,    // a kernel
  copy,      // that the host does not wait for
  copy_now,  // that it does, where the host has a part in it
  set,
  event_record,
  event_wait,
  event_sync,
  event_query,
  stream_sync,
  stream_query,
  device_sync,
  host_callback,
  graph_launch,
  stream_create,
  allocate,  // device memory
  release,   // device memory; the runtime's waits for the device
  release_async,
};

enum class CallSide : std::uint8_t { runtime, driver };

struct Call {
  CallSide side;
  CallRole role;
  std::uint32_t id;  // CUPTI's callback id
  std::string_view name;
};

// All, in the order of side and id.
std::span<const Call> recorded_calls() noexcept;
CallRole role_of(CallSide side, std::uint32_t id) noexcept;

}  // namespace prism::device::cupti
