// cuBLASLt: the product itself, and the choice of an algorithm. There is one algorithm, it takes
// every product that is well formed and needs no workspace.
#include <array>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>

#include "vgpu/abi/cublaslt.h"
#include "vgpu/standins/blas/record.h"
#include "vgpu/standins/cublaslt/attributes.h"
#include "vgpu/standins/cublaslt/descriptor.h"
#include "vgpu/standins/standin.h"

namespace cb = prism::abi::cublas;
namespace lt = prism::abi::cublaslt;
using namespace prism::standins::cublaslt;
using prism::standins::blas::Product;

namespace {

// What an algorithm descriptor holds here: the settings a caller may read back.
struct Settings {
  std::int32_t id = 0;
  std::uint32_t tile = 0;
  std::int32_t split_k = 1;
  std::uint32_t reduction = 0;
  std::uint32_t swizzle = 0;
  std::uint32_t option = 0;
  std::uint32_t stages = 0;
  std::uint16_t inner_shape = 0;
  std::uint16_t cluster_shape = 0;
};
static_assert(sizeof(Settings) <= sizeof(lt::Algorithm));

constexpr std::array settings_table{
    PRISM_ATTRIBUTE(0, Settings, id),
    PRISM_ATTRIBUTE(1, Settings, tile),
    PRISM_ATTRIBUTE(2, Settings, split_k),
    PRISM_ATTRIBUTE(3, Settings, reduction),
    PRISM_ATTRIBUTE(4, Settings, swizzle),
    PRISM_ATTRIBUTE(5, Settings, option),
    PRISM_ATTRIBUTE(6, Settings, stages),
    PRISM_ATTRIBUTE(7, Settings, inner_shape),
    PRISM_ATTRIBUTE(8, Settings, cluster_shape),
};

void choose(lt::Algorithm* algorithm, int id) noexcept {
  std::memset(algorithm, 0, sizeof *algorithm);
  Settings settings;
  settings.id = id;
  std::memcpy(algorithm, &settings, sizeof settings);
}

const Layout* layout_in(const lt::LayoutOpaque* opaque) noexcept {
  return reinterpret_cast<const Layout*>(opaque);
}

struct Shapes {
  const Layout* a;
  const Layout* b;
  const Layout* c;
  const Layout* d;
};

// op(A) is m x k, op(B) k x n, D m x n; batches equal, or 1 for an operand that is reused.
cb::Status product_of(const MatmulDesc* desc, const Shapes& x, Product& product) noexcept {
  if (desc == nullptr || x.a == nullptr || x.b == nullptr || x.d == nullptr) {
    return cb::invalid_value;
  }
  const bool ta = desc->trans_a != cb::op_n;
  const bool tb = desc->trans_b != cb::op_n;
  const std::uint64_t m = x.d->rows;
  const std::uint64_t n = x.d->cols;
  const std::uint64_t k = ta ? x.a->rows : x.a->cols;
  if ((ta ? x.a->cols : x.a->rows) != m || (tb ? x.b->rows : x.b->cols) != n ||
      (tb ? x.b->cols : x.b->rows) != k) {
    return cb::invalid_value;
  }
  const auto fits = [&](const Layout* layout) {
    const std::uint64_t lead = layout->order == lt::order_row ? layout->cols : layout->rows;
    return (layout->batch == x.d->batch || layout->batch == 1) &&
           layout->ld >= static_cast<std::int64_t>(lead);
  };
  if (!fits(x.a) || !fits(x.b) || !fits(x.d)) return cb::invalid_value;
  if (x.c != nullptr && (x.c->rows != m || x.c->cols != n)) return cb::invalid_value;
  product.family = "gemm_lt";
  product.m = static_cast<std::int64_t>(m);
  product.n = static_cast<std::int64_t>(n);
  product.k = static_cast<std::int64_t>(k);
  product.batch = x.d->batch;
  product.operand = x.a->type;
  product.transpose_a = desc->trans_a;
  product.transpose_b = desc->trans_b;
  product.tf32 = desc->compute_type == cb::compute_32f_fast_tf32;
  return cb::success;
}

const MatmulDesc* desc_in(const lt::MatmulDescOpaque* opaque) noexcept {
  return reinterpret_cast<const MatmulDesc*>(opaque);
}

}  // namespace

