// What the CUDA 13 driver's C interface looks like in memory, as far as torch and Triton read it.
// Checked against the wheel's headers by tests/python/test_vgpu_abi.py.
#pragma once

#include <cstdint>

#include "device/abi.h"

namespace prism::abi::driver {

using Result = device::Result;
using enum device::Result;

enum PointerAttribute : int {
  pointer_memory_type = 2,
  pointer_device = 3,
  pointer_host = 4,
  pointer_is_managed = 8,
  pointer_device_ordinal = 9,
  pointer_range_start = 11,
  pointer_range_size = 12,
};
enum FunctionAttribute : int {
  function_max_threads = 0,
  function_registers = 4,
  function_ptx_version = 5,
  function_binary_version = 6,
  function_max_dynamic_shared = 8,
};
constexpr int memory_host = 1;
constexpr int memory_device = 2;

struct AllocationProperties {
  std::int32_t type;
  std::int32_t handle_types;
  std::int32_t location_type;
  std::int32_t location_id;
  std::uint64_t rest[2];
};
static_assert(sizeof(AllocationProperties) == 32);

struct LaunchConfig {
  std::uint32_t grid[3];
  std::uint32_t block[3];
  std::uint32_t shared_bytes;
  void* stream;
  const void* attributes;
  std::uint32_t num_attributes;
};
static_assert(sizeof(LaunchConfig) == 56);

}  // namespace prism::abi::driver
