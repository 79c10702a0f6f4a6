// Kernels that are loaded at run time, as Triton loads them: names and launches, no code.
#include <array>
#include <mutex>
#include <string>
#include <unordered_set>

#include "vgpu/device/kernels.h"
#include "vgpu/standins/device_description.h"
#include "vgpu/standins/driver/driver.h"

using namespace prism;
using namespace prism::standins;
using vgpu::Runtime;

namespace {

struct Module {
  std::mutex mutex;
  std::unordered_set<std::string> kernels;  // a function's handle is the address of its name
};

int load(void** module) {
  if (module == nullptr) return driver::invalid_value;
  *module = new Module;
  return driver::success;
}

int launch(const void* function, const std::array<std::uint32_t, 3>& grid,
           const std::array<std::uint32_t, 3>& block, std::uint32_t shared_bytes, void* stream,
           void** arguments) {
  if (!Runtime::get().stream_device(stream)) return driver::invalid_handle;
  const std::uint64_t threads = std::uint64_t{block[0]} * block[1] * block[2];
  if (threads == 0 || threads > max_threads_per_block || grid[0] == 0 || grid[1] == 0 ||
      grid[2] == 0 || grid[0] > 2147483647U || grid[1] > 65535 || grid[2] > 65535 ||
      shared_bytes > static_cast<std::uint32_t>(
                         vgpu::Session::get().options().device.shared_per_block_optin)) {
    return driver::invalid_value;
  }
  KernelShape shape;
  shape.grid = grid;
  shape.block = block;
  shape.shared_bytes = shared_bytes;
  return vgpu::Session::get().launch(stream, function, shape, arguments) ? driver::success
                                                                         : driver::invalid_handle;
}

}  // namespace

PRISM_CUDA int cuModuleLoad(void** module, const char*) noexcept { return load(module); }
PRISM_CUDA int cuModuleLoadData(void** module, const void*) noexcept { return load(module); }
PRISM_CUDA int cuModuleLoadDataEx(void** module, const void*, unsigned, int*, void**) noexcept {
  return load(module);
}
// Names stay, because the record may still hold them.
PRISM_CUDA int cuModuleUnload(void*) noexcept { return driver::success; }
PRISM_CUDA int cuModuleGetFunction(void** function, void* module, const char* name) noexcept {
  if (function == nullptr || module == nullptr || name == nullptr) return driver::invalid_value;
  auto* loaded = static_cast<Module*>(module);
  const std::lock_guard lock(loaded->mutex);
  const auto [it, added] = loaded->kernels.emplace(name);
  *function = const_cast<char*>(it->c_str());
  if (added) vgpu::FunctionNames::get().add(*function, name);
  return driver::success;
}

PRISM_CUDA int cuFuncGetAttribute(int* value, int attribute, void*) noexcept {
  const DeviceProfile& device = vgpu::Session::get().options().device;
  switch (attribute) {
    case driver::function_max_threads:
      *value = max_threads_per_block;
      break;
    case driver::function_registers:
      *value = registers_per_thread;
      break;
    case driver::function_ptx_version:
    case driver::function_binary_version:
      *value = device.compute_major * 10 + device.compute_minor;
      break;
    case driver::function_max_dynamic_shared:
      *value = device.shared_per_block_optin;
      break;
    default:
      *value = 0;  // static shared, constant and local memory
  }
  return driver::success;
}
PRISM_CUDA int cuFuncSetAttribute(void*, int, int) noexcept { return driver::success; }
PRISM_CUDA int cuFuncSetCacheConfig(void*, int) noexcept { return driver::success; }
PRISM_CUDA int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int threads,
                                                           std::size_t shared_bytes) noexcept {
  if (blocks == nullptr || threads <= 0) return driver::invalid_value;
  *blocks = active_blocks(threads, shared_bytes);
  return driver::success;
}

PRISM_CUDA int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                              unsigned block_x, unsigned block_y, unsigned block_z,
                              unsigned shared_bytes, void* stream, void** arguments,
                              void**) noexcept {
  return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes,
                stream, arguments);
}
PRISM_CUDA int cuLaunchCooperativeKernel(void* function, unsigned grid_x, unsigned grid_y,
                                         unsigned grid_z, unsigned block_x, unsigned block_y,
                                         unsigned block_z, unsigned shared_bytes, void* stream,
                                         void** arguments) noexcept {
  return launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes,
                stream, arguments);
}
PRISM_CUDA int cuLaunchKernelEx(const driver::LaunchConfig* config, void* function,
                                void** arguments, void**) noexcept {
  if (config == nullptr) return driver::invalid_value;
  return launch(function, {config->grid[0], config->grid[1], config->grid[2]},
                {config->block[0], config->block[1], config->block[2]}, config->shared_bytes,
                config->stream, arguments);
}
