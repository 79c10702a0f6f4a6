// What the opaque descriptors of cuBLASLt hold here. Each lies inside the vendor's public opaque
// size, because callers may keep them on their stack.
#pragma once

#include <cstdint>
#include <string>

#include "vgpu/abi/cublaslt.h"

namespace prism::standins::cublaslt {

struct Layout {
  std::int32_t type = 0;
  std::int32_t order = abi::cublaslt::order_column;
  std::uint64_t rows = 0;
  std::uint64_t cols = 0;
  std::int64_t ld = 0;
  std::int32_t batch = 1;
  std::int32_t batch_mode = 0;
  std::int64_t batch_stride = 0;
  std::int64_t plane_offset = 0;
};
static_assert(sizeof(Layout) <= sizeof(abi::cublaslt::LayoutOpaque));

struct MatmulDesc {
  std::int32_t compute_type = 0;
  std::int32_t scale_type = 0;
  std::int32_t pointer_mode = 0;
  std::int32_t trans_a = 0, trans_b = 0, trans_c = 0;
  std::int32_t fill_mode = 2;  // full
  std::uint32_t epilogue = abi::cublaslt::epilogue_none;
  const void* bias = nullptr;
  std::int64_t bias_batch_stride = 0;
  const void* aux = nullptr;
  std::int64_t aux_ld = 0;
  std::int64_t aux_batch_stride = 0;
  std::int64_t alpha_batch_stride = 0;
  std::int32_t sm_target = 0;
  std::int32_t aux_type = -1;
  const void* a_scale = nullptr;
  const void* b_scale = nullptr;
  const void* c_scale = nullptr;
  const void* d_scale = nullptr;
  void* amax_d = nullptr;
  const void* aux_scale = nullptr;
  void* aux_amax = nullptr;
  std::int32_t bias_type = -1;
  std::int32_t a_scale_mode = 0, b_scale_mode = 0, c_scale_mode = 0, d_scale_mode = 0;
  std::int32_t aux_scale_mode = 0, d_out_scale_mode = 0;
  std::int8_t fast_accumulation = 0;
  void* d_out_scale = nullptr;
};
static_assert(sizeof(MatmulDesc) <= sizeof(abi::cublaslt::MatmulDescOpaque));

struct Preference {
  std::uint32_t search_mode = 0;
  std::uint32_t reduction_mask = 7;
  std::uint64_t max_workspace_bytes = 0;
  std::uint32_t min_alignment[4] = {256, 256, 256, 256};  // A, B, C, D
  float max_waves = 0;
  std::uint64_t implementation_mask = ~std::uint64_t{0};
};
static_assert(sizeof(Preference) <= sizeof(abi::cublaslt::PreferenceOpaque));

// "" for none, else the set bits in words: "bias", "gelu_aux_bias", "dgelu_bgrad", ...
std::string epilogue_name(std::uint32_t epilogue);

}  // namespace prism::standins::cublaslt
