// cuBLAS: the matrix-vector and vector-vector products that torch calls.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "vgpu/standins/blas/record.h"
#include "vgpu/standins/cublas/handle.h"
#include "vgpu/standins/standin.h"

namespace cb = prism::abi::cublas;
using prism::standins::blas::Product;
using prism::standins::cublas::Handle;
using prism::standins::cublas::usable;

namespace {

cb::Status gemv(const Handle* handle, cb::Operation trans, int m, int n, int lda, int incx,
                int incy, cb::CudaType type) noexcept {
  if (!usable(handle)) return cb::not_initialized;
  if (trans < cb::op_n || trans > cb::op_c || m < 0 || n < 0 || lda < std::max(1, m) || incx == 0 ||
      incy == 0) {
    return cb::invalid_value;
  }
  Product product;
  product.family = "gemv";
  product.m = trans == cb::op_n ? m : n;
  product.n = 1;
  product.k = trans == cb::op_n ? n : m;
  product.operand = type;
  product.transpose_a = trans;
  return prism::standins::blas::record(handle->stream, product);
}

// The scalar product. On a device pointer the result is what the memory holds (kernels compute
// nothing); a host result must be defined, and is zero.
cb::Status dot(const Handle* handle, int n, void* result, cb::CudaType type,
               cb::CudaType result_type) noexcept {
  if (!usable(handle)) return cb::not_initialized;
  const std::int64_t bytes = prism::standins::blas::element_bytes(result_type);
  if (result == nullptr || bytes == 0) return cb::invalid_value;
  if (handle->pointers == cb::pointer_host) std::memset(result, 0, static_cast<std::size_t>(bytes));
  if (n <= 0) return cb::success;
  Product product;
  product.family = "dot";
  product.m = 1;
  product.n = 1;
  product.k = n;
  product.operand = type;
  return prism::standins::blas::record(handle->stream, product);
}

}  // namespace

extern "C" {

#define PRISM_GEMV(name, type)                                                                  \
  PRISM_EXPORT cb::Status name(Handle* handle, cb::Operation trans, int m, int n, const void*,  \
                               const void*, int lda, const void*, int incx, const void*, void*, \
                               int incy) {                                                      \
    return gemv(handle, trans, m, n, lda, incx, incy, type);                                    \
  }
PRISM_GEMV(cublasSgemv_v2, cb::r_32f)
PRISM_GEMV(cublasDgemv_v2, cb::r_64f)
PRISM_GEMV(cublasCgemv_v2, cb::c_32f)
PRISM_GEMV(cublasZgemv_v2, cb::c_64f)
#undef PRISM_GEMV

#define PRISM_DOT(name, type)                                                             \
  PRISM_EXPORT cb::Status name(Handle* handle, int n, const void*, int, const void*, int, \
                               void* result) {                                            \
    return dot(handle, n, result, type, type);                                            \
  }
PRISM_DOT(cublasSdot_v2, cb::r_32f)
PRISM_DOT(cublasDdot_v2, cb::r_64f)
PRISM_DOT(cublasCdotu_v2, cb::c_32f)
PRISM_DOT(cublasCdotc_v2, cb::c_32f)
PRISM_DOT(cublasZdotu_v2, cb::c_64f)
PRISM_DOT(cublasZdotc_v2, cb::c_64f)
#undef PRISM_DOT

PRISM_EXPORT cb::Status cublasDotEx(Handle* handle, int n, const void*, cb::CudaType x_type, int,
                                    const void*, cb::CudaType, int, void* result,
                                    cb::CudaType result_type, cb::CudaType) {
  return dot(handle, n, result, x_type, result_type);
}

}  // extern "C"
