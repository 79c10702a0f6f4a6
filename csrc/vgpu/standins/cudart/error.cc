#include "vgpu/standins/cudart/cudart.h"

namespace prism::standins {
namespace {

thread_local Error remembered = abi::success;

struct Text {
  Error error;
  const char* name;
  const char* text;
};
constexpr Text texts[] = {
    {abi::success, "cudaSuccess", "no error"},
    {abi::invalid_value, "cudaErrorInvalidValue", "invalid argument"},
    {abi::memory_allocation, "cudaErrorMemoryAllocation", "out of memory"},
    {abi::invalid_configuration, "cudaErrorInvalidConfiguration", "invalid launch configuration"},
    {abi::invalid_symbol, "cudaErrorInvalidSymbol", "invalid device symbol"},
    {abi::missing_configuration, "cudaErrorMissingConfiguration", "launch was not configured"},
    {abi::invalid_device_function, "cudaErrorInvalidDeviceFunction", "kernel is not registered"},
    {abi::invalid_device, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {abi::invalid_resource_handle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {abi::not_ready, "cudaErrorNotReady", "device not ready"},
    {abi::host_memory_already_registered, "cudaErrorHostMemoryAlreadyRegistered",
     "host memory is already registered"},
    {abi::host_memory_not_registered, "cudaErrorHostMemoryNotRegistered",
     "host memory is not registered"},
    {abi::not_supported, "cudaErrorNotSupported",
     "operation not supported by prismcore's virtual GPU"},
    {abi::unknown, "cudaErrorUnknown", "unknown error"},
};

const Text& text_of(int error) noexcept {
  for (const Text& text : texts) {
    if (text.error == error) return text;
  }
  static constexpr Text other{abi::unknown, "unrecognized error code", "unrecognized error code"};
  return other;
}

}  // namespace

Error result(Error error) noexcept {
  if (error != abi::success && error != abi::not_ready) remembered = error;
  return error;
}
Error take_last_error() noexcept {
  const Error error = remembered;
  remembered = abi::success;
  return error;
}
Error last_error() noexcept { return remembered; }

}  // namespace prism::standins

using namespace prism::standins;

PRISM_CUDART int cudaGetLastError() noexcept { return take_last_error(); }
PRISM_CUDART int cudaPeekAtLastError() noexcept { return last_error(); }
PRISM_CUDART const char* cudaGetErrorName(int error) noexcept { return text_of(error).name; }
PRISM_CUDART const char* cudaGetErrorString(int error) noexcept { return text_of(error).text; }
