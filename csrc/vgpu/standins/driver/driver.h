// What the files of the driver's stand-in share.
#pragma once

#include "vgpu/abi/driver.h"
#include "vgpu/device/runtime.h"
#include "vgpu/standins/standin.h"

#define PRISM_CUDA extern "C" PRISM_EXPORT

namespace prism::standins {

namespace driver = abi::driver;
using Address = unsigned long long;  // CUdeviceptr

inline int driver_result(vgpu::Outcome outcome) noexcept {
  switch (outcome) {
    case vgpu::Outcome::done:
      return driver::success;
    case vgpu::Outcome::not_ready:
      return driver::not_ready;
    case vgpu::Outcome::bad_handle:
      return driver::invalid_handle;
    case vgpu::Outcome::bad_address:
      return driver::invalid_value;
  }
  return driver::invalid_handle;
}

inline void* pointer(Address address) noexcept {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

}  // namespace prism::standins
