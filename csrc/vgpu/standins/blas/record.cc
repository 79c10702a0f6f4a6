#include "vgpu/standins/blas/record.h"

#include <array>
#include <exception>
#include <string>

#include "graph/kernel.h"
#include "graph/op.h"
#include "vgpu/device/session.h"

namespace prism::standins::blas {

namespace cb = abi::cublas;

namespace {

struct TypeRow {
  cb::CudaType type;
  DataType dtype;
  std::int64_t bytes;
  std::string_view word;  // said in the kernel name; empty: DataType says it
};

constexpr std::array type_rows{
    TypeRow{cb::r_16f, DataType::float16, 2, ""},
    TypeRow{cb::r_16bf, DataType::bfloat16, 2, ""},
    TypeRow{cb::r_32f, DataType::float32, 4, ""},
    TypeRow{cb::r_64f, DataType::float64, 8, ""},
    TypeRow{cb::r_8i, DataType::int8, 1, ""},
    TypeRow{cb::r_8u, DataType::uint8, 1, ""},
    TypeRow{cb::r_32i, DataType::int32, 4, ""},
    TypeRow{cb::r_32u, DataType::uint32, 4, ""},
    TypeRow{cb::r_64i, DataType::int64, 8, ""},
    TypeRow{cb::r_64u, DataType::uint64, 8, ""},
    TypeRow{cb::r_8f_e4m3, DataType::float8e4m3, 1, ""},
    TypeRow{cb::r_8f_e5m2, DataType::float8e5m2, 1, ""},
    TypeRow{cb::r_4f_e2m1, DataType::none, 1, "float4e2m1"},
    TypeRow{cb::c_32f, DataType::none, 8, "complex64"},
    TypeRow{cb::c_64f, DataType::none, 16, "complex128"},
};

const TypeRow* row_of(cb::CudaType type) noexcept {
  for (const TypeRow& row : type_rows) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

struct StatusRow {
  cb::Status status;
  const char* name;
  const char* text;
};

constexpr std::array status_rows{
    StatusRow{cb::success, "CUBLAS_STATUS_SUCCESS", "success"},
    StatusRow{cb::not_initialized, "CUBLAS_STATUS_NOT_INITIALIZED", "the handle was not created"},
    StatusRow{cb::alloc_failed, "CUBLAS_STATUS_ALLOC_FAILED", "memory could not be allocated"},
    StatusRow{cb::invalid_value, "CUBLAS_STATUS_INVALID_VALUE", "an argument is not valid"},
    StatusRow{cb::arch_mismatch, "CUBLAS_STATUS_ARCH_MISMATCH", "the device lacks the feature"},
    StatusRow{cb::mapping_error, "CUBLAS_STATUS_MAPPING_ERROR", "memory could not be mapped"},
    StatusRow{cb::execution_failed, "CUBLAS_STATUS_EXECUTION_FAILED", "a kernel failed"},
    StatusRow{cb::internal_error, "CUBLAS_STATUS_INTERNAL_ERROR", "internal error"},
    StatusRow{cb::not_supported, "CUBLAS_STATUS_NOT_SUPPORTED",
              "not implemented by prismcore's virtual GPU"},
    StatusRow{cb::license_error, "CUBLAS_STATUS_LICENSE_ERROR", "licence error"},
};

}  // namespace

cb::Status record(void* stream, const Product& product) noexcept {
  if (product.m == 0 || product.n == 0 || product.batch == 0) return cb::success;
  const TypeRow* row = row_of(product.operand);
  if (row == nullptr) return cb::not_supported;
  try {
    std::string name(product.family);
    if (!product.suffix.empty()) name.append(":").append(product.suffix);
    if (product.tf32 && product.operand == cb::r_32f) name.append(":tf32");
    if (!row->word.empty()) name.append(":").append(row->word);
    KernelShape shape;
    shape.dtype = row->dtype;
    shape.transposes = static_cast<std::uint8_t>((product.transpose_a != cb::op_n ? 1U : 0U) |
                                                 (product.transpose_b != cb::op_n ? 2U : 0U));
    // Without a word for the type the cost model would take another type's figures: the kernel then
    // counts as unknown.
    if (row->dtype != DataType::none) {
      shape.gemm = Gemm{product.m, product.n, product.k, product.batch};
    }
    vgpu::Session::get().kernel(stream, name, shape);
    return cb::success;
  } catch (const std::exception&) {
    return cb::internal_error;  // nothing may be thrown through the C boundary
  }
}

std::int64_t element_bytes(cb::CudaType type) noexcept {
  const TypeRow* row = row_of(type);
  return row == nullptr ? 0 : row->bytes;
}

const char* status_name(cb::Status status) noexcept {
  for (const StatusRow& row : status_rows) {
    if (row.status == status) return row.name;
  }
  return "CUBLAS_STATUS_UNKNOWN";
}

const char* status_text(cb::Status status) noexcept {
  for (const StatusRow& row : status_rows) {
    if (row.status == status) return row.text;
  }
  return "unknown status";
}

}  // namespace prism::standins::blas
