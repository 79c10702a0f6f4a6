// cuBLAS: handles and what is set on them.
#include "vgpu/standins/cublas/handle.h"

#include <new>

#include "vgpu/standins/blas/record.h"
#include "vgpu/standins/standin.h"

namespace cb = prism::abi::cublas;
using prism::standins::cublas::Handle;
using prism::standins::cublas::usable;

namespace {

template <class Value>
cb::Status set(Handle* handle, Value Handle::* member, Value value) noexcept {
  if (!usable(handle)) return cb::not_initialized;
  handle->*member = value;
  return cb::success;
}

template <class Value>
cb::Status get(const Handle* handle, Value Handle::* member, Value* value) noexcept {
  if (!usable(handle)) return cb::not_initialized;
  if (value == nullptr) return cb::invalid_value;
  *value = handle->*member;
  return cb::success;
}

}  // namespace

extern "C" {

PRISM_EXPORT cb::Status cublasCreate_v2(Handle** handle) {
  if (handle == nullptr) return cb::invalid_value;
  *handle = new (std::nothrow) Handle;
  return *handle == nullptr ? cb::alloc_failed : cb::success;
}

PRISM_EXPORT cb::Status cublasDestroy_v2(Handle* handle) {
  if (!usable(handle)) return cb::not_initialized;
  handle->tag = 0;
  delete handle;
  return cb::success;
}

PRISM_EXPORT cb::Status cublasSetStream_v2(Handle* handle, void* stream) {
  if (!usable(handle)) return cb::not_initialized;
  handle->stream = stream;
  // As documented: a new stream takes the user's workspace away.
  handle->workspace = nullptr;
  handle->workspace_bytes = 0;
  return cb::success;
}

PRISM_EXPORT cb::Status cublasGetStream_v2(const Handle* handle, void** stream) {
  return get(handle, &Handle::stream, stream);
}

PRISM_EXPORT cb::Status cublasSetWorkspace_v2(Handle* handle, void* workspace, std::size_t bytes) {
  if (!usable(handle)) return cb::not_initialized;
  if (workspace == nullptr && bytes != 0) return cb::invalid_value;
  handle->workspace = workspace;
  handle->workspace_bytes = bytes;
  return cb::success;
}

PRISM_EXPORT cb::Status cublasSetMathMode(Handle* handle, cb::MathMode mode) {
  return set(handle, &Handle::math, mode);
}

PRISM_EXPORT cb::Status cublasGetMathMode(const Handle* handle, cb::MathMode* mode) {
  return get(handle, &Handle::math, mode);
}

PRISM_EXPORT cb::Status cublasSetPointerMode_v2(Handle* handle, cb::PointerMode mode) {
  if (mode != cb::pointer_host && mode != cb::pointer_device) return cb::invalid_value;
  return set(handle, &Handle::pointers, mode);
}

PRISM_EXPORT cb::Status cublasGetPointerMode_v2(const Handle* handle, cb::PointerMode* mode) {
  return get(handle, &Handle::pointers, mode);
}

PRISM_EXPORT cb::Status cublasSetAtomicsMode(Handle* handle, int mode) {
  return set(handle, &Handle::atomics, mode);
}

PRISM_EXPORT cb::Status cublasGetAtomicsMode(const Handle* handle, int* mode) {
  return get(handle, &Handle::atomics, mode);
}

PRISM_EXPORT cb::Status cublasSetSmCountTarget(Handle* handle, int target) {
  if (target < 0) return cb::invalid_value;
  return set(handle, &Handle::sm_target, target);
}

PRISM_EXPORT cb::Status cublasGetSmCountTarget(const Handle* handle, int* target) {
  return get(handle, &Handle::sm_target, target);
}

PRISM_EXPORT cb::Status cublasGetVersion_v2(const Handle*, int* version) {
  if (version == nullptr) return cb::invalid_value;
  *version = cb::version;
  return cb::success;
}

PRISM_EXPORT cb::Status cublasGetProperty(int property, int* value) {
  if (value == nullptr || property < 0 || property > 2) return cb::invalid_value;
  const int parts[] = {cb::version / 10000, cb::version / 100 % 100, cb::version % 100};
  *value = parts[property];
  return cb::success;
}

PRISM_EXPORT std::size_t cublasGetCudartVersion() { return 13000; }

PRISM_EXPORT const char* cublasGetStatusName(cb::Status status) {
  return prism::standins::blas::status_name(status);
}

PRISM_EXPORT const char* cublasGetStatusString(cb::Status status) {
  return prism::standins::blas::status_text(status);
}

}  // extern "C"
