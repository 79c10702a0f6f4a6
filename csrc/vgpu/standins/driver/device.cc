// Devices, contexts, errors and look-up by name.
#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "vgpu/abi/cudart.h"
#include "vgpu/standins/device_description.h"
#include "vgpu/standins/driver/driver.h"

using namespace prism;
using namespace prism::standins;
using vgpu::Runtime;

namespace {

// A context is the device's primary one, named by an address inside this table.
char contexts[64];

void* context_of(int device) noexcept { return &contexts[device]; }
int device_of(const void* context) noexcept {
  const auto index = static_cast<const char*>(context) - contexts;
  return index >= 0 && index < static_cast<std::ptrdiff_t>(sizeof contexts) &&
                 is_device_index(static_cast<int>(index))
             ? static_cast<int>(index)
             : -1;
}

thread_local std::vector<int> pushed;  // devices to come back to

// By CUlimit: stack of a thread, print buffer, heap; then what has no default here.
std::atomic<std::size_t> limits[16] = {1024, std::size_t{1} << 20, std::size_t{8} << 20};

struct Text {
  int code;
  const char* name;
  const char* text;
};
constexpr Text texts[] = {
    {driver::success, "CUDA_SUCCESS", "no error"},
    {driver::invalid_value, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {driver::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {driver::invalid_device, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {driver::invalid_context, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {driver::invalid_handle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {driver::not_found, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {driver::not_ready, "CUDA_ERROR_NOT_READY", "device not ready"},
    {driver::not_supported, "CUDA_ERROR_NOT_SUPPORTED",
     "operation not supported by prismcore's virtual GPU"},
};

int text_of(int code, const char** out, const char* Text::* part) noexcept {
  for (const Text& text : texts) {
    if (text.code == code) {
      *out = text.*part;
      return driver::success;
    }
  }
  *out = nullptr;
  return driver::invalid_value;
}

void* look_up(const char* symbol) {
  Dl_info self;
  if (dladdr(reinterpret_cast<void*>(&look_up), &self) == 0) return nullptr;
  static void* library = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
    if (void* found = dlsym(library, (std::string(symbol) + suffix).c_str())) return found;
  }
  return nullptr;
}

}  // namespace

PRISM_CUDA int cuInit(unsigned) noexcept { return driver::success; }
PRISM_CUDA int cuDriverGetVersion(int* version) noexcept {
  *version = abi::cuda_version;
  return driver::success;
}
PRISM_CUDA int cuDeviceGetCount(int* count) noexcept {
  *count = device_count();
  return driver::success;
}
PRISM_CUDA int cuDeviceGet(int* device, int ordinal) noexcept {
  if (!is_device_index(ordinal)) return driver::invalid_device;
  *device = ordinal;
  return driver::success;
}
PRISM_CUDA int cuDeviceGetName(char* name, int length, int device) noexcept {
  if (!is_device_index(device) || length <= 0) return driver::invalid_value;
  std::strncpy(name, vgpu::Session::get().options().device.name.c_str(),
               static_cast<std::size_t>(length) - 1);
  name[length - 1] = '\0';
  return driver::success;
}
PRISM_CUDA int cuDeviceTotalMem_v2(std::size_t* bytes, int device) noexcept {
  if (!is_device_index(device)) return driver::invalid_device;
  *bytes = static_cast<std::size_t>(vgpu::Session::get().options().device.memory_bytes);
  return driver::success;
}
PRISM_CUDA int cuDeviceGetUuid_v2(unsigned char (*uuid)[16], int device) noexcept {
  if (!is_device_index(device)) return driver::invalid_device;
  device_uuid(device, *uuid);
  return driver::success;
}
PRISM_CUDA int cuDeviceGetPCIBusId(char* text, int length, int device) noexcept {
  if (!is_device_index(device)) return driver::invalid_device;
  pci_bus_id(device, text, length);
  return driver::success;
}
PRISM_CUDA int cuDeviceGetAttribute(int* value, int attribute, int device) noexcept {
  if (!is_device_index(device)) return driver::invalid_device;
  const auto answer = device_attribute(attribute, device);
  if (!answer) return driver::invalid_value;
  *value = *answer;
  return driver::success;
}

PRISM_CUDA int cuDevicePrimaryCtxRetain(void** context, int device) noexcept {
  if (!is_device_index(device)) return driver::invalid_device;
  *context = context_of(device);
  return driver::success;
}
PRISM_CUDA int cuDevicePrimaryCtxRelease_v2(int device) noexcept {
  return is_device_index(device) ? driver::success : driver::invalid_device;
}
PRISM_CUDA int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) noexcept {
  if (!is_device_index(device)) return driver::invalid_device;
  *flags = 0;
  *active = 1;
  return driver::success;
}
PRISM_CUDA int cuCtxGetCurrent(void** context) noexcept {
  *context = context_of(Runtime::current_device());
  return driver::success;
}
PRISM_CUDA int cuCtxSetCurrent(void* context) noexcept {
  if (context == nullptr) return driver::success;
  const int device = device_of(context);
  if (device < 0) return driver::invalid_context;
  Runtime::set_current_device(device);
  return driver::success;
}
PRISM_CUDA int cuCtxPushCurrent_v2(void* context) noexcept {
  const int before = Runtime::current_device();
  if (context == nullptr || cuCtxSetCurrent(context) != driver::success) {
    return driver::invalid_context;
  }
  pushed.push_back(before);
  return driver::success;
}
PRISM_CUDA int cuCtxPopCurrent_v2(void** context) noexcept {
  if (context != nullptr) cuCtxGetCurrent(context);
  if (pushed.empty()) return driver::success;  // the primary context that every thread begins with
  Runtime::set_current_device(pushed.back());
  pushed.pop_back();
  return driver::success;
}
PRISM_CUDA int cuCtxGetDevice(int* device) noexcept {
  *device = Runtime::current_device();
  return driver::success;
}
// The newer form names a context; what is not one means the current.
PRISM_CUDA int cuCtxGetDevice_v2(int* device, void* context) noexcept {
  const int named = device_of(context);
  *device = named < 0 ? Runtime::current_device() : named;
  return driver::success;
}
// Sizes of stacks, heaps and print buffers of kernels that never run: kept, of no effect.
PRISM_CUDA int cuCtxSetLimit(int limit, std::size_t value) noexcept {
  if (limit < 0 || limit >= static_cast<int>(std::size(limits))) return driver::invalid_value;
  limits[limit] = value;
  return driver::success;
}
PRISM_CUDA int cuCtxGetLimit(std::size_t* value, int limit) noexcept {
  if (limit < 0 || limit >= static_cast<int>(std::size(limits))) return driver::invalid_value;
  *value = limits[limit];
  return driver::success;
}
PRISM_CUDA int cuCtxSynchronize() noexcept {
  Runtime::get().synchronize_device();
  return driver::success;
}

PRISM_CUDA int cuGetErrorString(int code, const char** text) noexcept {
  return text_of(code, text, &Text::text);
}
PRISM_CUDA int cuGetErrorName(int code, const char** text) noexcept {
  return text_of(code, text, &Text::name);
}
// The driver has no log to call back about.
PRISM_CUDA int cuLogsRegisterCallback(void*, void*, void** handle) noexcept {
  if (handle != nullptr) *handle = contexts;
  return driver::success;
}
PRISM_CUDA int cuLogsUnregisterCallback(void*) noexcept { return driver::success; }

PRISM_CUDA int cuGetProcAddress_v2(const char* symbol, void** function, int, unsigned long long,
                                   int* query) noexcept {
  if (symbol == nullptr || function == nullptr) return driver::invalid_value;
  *function = look_up(symbol);
  if (query != nullptr) *query = *function != nullptr ? 0 : 1;
  return *function != nullptr ? driver::success : driver::not_found;
}
PRISM_CUDA int cuGetProcAddress(const char* symbol, void** function, int version,
                                unsigned long long flags) noexcept {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}
// Private tables that the real runtime asks for: not emulated.
PRISM_CUDA int cuGetExportTable(const void** table, const void*) noexcept {
  if (table != nullptr) *table = nullptr;
  return driver::not_found;
}
