#include "vgpu/standins/cudart/cudart.h"

using namespace prism;
using namespace prism::standins;
using vgpu::Runtime;

PRISM_CUDART int cudaEventCreateWithFlags(void** event, unsigned flags) noexcept {
  if (event == nullptr) return result(abi::invalid_value);
  *event = Runtime::get().create_event((flags & abi::event_disable_timing) == 0);
  return abi::success;
}
PRISM_CUDART int cudaEventCreate(void** event) noexcept {
  return cudaEventCreateWithFlags(event, 0);
}
PRISM_CUDART int cudaEventDestroy(void* event) noexcept {
  return result(Runtime::get().destroy_event(event));
}
PRISM_CUDART int cudaEventRecord(void* event, void* stream) noexcept {
  return result(Runtime::get().record(event, stream));
}
PRISM_CUDART int cudaEventRecordWithFlags(void* event, void* stream, unsigned) noexcept {
  return result(Runtime::get().record(event, stream));
}
PRISM_CUDART int cudaEventSynchronize(void* event) noexcept {
  return result(Runtime::get().synchronize_event(event));
}
PRISM_CUDART int cudaEventQuery(void* event) noexcept {
  return result(Runtime::get().query_event(event));
}
PRISM_CUDART int cudaEventElapsedTime(float* milliseconds, void* start, void* end) noexcept {
  if (milliseconds == nullptr) return result(abi::invalid_value);
  return result(Runtime::get().elapsed(start, end, *milliseconds));
}
