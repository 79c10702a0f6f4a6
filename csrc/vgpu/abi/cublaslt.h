// What cuBLASLt 13 passes over its C boundary, in our own words; checked against the vendor's
// headers by tests/abi/blas.cc. Descriptors are opaque to callers, but their size is
// public (they may live on the caller's stack), so ours must fit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vgpu/abi/cublas.h"

namespace prism::abi::cublaslt {

struct LayoutOpaque {
  std::uint64_t data[8];
};
struct MatmulDescOpaque {
  std::uint64_t data[32];
};
struct PreferenceOpaque {
  std::uint64_t data[8];
};
struct Algorithm {
  std::uint64_t data[8];
};
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  cublas::Status state;
  float waves_count;
  int reserved[4];
};

enum LayoutAttribute : int {
  layout_type = 0,
  layout_order = 1,
  layout_rows = 2,
  layout_cols = 3,
  layout_ld = 4,
  layout_batch_count = 5,
  layout_batch_stride = 6,
  layout_plane_offset = 7,
  layout_batch_mode = 8,
};

inline constexpr int order_column = 0, order_row = 1;

enum MatmulDescAttribute : int {
  desc_compute_type = 0,
  desc_scale_type = 1,
  desc_pointer_mode = 2,
  desc_trans_a = 3,
  desc_trans_b = 4,
  desc_trans_c = 5,
  desc_fill_mode = 6,
  desc_epilogue = 7,
  desc_bias_pointer = 8,
  desc_bias_batch_stride = 10,
  desc_aux_pointer = 11,
  desc_aux_ld = 12,
  desc_aux_batch_stride = 13,
  desc_alpha_batch_stride = 14,
  desc_sm_count_target = 15,
  desc_a_scale_pointer = 17,
  desc_b_scale_pointer = 18,
  desc_c_scale_pointer = 19,
  desc_d_scale_pointer = 20,
  desc_amax_d_pointer = 21,
  desc_aux_data_type = 22,
  desc_aux_scale_pointer = 23,
  desc_aux_amax_pointer = 24,
  desc_fast_accumulation = 25,
  desc_bias_data_type = 26,
  desc_a_scale_mode = 31,
  desc_b_scale_mode = 32,
  desc_c_scale_mode = 33,
  desc_d_scale_mode = 34,
  desc_aux_scale_mode = 35,
  desc_d_out_scale_pointer = 36,
  desc_d_out_scale_mode = 37,
};

// Bits of an epilogue; 1 is "none".
enum Epilogue : int {
  epilogue_none = 1,
  epilogue_relu = 2,
  epilogue_bias = 4,
  epilogue_drelu = 8,
  epilogue_bias_gradient = 16,
  epilogue_gelu = 32,
  epilogue_dgelu = 64,
  epilogue_aux = 128,
  epilogue_bias_gradient_a = 256,
  epilogue_bias_gradient_b = 512,
};

enum PreferenceAttribute : int {
  preference_search_mode = 0,
  preference_max_workspace_bytes = 1,
  preference_reduction_mask = 3,
  preference_min_alignment_a = 5,
  preference_min_alignment_b = 6,
  preference_min_alignment_c = 7,
  preference_min_alignment_d = 8,
  preference_max_waves = 9,
  preference_implementation_mask = 12,
};

}  // namespace prism::abi::cublaslt
