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
  invalid_device_pointer = 17,
  missing_configuration = 52,
  invalid_device_function = 98,
  invalid_device = 101,
  invalid_resource_handle = 400,
  symbol_not_found = 500,
  not_ready = 600,
  peer_access_already_enabled = 704,
  host_memory_already_registered = 712,
  host_memory_not_registered = 713,
  not_supported = 801,
  stream_capture_unsupported = 900,
  stream_capture_unmatched = 903,
  unknown = 999,
};

struct Dim3 {
  std::uint32_t x = 1, y = 1, z = 1;
};

enum CopyKind : int {
  host_to_host = 0,
  host_to_device = 1,
  device_to_host = 2,
  device_to_device = 3,
  copy_default = 4,
};

enum MemoryType : int { unregistered = 0, host = 1, device = 2 };
enum CaptureStatus : int { capture_none = 0 };
enum EntryPointResult : int { entry_point_found = 0, entry_point_missing = 1 };
constexpr unsigned stream_non_blocking = 1;
constexpr unsigned event_disable_timing = 2;

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

struct LaunchConfig {
  Dim3 grid, block;
  std::uint64_t shared_bytes;
  void* stream;
  const void* attributes;
  std::uint32_t num_attributes;
};
static_assert(sizeof(LaunchConfig) == 56);

struct MemoryLocation {
  std::int32_t type;
  std::int32_t id;
};

}  // namespace prism::abi
