// Driver functions by name, from the driver's stand-in: nothing is linked.
#include <dlfcn.h>

#include <string>

#include "vgpu/standins/cudart/cudart.h"

using namespace prism;
using namespace prism::standins;

PRISM_CUDART int cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                                  unsigned long long, int* query) noexcept {
  if (symbol == nullptr || function == nullptr) return result(abi::invalid_value);
  static void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  *function = nullptr;
  for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
    if (driver == nullptr || *function != nullptr) break;
    *function = dlsym(driver, (std::string(symbol) + suffix).c_str());
  }
  if (query != nullptr) {
    *query = *function != nullptr ? abi::entry_point_found : abi::entry_point_missing;
  }
  return abi::success;
}
PRISM_CUDART int cudaGetDriverEntryPoint(const char* symbol, void** function,
                                         unsigned long long flags, int* query) noexcept {
  return cudaGetDriverEntryPointByVersion(symbol, function, abi::cuda_version, flags, query);
}

struct ChannelFormat {
  int x, y, z, w, kind;
};
PRISM_CUDART ChannelFormat cudaCreateChannelDesc(int x, int y, int z, int w, int kind) noexcept {
  return {x, y, z, w, kind};
}
