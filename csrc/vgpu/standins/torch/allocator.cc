// Watches torch's caching allocator: libc10_cuda reports every block it hands out and takes back
// through an undefined symbol of libc10, which the first library that defines it answers. The same
// on a real GPU as on the virtual one: where a recording of a real GPU is under way, it is told.
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>

#include "device/cupti/recording.h"
#include "vgpu/device/runtime.h"
#include "vgpu/standins/standin.h"

namespace c10 {

struct Device {  // as torch lays it out: type and index, a byte each
  std::int8_t type;
  std::int8_t index;
};

PRISM_EXPORT void reportMemoryUsageToProfiler(void* address, std::int64_t bytes,
                                              std::size_t allocated, std::size_t reserved,
                                              Device device);

void reportMemoryUsageToProfiler(void* address, std::int64_t bytes, std::size_t allocated,
                                 std::size_t reserved, Device device) {
  constexpr std::int8_t cuda = 1;
  prism::device::cupti::Recording& recording = prism::device::cupti::Recording::get();
  if (device.type == cuda && recording.active()) {
    if (bytes > 0) recording.block_allocated(bytes);
    if (bytes < 0) recording.block_freed(-bytes);
  } else if (device.type == cuda) {
    prism::vgpu::Runtime& runtime = prism::vgpu::Runtime::get();
    if (bytes > 0) {
      runtime.block_allocated(address, bytes);
    } else if (bytes < 0) {
      runtime.block_freed(-bytes);
    }
  }
  using Report = void (*)(void*, std::int64_t, std::size_t, std::size_t, Device);
  static const auto next = [] {
    void* library = dlopen("libc10.so", RTLD_NOW | RTLD_NOLOAD);
    return reinterpret_cast<Report>(
        library == nullptr
            ? nullptr
            : dlsym(library, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"));
  }();
  if (next != nullptr && next != &reportMemoryUsageToProfiler) {
    next(address, bytes, allocated, reserved, device);
  }
}

}  // namespace c10
