#include <algorithm>
#include <utility>

#include "vgpu/standins/cudart/cudart.h"
#include "vgpu/standins/device_description.h"

using namespace prism;
using namespace prism::standins;
using vgpu::Runtime;

PRISM_CUDART int cudaStreamCreateWithPriority(void** stream, unsigned flags,
                                              int priority) noexcept {
  if (stream == nullptr || flags > abi::stream_non_blocking) return result(abi::invalid_value);
  *stream = Runtime::get().create_stream(
      flags, std::clamp(priority, greatest_priority, least_priority), current_device());
  return abi::success;
}
PRISM_CUDART int cudaStreamCreateWithFlags(void** stream, unsigned flags) noexcept {
  return cudaStreamCreateWithPriority(stream, flags, least_priority);
}
PRISM_CUDART int cudaStreamCreate(void** stream) noexcept {
  return cudaStreamCreateWithPriority(stream, 0, least_priority);
}
PRISM_CUDART int cudaStreamDestroy(void* stream) noexcept {
  return result(Runtime::get().destroy_stream(stream));
}
PRISM_CUDART int cudaStreamGetPriority(void* stream, int* priority) noexcept {
  const auto answer = Runtime::get().stream_priority(stream);
  if (!answer) return result(abi::invalid_resource_handle);
  *priority = *answer;
  return abi::success;
}
PRISM_CUDART int cudaStreamGetFlags(void* stream, unsigned* flags) noexcept {
  const auto answer = Runtime::get().stream_flags(stream);
  if (!answer) return result(abi::invalid_resource_handle);
  *flags = *answer;
  return abi::success;
}
PRISM_CUDART int cudaStreamGetDevice(void* stream, int* index) noexcept {
  const auto answer = Runtime::get().stream_device(stream);
  if (!answer) return result(abi::invalid_resource_handle);
  *index = *answer;
  return abi::success;
}
PRISM_CUDART int cudaStreamSynchronize(void* stream) noexcept {
  return result(Runtime::get().synchronize_stream(stream));
}
PRISM_CUDART int cudaStreamQuery(void* stream) noexcept {
  return result(Runtime::get().query_stream(stream));
}
PRISM_CUDART int cudaStreamWaitEvent(void* stream, void* event, unsigned) noexcept {
  return result(Runtime::get().wait(stream, event));
}

PRISM_CUDART int cudaLaunchHostFunc(void* stream, void (*function)(void*), void* data) noexcept {
  if (function == nullptr) return result(abi::invalid_value);
  return result(Runtime::get().host_callback(stream, [function, data] { function(data); }));
}
PRISM_CUDART int cudaStreamAddCallback(void* stream, void (*function)(void*, int, void*),
                                       void* data, unsigned) noexcept {
  if (function == nullptr) return result(abi::invalid_value);
  return result(Runtime::get().host_callback(
      stream, [stream, function, data] { function(stream, abi::success, data); }));
}

// Streams are never captured: cudaStreamBeginCapture and its kin are refused by name.
PRISM_CUDART int cudaStreamIsCapturing(void* stream, int* status) noexcept {
  if (!Runtime::get().stream_device(stream)) return result(abi::invalid_resource_handle);
  *status = abi::capture_none;
  return abi::success;
}
PRISM_CUDART int cudaStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id,
                                          void** graph, const void** dependencies,
                                          const void** edges, std::size_t* count) noexcept {
  if (!Runtime::get().stream_device(stream)) return result(abi::invalid_resource_handle);
  if (status != nullptr) *status = abi::capture_none;
  if (id != nullptr) *id = 0;
  if (graph != nullptr) *graph = nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = 0;
  return abi::success;
}
PRISM_CUDART int cudaThreadExchangeStreamCaptureMode(int* mode) noexcept {
  thread_local int current = 0;  // global
  if (mode == nullptr) return result(abi::invalid_value);
  std::swap(*mode, current);
  return abi::success;
}
