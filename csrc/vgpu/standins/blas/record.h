// How a matrix product of cuBLAS or cuBLASLt reaches the record: one kernel, named by family, with
// the dimensions the cost model reads. The vendor's own choice of kernels is not imitated.
#pragma once

#include <cstdint>
#include <string_view>

#include "vgpu/abi/cublas.h"

namespace prism::standins::blas {

struct Product {
  std::string_view family;  // "gemm", "gemm_batched", "gemm_lt", "gemv", "dot"
  std::string_view suffix;  // epilogue of gemm_lt; empty: none
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  abi::cublas::CudaType operand = abi::cublas::r_32f;
  abi::cublas::Operation transpose_a = abi::cublas::op_n, transpose_b = abi::cublas::op_n;
  bool tf32 = false;  // float32 operands on TF32 tensor cores
};

// Kernel name: family[:suffix][:tf32 | :<type>]; the type is spelt out, and the dimensions left
// out, where DataType has no word for it (complex, 4-bit). A product with an empty output records
// nothing, as nothing is launched.
abi::cublas::Status record(void* stream, const Product& product) noexcept;

// Bytes of an element, 0 for a type we do not know.
std::int64_t element_bytes(abi::cublas::CudaType type) noexcept;
const char* status_name(abi::cublas::Status status) noexcept;
const char* status_text(abi::cublas::Status status) noexcept;

}  // namespace prism::standins::blas
