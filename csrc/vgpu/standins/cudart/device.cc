#include <cstring>

#include "vgpu/standins/cudart/cudart.h"
#include "vgpu/standins/device_description.h"

using namespace prism;
using namespace prism::standins;

PRISM_CUDART int cudaGetDeviceCount(int* count) noexcept {
  *count = device_count();
  return abi::success;
}
PRISM_CUDART int cudaGetDevice(int* index) noexcept {
  *index = current_device();
  return abi::success;
}
PRISM_CUDART int cudaSetDevice(int index) noexcept {
  if (!is_device_index(index)) return result(abi::invalid_device);
  vgpu::Runtime::set_current_device(index);
  return abi::success;
}
PRISM_CUDART int cudaDriverGetVersion(int* version) noexcept {
  *version = abi::cuda_version;
  return abi::success;
}
PRISM_CUDART int cudaRuntimeGetVersion(int* version) noexcept {
  *version = abi::cuda_version;
  return abi::success;
}
PRISM_CUDART int cudaDeviceGetAttribute(int* value, int attribute, int index) noexcept {
  if (!is_device_index(index)) return result(abi::invalid_device);
  const auto answer = device_attribute(attribute, index);
  if (!answer) return result(abi::invalid_value);
  *value = *answer;
  return abi::success;
}

PRISM_CUDART int cudaGetDeviceProperties(abi::DeviceProperties* out, int index) noexcept {
  if (!is_device_index(index)) return result(abi::invalid_device);
  const DeviceProfile& profile = vgpu::Session::get().options().device;
  const auto number = [index](int attribute) {
    return device_attribute(attribute, index).value_or(0);
  };
  *out = {};
  std::strncpy(out->name, profile.name.c_str(), sizeof out->name - 1);
  device_uuid(index, out->uuid);
  out->total_memory = static_cast<std::uint64_t>(profile.memory_bytes);
  out->shared_per_block = default_shared_per_block;
  out->registers_per_block = number(12);
  out->warp_size = number(10);
  out->max_pitch = static_cast<std::uint64_t>(number(11));
  out->max_threads_per_block = max_threads_per_block;
  for (int axis = 0; axis < 3; ++axis) {
    out->max_block[axis] = number(2 + axis);
    out->max_grid[axis] = number(5 + axis);
  }
  out->constant_memory = static_cast<std::uint64_t>(number(9));
  out->major = profile.compute_major;
  out->minor = profile.compute_minor;
  out->texture_alignment = static_cast<std::uint64_t>(number(14));
  out->sms = profile.sms;
  out->can_map_host_memory = number(19);
  out->concurrent_kernels = number(31);
  out->ecc = number(32);
  out->pci_bus = number(33);
  out->copy_engines = number(40);
  out->unified_addressing = number(41);
  out->memory_bus_bits = profile.memory_bus_bits;
  out->l2_bytes = static_cast<std::int32_t>(profile.l2_bytes);
  out->max_threads_per_sm = max_threads_per_sm;
  out->stream_priorities = number(78);
  out->global_l1 = number(79);
  out->local_l1 = number(80);
  out->shared_per_sm = static_cast<std::uint64_t>(profile.shared_per_sm);
  out->registers_per_sm = registers_per_sm;
  out->compute_preemption = number(90);
  out->cooperative_launch = number(95);
  out->shared_per_block_optin = static_cast<std::uint64_t>(profile.shared_per_block_optin);
  out->max_blocks_per_sm = max_blocks_per_sm();
  out->reserved_shared_per_block = reserved_shared_per_block;
  out->host_register = number(99);
  out->memory_pools = number(115);
  out->cluster_launch = number(120);
  return abi::success;
}

PRISM_CUDART int cudaDeviceCanAccessPeer(int* can, int index, int peer) noexcept {
  if (!is_device_index(index) || !is_device_index(peer)) return result(abi::invalid_device);
  *can = index == peer ? 0 : 1;
  return abi::success;
}
PRISM_CUDART int cudaDeviceEnablePeerAccess(int peer, unsigned) noexcept {
  return is_device_index(peer) ? abi::success : result(abi::invalid_device);
}
PRISM_CUDART int cudaDeviceGetPCIBusId(char* text, int length, int index) noexcept {
  if (!is_device_index(index)) return result(abi::invalid_device);
  pci_bus_id(index, text, length);
  return abi::success;
}
PRISM_CUDART int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) noexcept {
  if (least != nullptr) *least = least_priority;
  if (greatest != nullptr) *greatest = greatest_priority;
  return abi::success;
}
PRISM_CUDART int cudaDeviceSynchronize() noexcept {
  vgpu::Runtime::get().synchronize_device();
  return abi::success;
}
