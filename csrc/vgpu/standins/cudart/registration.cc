// What the code that nvcc puts into every library calls before main(): kernels and device
// variables announce themselves here.
#include <mutex>
#include <string>
#include <unordered_set>

#include "vgpu/device/kernels.h"
#include "vgpu/standins/cudart/cudart.h"
#include "vgpu/standins/cudart/symbols.h"

using namespace prism;
using namespace prism::standins;

namespace {

// Code loaded at run time. A kernel's handle is the address of its name.
struct Library {
  std::mutex mutex;
  std::unordered_set<std::string> kernels;
};

}  // namespace

PRISM_CUDART void** __cudaRegisterFatBinary(void* binary) noexcept { return new void*(binary); }
PRISM_CUDART void __cudaRegisterFatBinaryEnd(void**) noexcept {}
PRISM_CUDART void __cudaUnregisterFatBinary(void** handle) noexcept { delete handle; }
PRISM_CUDART char __cudaInitModule(void**) noexcept { return 0; }
PRISM_CUDART void __cudaRegisterFunction(void**, const char* stub, char*, const char* name, int,
                                         void*, void*, void*, void*, int*) noexcept {
  vgpu::FunctionNames::get().add(stub, name);
}
PRISM_CUDART void __cudaRegisterVar(void**, char* symbol, char*, const char*, int,
                                    std::size_t bytes, int, int) noexcept {
  add_symbol(symbol, bytes);
}

PRISM_CUDART int cudaLibraryLoadData(void** library, const void* code, int*, void**, unsigned, int*,
                                     void**, unsigned) noexcept {
  if (library == nullptr || code == nullptr) return result(abi::invalid_value);
  *library = new Library;
  return abi::success;
}
// Kernels of it may still be named by the record: they stay.
PRISM_CUDART int cudaLibraryUnload(void*) noexcept { return abi::success; }
PRISM_CUDART int cudaLibraryGetKernel(void** kernel, void* library, const char* name) noexcept {
  if (kernel == nullptr || library == nullptr || name == nullptr) {
    return result(abi::invalid_value);
  }
  auto* loaded = static_cast<Library*>(library);
  const std::lock_guard lock(loaded->mutex);
  const auto [it, added] = loaded->kernels.emplace(name);
  *kernel = const_cast<char*>(it->c_str());
  if (added) vgpu::FunctionNames::get().add(*kernel, name);
  return abi::success;
}
