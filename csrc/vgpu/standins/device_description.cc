#include "vgpu/standins/device_description.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "vgpu/abi/cudart.h"
#include "vgpu/device/session.h"

namespace prism::standins {
namespace {

namespace attribute = abi::attribute;

const DeviceProfile& profile() noexcept { return vgpu::Session::get().options().device; }

}  // namespace

int device_count() noexcept {
  return static_cast<int>(vgpu::Session::get().options().device_count);
}

bool is_device_index(int device) noexcept { return device >= 0 && device < device_count(); }

// CUDA programming guide, table "Technical Specifications per Compute Capability".
int max_blocks_per_sm() noexcept {
  const DeviceProfile& p = profile();
  if (p.compute_major == 8 && p.compute_minor == 6) return 16;
  if (p.compute_major == 8 && p.compute_minor == 9) return 24;
  return 32;
}

std::optional<int> device_attribute(int number, int device) noexcept {
  const DeviceProfile& p = profile();
  switch (number) {
    case attribute::max_threads_per_block:
    case attribute::max_block_x:
    case attribute::max_block_y:
      return max_threads_per_block;
    case attribute::max_block_z:
      return 64;
    case attribute::max_grid_x:
      return 2147483647;
    case attribute::max_grid_y:
    case attribute::max_grid_z:
      return 65535;
    case attribute::shared_per_block:
      return default_shared_per_block;
    case attribute::constant_memory:
      return 65536;
    case attribute::warp_size:
      return 32;
    case attribute::max_pitch:
      return 2147483647;
    case attribute::registers_per_block:
    case attribute::registers_per_sm:
      return registers_per_sm;
    case attribute::clock_khz:
      return p.clock_khz;
    case attribute::texture_alignment:
      return 512;
    case attribute::overlap:
    case attribute::can_map_host_memory:
    case attribute::concurrent_kernels:
    case attribute::unified_addressing:
    case attribute::stream_priorities:
    case attribute::global_l1:
    case attribute::local_l1:
    case attribute::compute_preemption:
    case attribute::cooperative_launch:
    case attribute::host_register:
      return 1;
    case attribute::sms:
      return p.sms;
    case attribute::ecc:
      return 1;
    case attribute::pci_bus:
      return device + 1;
    case attribute::memory_clock_khz:
      return p.memory_clock_khz;
    case attribute::memory_bus_bits:
      return p.memory_bus_bits;
    case attribute::l2_bytes:
      return static_cast<int>(p.l2_bytes);
    case attribute::max_threads_per_sm:
      return max_threads_per_sm;
    case attribute::copy_engines:
      return 3;
    case attribute::major:
      return p.compute_major;
    case attribute::minor:
      return p.compute_minor;
    case attribute::shared_per_sm:
      return p.shared_per_sm;
    case attribute::single_to_double:
      return 2;
    case attribute::shared_per_block_optin:
      return p.shared_per_block_optin;
    case attribute::virtual_memory:
    case attribute::memory_pools:
      return 1;
    case attribute::max_blocks_per_sm:
      return max_blocks_per_sm();
    case attribute::reserved_shared_per_block:
      return reserved_shared_per_block;
    case attribute::cluster_launch:
      return p.compute_major >= 9 ? 1 : 0;
    default:
      if (number > 0 && number <= attribute::last) return 0;
      return std::nullopt;
  }
}

void device_uuid(int device, unsigned char (&uuid)[16]) noexcept {
  const auto& options = vgpu::Session::get().options();
  std::memset(uuid, 0, sizeof uuid);
  std::memcpy(uuid, "prismcore", 9);
  const std::uint32_t node = options.rank / std::max(options.device_count, 1U);
  std::memcpy(uuid + 10, &node, 4);
  uuid[15] = static_cast<unsigned char>(device + 1);
}

void pci_bus_id(int device, char* text, int length) noexcept {
  std::snprintf(text, static_cast<std::size_t>(std::max(length, 0)), "0000:%02x:00.0", device + 1);
}

int active_blocks(int block_threads, std::size_t shared_bytes) noexcept {
  if (block_threads <= 0 || block_threads > max_threads_per_block) return 0;
  const int threads = (block_threads + 31) / 32 * 32;
  const auto per_block = static_cast<std::int64_t>(shared_bytes) + reserved_shared_per_block;
  const std::int64_t by_shared = profile().shared_per_sm / per_block;
  return static_cast<int>(
      std::min<std::int64_t>({max_blocks_per_sm(), max_threads_per_sm / threads,
                              registers_per_sm / (registers_per_thread * threads), by_shared}));
}

}  // namespace prism::standins
