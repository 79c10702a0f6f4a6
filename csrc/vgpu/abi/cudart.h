// What the CUDA 13 runtime's C interface looks like in memory: own declarations of exactly what
// torch reads and writes through it. Every size, offset and number is checked against the
// headers of the installed wheel by tests/python/test_vgpu_abi.py.
#pragma once

#include <cstddef>
#include <cstdint>

namespace prism::abi {

constexpr int cuda_version = 13000;  // cudaRuntimeGetVersion, cudaDriverGetVersion

enum Error : int {
  success = 0,
  invalid_value = 1,
  memory_allocation = 2,
  invalid_configuration = 9,

  invalid_symbol = 13,
  missing_configuration = 52,
  invalid_device_function = 98,
  invalid_device = 101,
  invalid_resource_handle = 400,
  not_ready = 600,
  host_memory_already_registered = 712,
  host_memory_not_registered = 713,
  not_supported = 801,
  unknown = 999,
};

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

enum MemoryType : int { unregistered = 0, host = 1, device = 2 };
enum CaptureStatus : int { capture_none = 0 };
enum EntryPointResult : int { entry_point_found = 0, entry_point_missing = 1 };
constexpr unsigned stream_non_blocking = 1;
constexpr unsigned event_disable_timing = 2;

enum PoolAttribute : int {
  pool_reuse_first = 1,
  pool_reuse_last = 3,
  pool_release_threshold = 4,
  pool_reserved_current = 5,
  pool_reserved_high = 6,
  pool_used_current = 7,
  pool_used_high = 8,
};

constexpr int graph_memory_last = 3;  // used, used high, reserved, reserved high

// Numbers of device attributes, the runtime's and the driver's alike.
namespace attribute {
enum Number : int {
  max_threads_per_block = 1,
  max_block_x = 2,
  max_block_y = 3,
  max_block_z = 4,
  max_grid_x = 5,
  max_grid_y = 6,
  max_grid_z = 7,
  shared_per_block = 8,
  constant_memory = 9,
  warp_size = 10,
  max_pitch = 11,
  registers_per_block = 12,
  clock_khz = 13,
  texture_alignment = 14,
  overlap = 15,
  sms = 16,
  can_map_host_memory = 19,
  concurrent_kernels = 31,
  ecc = 32,
  pci_bus = 33,
  memory_clock_khz = 36,
  memory_bus_bits = 37,
  l2_bytes = 38,
  max_threads_per_sm = 39,
  copy_engines = 40,
  unified_addressing = 41,
  major = 75,
  minor = 76,
  stream_priorities = 78,
  global_l1 = 79,
  local_l1 = 80,
  shared_per_sm = 81,
  registers_per_sm = 82,
  single_to_double = 87,
  compute_preemption = 90,
  cooperative_launch = 95,
  shared_per_block_optin = 97,
  host_register = 99,
  max_blocks_per_sm = 106,
  reserved_shared_per_block = 111,
  memory_pools = 115,
  cluster_launch = 120,
  virtual_memory = 102,  // named by the driver alone
  last = 147,
};
}  // namespace attribute

struct DeviceProperties {
  char name[256];
  unsigned char uuid[16];
  char luid[8];
  std::uint32_t luid_mask;
  std::uint64_t total_memory;
  std::uint64_t shared_per_block;
  std::int32_t registers_per_block;
  std::int32_t warp_size;
  std::uint64_t max_pitch;
  std::int32_t max_threads_per_block;
  std::int32_t max_block[3];
  std::int32_t max_grid[3];
  std::uint64_t constant_memory;
  std::int32_t major, minor;
  std::uint64_t texture_alignment, texture_pitch_alignment;
  std::int32_t sms;
  std::int32_t integrated;
  std::int32_t can_map_host_memory;
  std::int32_t textures_and_surfaces[39];
  std::uint64_t surface_alignment;
  std::int32_t concurrent_kernels;
  std::int32_t ecc;
  std::int32_t pci_bus, pci_device, pci_domain;
  std::int32_t tcc_driver;
  std::int32_t copy_engines;
  std::int32_t unified_addressing;
  std::int32_t memory_bus_bits;
  std::int32_t l2_bytes;
  std::int32_t persisting_l2_bytes;
  std::int32_t max_threads_per_sm;
  std::int32_t stream_priorities;
  std::int32_t global_l1, local_l1;
  std::uint64_t shared_per_sm;
  std::int32_t registers_per_sm;
  std::int32_t managed_memory;
  std::int32_t multi_gpu_board, multi_gpu_board_group;
  std::int32_t host_atomics;
  std::int32_t pageable_access;
  std::int32_t concurrent_managed_access;
  std::int32_t compute_preemption;
  std::int32_t host_pointer_for_registered;
  std::int32_t cooperative_launch;
  std::uint64_t shared_per_block_optin;
  std::int32_t pageable_uses_host_tables, direct_managed_access;
  std::int32_t max_blocks_per_sm;
  std::int32_t access_policy_window;
  std::uint64_t reserved_shared_per_block;
  std::int32_t host_register, sparse_arrays, host_register_read_only, timeline_semaphores;
  std::int32_t memory_pools;
  std::int32_t gpu_direct[3];
  std::uint32_t pool_handle_types;
  std::int32_t deferred_mapping;
  std::int32_t ipc_events;
  std::int32_t cluster_launch;
  std::int32_t rest[64];
};
static_assert(sizeof(DeviceProperties) == 1008);

struct PointerAttributes {
  std::int32_t type;
  std::int32_t device;
  void* device_pointer;
  void* host_pointer;
  std::int64_t reserved[8];
};
static_assert(sizeof(PointerAttributes) == 88);

struct FunctionAttributes {
  std::uint64_t shared_bytes, constant_bytes, local_bytes;
  std::int32_t max_threads_per_block;
  std::int32_t registers;
  std::int32_t ptx_version, binary_version;
  std::int32_t cache_mode;
  std::int32_t max_dynamic_shared_bytes;
  std::int32_t shared_carveout;
  std::int32_t cluster[5];
  std::int32_t reserved[18];
};
static_assert(sizeof(FunctionAttributes) == 144);

constexpr int function_max_dynamic_shared = 8;  // cudaFuncSetAttribute

struct LaunchConfig {
  Dim3 grid, block;
  std::uint64_t shared_bytes;
  void* stream;
  const void* attributes;
  std::uint32_t num_attributes;
};
static_assert(sizeof(LaunchConfig) == 56);

}  // namespace prism::abi
