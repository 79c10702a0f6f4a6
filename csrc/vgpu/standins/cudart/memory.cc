#include "vgpu/standins/cudart/cudart.h"

using namespace prism;
using namespace prism::standins;
using vgpu::Runtime;

PRISM_CUDART int cudaMalloc(void** address, std::size_t bytes) noexcept {
  if (address == nullptr) return result(abi::invalid_value);
  *address = nullptr;
  if (bytes == 0) return abi::success;
  if (bytes > static_cast<std::size_t>(INT64_MAX)) return result(abi::memory_allocation);
  *address = Runtime::get().allocate(static_cast<std::int64_t>(bytes), current_device());
  return *address != nullptr ? abi::success : result(abi::memory_allocation);
}
PRISM_CUDART int cudaFree(void* address) noexcept {
  if (address == nullptr) return abi::success;
  forget_pool_block(address);  // memory of cudaMallocAsync may be freed this way too
  return Runtime::get().free(address) ? abi::success : result(abi::invalid_value);
}
PRISM_CUDART int cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total) noexcept {
  const vgpu::MemoryUse use = Runtime::get().memory(current_device());
  *free_bytes = static_cast<std::size_t>(use.free_bytes);
  *total = static_cast<std::size_t>(use.total_bytes);
  return abi::success;
}

PRISM_CUDART int cudaHostAlloc(void** address, std::size_t bytes, unsigned) noexcept {
  if (address == nullptr) return result(abi::invalid_value);
  *address = nullptr;
  if (bytes == 0) return abi::success;
  if (bytes > static_cast<std::size_t>(INT64_MAX)) return result(abi::memory_allocation);
  *address = Runtime::get().allocate_pinned(static_cast<std::int64_t>(bytes));
  return *address != nullptr ? abi::success : result(abi::memory_allocation);
}
PRISM_CUDART int cudaMallocHost(void** address, std::size_t bytes) noexcept {
  return cudaHostAlloc(address, bytes, 0);
}
PRISM_CUDART int cudaFreeHost(void* address) noexcept {
  if (address == nullptr || Runtime::get().free_pinned(address)) return abi::success;
  return result(abi::invalid_value);
}
PRISM_CUDART int cudaHostRegister(void* address, std::size_t bytes, unsigned) noexcept {
  if (address == nullptr || bytes == 0 ||
      bytes > UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(address) ||
      bytes > static_cast<std::size_t>(INT64_MAX)) {
    return result(abi::invalid_value);
  }
  return Runtime::get().register_pinned(address, static_cast<std::int64_t>(bytes))
             ? abi::success
             : result(abi::host_memory_already_registered);
}
PRISM_CUDART int cudaHostUnregister(void* address) noexcept {
  return Runtime::get().unregister_pinned(address) ? abi::success
                                                   : result(abi::host_memory_not_registered);
}
PRISM_CUDART int cudaHostGetDevicePointer(void** device, void* host, unsigned) noexcept {
  if (device == nullptr) return result(abi::invalid_value);
  if (Runtime::get().find(host).where != vgpu::AddressInfo::Where::pinned) {
    return result(abi::invalid_value);
  }
  *device = host;  // one address space
  return abi::success;
}

PRISM_CUDART int cudaPointerGetAttributes(abi::PointerAttributes* out,
                                          const void* address) noexcept {
  if (out == nullptr) return result(abi::invalid_value);
  const vgpu::AddressInfo info = Runtime::get().find(address);
  auto* plain = const_cast<void*>(address);
  switch (info.where) {
    case vgpu::AddressInfo::Where::device:
      *out = {abi::device, info.device, plain, nullptr, {}};
      break;
    case vgpu::AddressInfo::Where::pinned:
      *out = {abi::host, current_device(), plain, plain, {}};
      break;
    case vgpu::AddressInfo::Where::unregistered:
      *out = {abi::unregistered, -2, nullptr, plain, {}};
      break;
  }
  return abi::success;
}
