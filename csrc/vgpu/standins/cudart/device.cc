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
  namespace attribute = abi::attribute;
  const auto number = [index](int which) { return device_attribute(which, index).value_or(0); };
  *out = {};
  std::strncpy(out->name, profile.name.c_str(), sizeof out->name - 1);
  device_uuid(index, out->uuid);
  out->total_memory = static_cast<std::uint64_t>(profile.memory_bytes);
  out->shared_per_block = default_shared_per_block;
  out->registers_per_block = number(attribute::registers_per_block);
  out->warp_size = number(attribute::warp_size);
  out->max_pitch = static_cast<std::uint64_t>(number(attribute::max_pitch));
  out->max_threads_per_block = max_threads_per_block;
  for (int axis = 0; axis < 3; ++axis) {
    out->max_block[axis] = number(attribute::max_block_x + axis);
    out->max_grid[axis] = number(attribute::max_grid_x + axis);
  }
  out->constant_memory = static_cast<std::uint64_t>(number(attribute::constant_memory));
  out->major = profile.compute_major;
  out->minor = profile.compute_minor;
  out->texture_alignment = static_cast<std::uint64_t>(number(attribute::texture_alignment));
  out->sms = profile.sms;
  out->can_map_host_memory = number(attribute::can_map_host_memory);
  out->concurrent_kernels = number(attribute::concurrent_kernels);
  out->ecc = number(attribute::ecc);
  out->pci_bus = number(attribute::pci_bus);
  out->copy_engines = number(attribute::copy_engines);
  out->unified_addressing = number(attribute::unified_addressing);
  out->memory_bus_bits = profile.memory_bus_bits;
  out->l2_bytes = static_cast<std::int32_t>(profile.l2_bytes);
  out->max_threads_per_sm = max_threads_per_sm;
  out->stream_priorities = number(attribute::stream_priorities);
  out->global_l1 = number(attribute::global_l1);
  out->local_l1 = number(attribute::local_l1);
  out->shared_per_sm = static_cast<std::uint64_t>(profile.shared_per_sm);
  out->registers_per_sm = registers_per_sm;
  out->compute_preemption = number(attribute::compute_preemption);
  out->cooperative_launch = number(attribute::cooperative_launch);
  out->shared_per_block_optin = static_cast<std::uint64_t>(profile.shared_per_block_optin);
  out->max_blocks_per_sm = max_blocks_per_sm();
  out->reserved_shared_per_block = reserved_shared_per_block;
  out->host_register = number(attribute::host_register);
  out->memory_pools = number(attribute::memory_pools);
  out->cluster_launch = number(attribute::cluster_launch);
  return abi::success;
}

PRISM_CUDART int cudaDeviceCanAccessPeer(int* can, int index, int peer) noexcept {
  if (!is_device_index(index) || !is_device_index(peer)) return result(abi::invalid_device);
  *can = index == peer ? 0 : 1;
  return abi::success;
}
PRISM_CUDART int cudaDeviceEnablePeerAccess(int peer, unsigned) noexcept {
  return is_device_index(peer) && peer != current_device() ? abi::success
                                                           : result(abi::invalid_device);
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
// They switch profiling tools on and off; there is none.
PRISM_CUDART int cudaProfilerStart() noexcept { return abi::success; }
PRISM_CUDART int cudaProfilerStop() noexcept { return abi::success; }