extern "C" {

// A cuBLASLt handle carries nothing; a cuBLAS handle is accepted where one is asked for, as the
// vendor documents.
PRISM_EXPORT cb::Status cublasLtCreate(void** handle) {
  if (handle == nullptr) return cb::invalid_value;
  *handle = new (std::nothrow) std::uint64_t{0};
  return *handle == nullptr ? cb::alloc_failed : cb::success;
}

PRISM_EXPORT cb::Status cublasLtDestroy(void* handle) {
  delete static_cast<std::uint64_t*>(handle);
  return cb::success;
}

PRISM_EXPORT std::size_t cublasLtGetVersion() { return cb::version; }
PRISM_EXPORT std::size_t cublasLtGetCudartVersion() { return 13000; }

PRISM_EXPORT const char* cublasLtGetStatusName(cb::Status status) {
  return prism::standins::blas::status_name(status);
}

PRISM_EXPORT const char* cublasLtGetStatusString(cb::Status status) {
  return prism::standins::blas::status_text(status);
}

PRISM_EXPORT cb::Status cublasLtMatmul(void* handle, const lt::MatmulDescOpaque* desc, const void*,
                                       const void*, const lt::LayoutOpaque* a, const void*,
                                       const lt::LayoutOpaque* b, const void*, const void*,
                                       const lt::LayoutOpaque* c, void*, const lt::LayoutOpaque* d,
                                       const lt::Algorithm*, void* workspace,
                                       std::size_t workspace_bytes, void* stream) {
  if (handle == nullptr) return cb::not_initialized;
  if (workspace == nullptr && workspace_bytes != 0) return cb::invalid_value;
  Product product;
  const cb::Status status =
      product_of(desc_in(desc), {layout_in(a), layout_in(b), layout_in(c), layout_in(d)}, product);
  if (status != cb::success) return status;
  const std::string epilogue = epilogue_name(desc_in(desc)->epilogue);
  product.suffix = epilogue;
  return prism::standins::blas::record(stream, product);
}

PRISM_EXPORT cb::Status cublasLtMatmulAlgoGetHeuristic(
    void* handle, const lt::MatmulDescOpaque* desc, const lt::LayoutOpaque* a,
    const lt::LayoutOpaque* b, const lt::LayoutOpaque* c, const lt::LayoutOpaque* d,
    const lt::PreferenceOpaque* preference, int requested, lt::HeuristicResult* results,
    int* returned) {
  if (handle == nullptr) return cb::not_initialized;
  if (preference == nullptr || results == nullptr || returned == nullptr || requested < 1) {
    return cb::invalid_value;
  }
  *returned = 0;
  Product product;
  const cb::Status status =
      product_of(desc_in(desc), {layout_in(a), layout_in(b), layout_in(c), layout_in(d)}, product);
  if (status != cb::success) return status;
  results[0] = lt::HeuristicResult{};
  choose(&results[0].algorithm, 0);
  results[0].state = cb::success;
  results[0].waves_count = 1.0F;
  *returned = 1;
  return cb::success;
}

PRISM_EXPORT cb::Status cublasLtMatmulAlgoGetIds(void* handle, cb::ComputeType, cb::CudaType,
                                                 cb::CudaType, cb::CudaType, cb::CudaType,
                                                 cb::CudaType, int requested, int* ids,
                                                 int* returned) {
  if (handle == nullptr) return cb::not_initialized;
  if (ids == nullptr || returned == nullptr || requested < 1) return cb::invalid_value;
  ids[0] = 0;
  *returned = 1;
  return cb::success;
}

PRISM_EXPORT cb::Status cublasLtMatmulAlgoInit(void* handle, cb::ComputeType, cb::CudaType,
                                               cb::CudaType, cb::CudaType, cb::CudaType,
                                               cb::CudaType, int id, lt::Algorithm* algorithm) {
  if (handle == nullptr) return cb::not_initialized;
  if (algorithm == nullptr || id < 0) return cb::invalid_value;
  choose(algorithm, id);
  return cb::success;
}

PRISM_EXPORT cb::Status cublasLtMatmulAlgoCheck(
    void* handle, const lt::MatmulDescOpaque* desc, const lt::LayoutOpaque* a,
    const lt::LayoutOpaque* b, const lt::LayoutOpaque* c, const lt::LayoutOpaque* d,
    const lt::Algorithm* algorithm, lt::HeuristicResult* result) {
  if (handle == nullptr) return cb::not_initialized;
  if (algorithm == nullptr || result == nullptr) return cb::invalid_value;
  Product product;
  const cb::Status status =
      product_of(desc_in(desc), {layout_in(a), layout_in(b), layout_in(c), layout_in(d)}, product);
  if (status != cb::success) return status;
  const lt::Algorithm chosen = *algorithm;  // may be result->algorithm
  *result = lt::HeuristicResult{};
  result->algorithm = chosen;
  result->state = cb::success;
  result->waves_count = 1.0F;
  return cb::success;
}

PRISM_EXPORT cb::Status cublasLtMatmulAlgoConfigSetAttribute(lt::Algorithm* algorithm, int id,
                                                             const void* buffer, std::size_t size) {
  return set(settings_table, algorithm, id, buffer, size);
}

PRISM_EXPORT cb::Status cublasLtMatmulAlgoConfigGetAttribute(const lt::Algorithm* algorithm, int id,
                                                             void* buffer, std::size_t size,
                                                             std::size_t* written) {
  return get(settings_table, algorithm, id, buffer, size, written);
}

}  // extern "C"
