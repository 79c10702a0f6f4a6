#include "vgpu/standins/device_description.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "vgpu/device/session.h"

namespace prism::standins {
namespace {

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

std::optional<int> device_attribute(int attribute, int device) noexcept {
  const DeviceProfile& p = profile();
  switch (attribute) {
    case 1:
    case 2:
    case 3:
      return max_threads_per_block;
    case 4:
      return 64;  // block z
    case 5:
      return 2147483647;  // grid x
    case 6:
    case 7:
      return 65535;  // grid y, z
    case 8:
      return default_shared_per_block;
    case 9:
      return 65536;  // constant memory
    case 10:
      return 32;  // warp
    case 11:
      return 2147483647;  // pitch
    case 12:
    case 82:
      return registers_per_sm;
    case 13:
      return p.clock_khz;
    case 14:
      return 512;  // texture alignment
    case 15:
    case 19:
    case 31:
    case 41:
    case 78:
    case 79:
    case 80:
    case 90:
    case 95:
    case 99:
      return 1;  // overlap, host mapping, concurrent kernels, unified addresses, priorities, L1
                 // caching, preemption, cooperative launch, host registration
    case 16:
      return p.sms;
    case 32:
      return 1;  // ECC
    case 33:
      return device + 1;  // PCI bus
    case 36:
      return p.memory_clock_khz;
    case 37:
      return p.memory_bus_bits;
    case 38:
      return static_cast<int>(p.l2_bytes);
    case 39:
      return max_threads_per_sm;
    case 40:
      return 3;  // copy engines
    case 75:
      return p.compute_major;
    case 76:
      return p.compute_minor;
    case 81:
      return p.shared_per_sm;
    case 87:
      return 2;  // single to double rate
    case 97:
      return p.shared_per_block_optin;
    case 102:
      return 1;  // virtual memory management (cuMem*)
    case 106:
      return max_blocks_per_sm();
    case 111:
      return reserved_shared_per_block;
    case 120:
      return p.compute_major >= 9 ? 1 : 0;  // cluster launch
    default:
      if (attribute > 0 && attribute < 148) return 0;
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
