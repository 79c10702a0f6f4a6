// A cuBLAS handle: the state that calls on it carry. Handles are created, used and destroyed by
// C callers, so a pointer is checked by its tag before it is believed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vgpu/abi/cublas.h"

namespace prism::standins::cublas {

struct Handle {
  static constexpr std::uint64_t live = 0x707269736d626c61;
  std::uint64_t tag = live;
  void* stream = nullptr;
  void* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  abi::cublas::MathMode math = abi::cublas::math_default;
  abi::cublas::PointerMode pointers = abi::cublas::pointer_host;
  int atomics = 0;
  int sm_target = 0;  // 0: all
};

inline bool usable(const Handle* handle) noexcept {
  return handle != nullptr && handle->tag == Handle::live;
}

}  // namespace prism::standins::cublas
