#include <vector>

#include "vgpu/device/kernels.h"
#include "vgpu/standins/cudart/cudart.h"
#include "vgpu/standins/device_description.h"

using namespace prism;
using namespace prism::standins;

namespace {

Error launch(const void* function, const abi::Dim3& grid, const abi::Dim3& block,
             std::size_t shared_bytes, void* stream, void** arguments) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > max_threads_per_block || block.z > 64 || grid.x == 0 ||
      grid.y == 0 || grid.z == 0 || grid.x > 2147483647U || grid.y > 65535 || grid.z > 65535) {
    return result(abi::invalid_configuration);
  }
  if (!vgpu::Runtime::get().stream_device(stream)) return result(abi::invalid_resource_handle);
  vgpu::Session& session = vgpu::Session::get();
  if (shared_bytes > static_cast<std::size_t>(session.options().device.shared_per_block_optin)) {
    return result(abi::invalid_value);
  }
  KernelShape shape;
  shape.grid = {grid.x, grid.y, grid.z};
  shape.block = {block.x, block.y, block.z};
  shape.shared_bytes = static_cast<std::uint32_t>(shared_bytes);
  return session.launch(stream, function, shape, arguments) ? abi::success
                                                            : result(abi::invalid_device_function);
}

struct Configuration {
  abi::Dim3 grid, block;
  std::size_t shared_bytes = 0;
  void* stream = nullptr;
};
thread_local std::vector<Configuration> configurations;  // of <<<>>> launches being built

}  // namespace

PRISM_CUDART int cudaLaunchKernel(const void* function, abi::Dim3 grid, abi::Dim3 block,
                                  void** arguments, std::size_t shared_bytes,
                                  void* stream) noexcept {
  return launch(function, grid, block, shared_bytes, stream, arguments);
}
PRISM_CUDART int cudaLaunchCooperativeKernel(const void* function, abi::Dim3 grid, abi::Dim3 block,
                                             void** arguments, std::size_t shared_bytes,
                                             void* stream) noexcept {
  return launch(function, grid, block, shared_bytes, stream, arguments);
}
PRISM_CUDART int cudaLaunchKernelExC(const abi::LaunchConfig* config, const void* function,
                                     void** arguments) noexcept {
  if (config == nullptr) return result(abi::invalid_value);
  return launch(function, config->grid, config->block, config->shared_bytes, config->stream,
                arguments);
}
PRISM_CUDART int __cudaLaunchKernel(void* kernel, abi::Dim3 grid, abi::Dim3 block, void** arguments,
                                    std::size_t shared_bytes, void* stream) noexcept {
  return launch(kernel, grid, block, shared_bytes, stream, arguments);
}
// A kernel's handle is the address of its host stub.
PRISM_CUDART int __cudaGetKernel(void** kernel, const void* function) noexcept {
  *kernel = const_cast<void*>(function);
  return abi::success;
}
PRISM_CUDART int cudaGetKernel(void** kernel, const void* function) noexcept {
  return __cudaGetKernel(kernel, function);
}

PRISM_CUDART unsigned __cudaPushCallConfiguration(abi::Dim3 grid, abi::Dim3 block,
                                                  std::size_t shared_bytes, void* stream) noexcept {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
PRISM_CUDART int __cudaPopCallConfiguration(abi::Dim3* grid, abi::Dim3* block,
                                            std::size_t* shared_bytes, void* stream) noexcept {
  if (configurations.empty()) return result(abi::missing_configuration);
  const Configuration top = configurations.back();
  configurations.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<void**>(stream) = top.stream;
  return abi::success;
}

PRISM_CUDART int cudaFuncGetAttributes(abi::FunctionAttributes* out, const void*) noexcept {
  const DeviceProfile& device = vgpu::Session::get().options().device;
  *out = {};
  out->max_threads_per_block = max_threads_per_block;
  out->registers = registers_per_thread;
  out->ptx_version = out->binary_version = device.compute_major * 10 + device.compute_minor;
  out->max_dynamic_shared_bytes = device.shared_per_block_optin;
  return abi::success;
}
PRISM_CUDART int cudaFuncSetAttribute(const void*, int attribute, int value) noexcept {
  const bool fits =
      attribute != abi::function_max_dynamic_shared ||
      (value >= 0 && value <= vgpu::Session::get().options().device.shared_per_block_optin);
  return fits ? abi::success : result(abi::invalid_value);
}
PRISM_CUDART int cudaFuncSetCacheConfig(const void*, int) noexcept { return abi::success; }
PRISM_CUDART int cudaKernelSetAttributeForDevice(void*, int, int, int) noexcept {
  return abi::success;
}
PRISM_CUDART int cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*,
                                                                        int threads,
                                                                        std::size_t shared_bytes,
                                                                        unsigned) noexcept {
  if (blocks == nullptr || threads <= 0) return result(abi::invalid_value);
  *blocks = active_blocks(threads, shared_bytes);
  return abi::success;
}
PRISM_CUDART int cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function,
                                                               int threads,
                                                               std::size_t shared_bytes) noexcept {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads,
                                                                shared_bytes, 0);
}
