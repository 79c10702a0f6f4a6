// What the files of the runtime's stand-in share.
#pragma once

#include "vgpu/abi/cudart.h"
#include "vgpu/device/runtime.h"
#include "vgpu/standins/standin.h"

#define PRISM_CUDART extern "C" PRISM_EXPORT

namespace prism::standins {

using abi::Error;

// Returns `error` and remembers it as the thread's last error, as every runtime call does.
Error result(Error error) noexcept;
Error take_last_error() noexcept;
Error last_error() noexcept;
// A block of the stream-ordered allocator is about to be freed; false: it is not one.
bool forget_pool_block(void* address);
inline int current_device() noexcept { return vgpu::Runtime::current_device(); }

inline Error result(vgpu::Outcome outcome) noexcept {
  switch (outcome) {
    case vgpu::Outcome::done:
      return abi::success;
    case vgpu::Outcome::not_ready:
      return result(abi::not_ready);
    case vgpu::Outcome::bad_handle:
      return result(abi::invalid_resource_handle);
    case vgpu::Outcome::bad_address:
      return result(abi::invalid_value);
  }
  return result(abi::unknown);
}

}  // namespace prism::standins
