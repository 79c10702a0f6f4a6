// cuBLAS: matrix products. Arguments are checked as cuBLAS documents them; alpha, beta and the
// matrices are not read.
#include <algorithm>
#include <cstdint>

#include "vgpu/standins/blas/record.h"
#include "vgpu/standins/cublas/handle.h"
#include "vgpu/standins/standin.h"

namespace cb = prism::abi::cublas;
using prism::standins::blas::Product;
using prism::standins::cublas::Handle;
using prism::standins::cublas::usable;

namespace {

bool valid_operation(cb::Operation operation) noexcept {
  return operation == cb::op_n || operation == cb::op_t || operation == cb::op_c;
}

bool uses_tf32(const Handle& handle, cb::ComputeType compute) noexcept {
  return compute == cb::compute_32f_fast_tf32 ||
         (compute == cb::compute_32f && (handle.math & 15) == cb::math_tf32);
}

struct Matrices {
  cb::Operation a, b;
  std::int64_t m, n, k;
  std::int64_t lda, ldb, ldc;
  std::int64_t batch = 1;
};

cb::Status gemm(const Handle* handle, const char* family, const Matrices& x, cb::CudaType operand,
                cb::ComputeType compute) noexcept {
  if (!usable(handle)) return cb::not_initialized;
  if (!valid_operation(x.a) || !valid_operation(x.b)) return cb::invalid_value;
  if (x.m < 0 || x.n < 0 || x.k < 0 || x.batch < 0) return cb::invalid_value;
  const std::int64_t rows_a = x.a == cb::op_n ? x.m : x.k;
  const std::int64_t rows_b = x.b == cb::op_n ? x.k : x.n;
  const auto at_least_one = [](std::int64_t rows) { return std::max<std::int64_t>(1, rows); };
  if (x.lda < at_least_one(rows_a) || x.ldb < at_least_one(rows_b) || x.ldc < at_least_one(x.m)) {
    return cb::invalid_value;
  }
  Product product;
  product.family = family;
  product.m = x.m;
  product.n = x.n;
  product.k = x.k;
  product.batch = x.batch;
  product.operand = operand;
  product.transpose_a = x.a;
  product.transpose_b = x.b;
  product.tf32 = uses_tf32(*handle, compute);
  return prism::standins::blas::record(handle->stream, product);
}

constexpr const char* single = "gemm";
constexpr const char* batched = "gemm_batched";

}  // namespace

extern "C" {

PRISM_EXPORT cb::Status cublasGemmEx(Handle* handle, cb::Operation ta, cb::Operation tb, int m,
                                     int n, int k, const void*, const void*, cb::CudaType a_type,
                                     int lda, const void*, cb::CudaType, int ldb, const void*,
                                     void*, cb::CudaType, int ldc, cb::ComputeType compute, int) {
  return gemm(handle, single, {ta, tb, m, n, k, lda, ldb, ldc}, a_type, compute);
}

PRISM_EXPORT cb::Status cublasGemmStridedBatchedEx(Handle* handle, cb::Operation ta,
                                                   cb::Operation tb, int m, int n, int k,
                                                   const void*, const void*, cb::CudaType a_type,
                                                   int lda, long long, const void*, cb::CudaType,
                                                   int ldb, long long, const void*, void*,
                                                   cb::CudaType, int ldc, long long, int batch,
                                                   cb::ComputeType compute, int) {
  return gemm(handle, batched, {ta, tb, m, n, k, lda, ldb, ldc, batch}, a_type, compute);
}

PRISM_EXPORT cb::Status cublasGemmBatchedEx(Handle* handle, cb::Operation ta, cb::Operation tb,
                                            int m, int n, int k, const void*, const void* const*,
                                            cb::CudaType a_type, int lda, const void* const*,
                                            cb::CudaType, int ldb, const void*, void* const*,
                                            cb::CudaType, int ldc, int batch,
                                            cb::ComputeType compute, int) {
  return gemm(handle, batched, {ta, tb, m, n, k, lda, ldb, ldc, batch}, a_type, compute);
}

// float32 arithmetic on operands of any type.
PRISM_EXPORT cb::Status cublasSgemmEx(Handle* handle, cb::Operation ta, cb::Operation tb, int m,
                                      int n, int k, const float*, const void*, cb::CudaType a_type,
                                      int lda, const void*, cb::CudaType, int ldb, const float*,
                                      void*, cb::CudaType, int ldc) {
  return gemm(handle, single, {ta, tb, m, n, k, lda, ldb, ldc}, a_type, cb::compute_32f);
}

// The typed families have one signature apart from the element type, of which only addresses pass.
#define PRISM_GEMM(letter, type, compute)                                                   \
  PRISM_EXPORT cb::Status cublas##letter##gemm_v2(                                          \
      Handle* handle, cb::Operation ta, cb::Operation tb, int m, int n, int k, const void*, \
      const void*, int lda, const void*, int ldb, const void*, void*, int ldc) {            \
    return gemm(handle, single, {ta, tb, m, n, k, lda, ldb, ldc}, type, compute);           \
  }                                                                                         \
  PRISM_EXPORT cb::Status cublas##letter##gemmStridedBatched(                               \
      Handle* handle, cb::Operation ta, cb::Operation tb, int m, int n, int k, const void*, \
      const void*, int lda, long long, const void*, int ldb, long long, const void*, void*, \
      int ldc, long long, int batch) {                                                      \
    return gemm(handle, batched, {ta, tb, m, n, k, lda, ldb, ldc, batch}, type, compute);   \
  }                                                                                         \
  PRISM_EXPORT cb::Status cublas##letter##gemmBatched(                                      \
      Handle* handle, cb::Operation ta, cb::Operation tb, int m, int n, int k, const void*, \
      const void* const*, int lda, const void* const*, int ldb, const void*, void* const*,  \
      int ldc, int batch) {                                                                 \
    return gemm(handle, batched, {ta, tb, m, n, k, lda, ldb, ldc, batch}, type, compute);   \
  }
PRISM_GEMM(S, cb::r_32f, cb::compute_32f)
PRISM_GEMM(D, cb::r_64f, cb::compute_64f)
PRISM_GEMM(H, cb::r_16f, cb::compute_16f)
PRISM_GEMM(C, cb::c_32f, cb::compute_32f)
PRISM_GEMM(Z, cb::c_64f, cb::compute_64f)
#undef PRISM_GEMM

// The three-multiplication algorithm for complex matrices: the same product to the record.
#define PRISM_GEMM3M(name, type, compute)                                                        \
  PRISM_EXPORT cb::Status name(Handle* handle, cb::Operation ta, cb::Operation tb, int m, int n, \
                               int k, const void*, const void*, int lda, const void*, int ldb,   \
                               const void*, void*, int ldc) {                                    \
    return gemm(handle, single, {ta, tb, m, n, k, lda, ldb, ldc}, type, compute);                \
  }
PRISM_GEMM3M(cublasCgemm3m, cb::c_32f, cb::compute_32f)
PRISM_GEMM3M(cublasZgemm3m, cb::c_64f, cb::compute_64f)
#undef PRISM_GEMM3M

}  // extern "C"
