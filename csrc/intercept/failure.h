// How a refused call is told: a result code, and one line that ncclGetLastError returns.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "vgpu/abi/nccl.h"

namespace prism::intercept {

abi::nccl::Result fail(abi::nccl::Result result, std::string message) noexcept;
// The last line of this process. The pointer holds until the calling thread asks again.
const char* last_failure() noexcept;

// Nothing may be thrown through the C boundary.
template <class F>
abi::nccl::Result guarded(const char* function, F&& call) noexcept {
  try {
    return call();
  } catch (const std::exception& error) {
    return fail(abi::nccl::internal_error, std::string(function) + ": " + error.what());
  }
}

}  // namespace prism::intercept
