// What cuBLAS 13 passes over its C boundary, in our own words: values and sizes are checked
// against the vendor's headers by tests/abi/blas.cc. Enumerations arrive as ints.
#pragma once

#include <cstdint>

namespace prism::abi::cublas {

using Status = int;
inline constexpr Status success = 0, not_initialized = 1, alloc_failed = 3, invalid_value = 7,
                        arch_mismatch = 8, mapping_error = 11, execution_failed = 13,
                        internal_error = 14, not_supported = 15, license_error = 16;

using Operation = int;
inline constexpr Operation op_n = 0, op_t = 1, op_c = 2;

using PointerMode = int;
inline constexpr PointerMode pointer_host = 0, pointer_device = 1;

// Low bits choose, bit 4 forbids reduced-precision reductions.
using MathMode = int;
inline constexpr MathMode math_default = 0, math_pedantic = 2, math_tf32 = 3, math_bf16x9 = 4,
                          math_no_reduced_reduction = 16;

using ComputeType = int;
inline constexpr ComputeType compute_16f = 64, compute_32f = 68, compute_64f = 70, compute_32i = 72,
                             compute_32f_fast_16f = 74, compute_32f_fast_16bf = 75,
                             compute_32f_fast_tf32 = 77, compute_32f_emulated_16bfx9 = 78;

// library_types.h: cudaDataType_t.
using CudaType = int;
inline constexpr CudaType r_32f = 0, r_64f = 1, r_16f = 2, r_8i = 3, c_32f = 4, c_64f = 5, r_8u = 8,
                          r_32i = 10, r_32u = 12, r_16bf = 14, r_64i = 24, r_64u = 26,
                          r_8f_e4m3 = 28, r_8f_e5m2 = 29, r_8f_ue8m0 = 30, r_4f_e2m1 = 33;

inline constexpr int version = 130101;  // of the wheel torch 2.14.1 pins (13.1.1)

}  // namespace prism::abi::cublas
