// The few questions that torch asks of the management library: how many devices, which one a PCI
// address is. A device's handle is the address of its place in a table.
#include <cstdio>
#include <cstring>

#include "vgpu/abi/cudart.h"
#include "vgpu/standins/device_description.h"
#include "vgpu/standins/standin.h"

#define PRISM_NVML extern "C" PRISM_EXPORT

using namespace prism;
using namespace prism::standins;

namespace {

enum Result : int { success = 0, invalid_argument = 2, not_supported = 3, not_found = 6 };

char handles[64];

int handle_of(int device, void** handle) noexcept {
  if (!is_device_index(device) || device >= static_cast<int>(sizeof handles)) return not_found;
  *handle = &handles[device];
  return success;
}

}  // namespace

PRISM_NVML int nvmlInit_v2() noexcept { return success; }
PRISM_NVML int nvmlInit() noexcept { return success; }
PRISM_NVML int nvmlShutdown() noexcept { return success; }
PRISM_NVML int nvmlSystemGetCudaDriverVersion_v2(int* version) noexcept {
  *version = abi::cuda_version;
  return success;
}
PRISM_NVML int nvmlDeviceGetCount_v2(unsigned* count) noexcept {
  *count = static_cast<unsigned>(device_count());
  return success;
}
PRISM_NVML int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) noexcept {
  return handle_of(static_cast<int>(index), handle);
}
PRISM_NVML int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** handle) noexcept {
  unsigned domain = 0, bus = 0;
  if (address == nullptr || std::sscanf(address, "%x:%x", &domain, &bus) != 2) {
    return invalid_argument;
  }
  return handle_of(static_cast<int>(bus) - 1, handle);
}
PRISM_NVML int nvmlDeviceGetUUID(void* handle, char* text, unsigned length) noexcept {
  const auto device = static_cast<const char*>(handle) - handles;
  if (device < 0 || device >= static_cast<std::ptrdiff_t>(sizeof handles)) return invalid_argument;
  unsigned char u[16];
  device_uuid(static_cast<int>(device), u);
  std::snprintf(text, length,
                "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0],
                u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
                u[14], u[15]);
  return success;
}
PRISM_NVML int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) noexcept {
  *count = 0;
  return success;
}
// No multi-node NVLink fabric: torch then shares no memory handles over it.
PRISM_NVML int nvmlDeviceGetGpuFabricInfoV(void*, void*) noexcept { return not_supported; }
PRISM_NVML const char* nvmlErrorString(int error) noexcept {
  return error == success ? "success" : "not supported by prismcore's virtual GPU";
}
