#include "intercept/real_library.h"

#include <dlfcn.h>

#include "base/error.h"

namespace prism::intercept {

namespace {

std::string reason() {
  const char* text = dlerror();
  return text == nullptr ? "no reason given" : text;
}

template <class Function>
void find(void* handle, const char* name, bool needed, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(handle, name));
  if (function == nullptr && needed) {
    throw NcclError(std::string("the loaded NCCL has no ") + name +
                    "; expected NCCL 2.19 or later, as torch brings it");
  }
}

}  // namespace

std::unique_ptr<const RealLibrary> RealLibrary::open(const char* path) {
  const char* const name = path == nullptr ? "libnccl.so.2" : path;
  void* const handle = dlopen(name, path == nullptr ? RTLD_NOW | RTLD_NOLOAD : RTLD_NOW);
  if (handle == nullptr) {
    throw NcclError(std::string("NCCL (") + name + ") is not loaded: " + reason() +
                    "; import a torch with NCCL first");
  }
  std::unique_ptr<RealLibrary> library(new RealLibrary(handle));
#define PRISM_REAL_NCCL_FIND(name, needed, result, arguments) \
  find(handle, "pnccl" #name, needed, library->name);
  PRISM_REAL_NCCL(PRISM_REAL_NCCL_FIND)
#undef PRISM_REAL_NCCL_FIND
  return library;
}

RealLibrary::~RealLibrary() { dlclose(handle_); }

}  // namespace prism::intercept
