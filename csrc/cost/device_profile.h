// The figures of a device profile (TOML, read in Python): what the virtual GPU is and what things
// cost on it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/kernel.h"

namespace prism {

// Host time of a call, by kind of call (ns): spent on the host clock before the op takes effect.
struct HostCosts {
  std::uint32_t launch_ns = 0;  // kernel launch, from the trainer's last op to this one
  std::uint32_t copy_ns = 0;
  std::uint32_t event_ns = 0;  // record, wait
  std::uint32_t sync_ns = 0;   // cost of a synchronise call that finds nothing to wait for
  std::uint32_t query_ns = 0;
  std::uint32_t communication_ns = 0;
  std::uint32_t allocate_ns = 0;  // framework allocator, hit in its cache
  std::uint32_t reserve_ns = 0;   // cudaMalloc
};

// A row of the timing table: a kernel measured on a real device.
struct TimingRow {
  std::string name;
  KernelShape shape;
  std::int64_t duration_ns = 0;
};

struct DeviceProfile {
  std::string name;
  std::int64_t memory_bytes = 0;
  std::int64_t context_bytes = 0;  // taken by the CUDA context before any allocation
  std::int32_t sms = 0;
  std::int32_t compute_major = 0, compute_minor = 0;
  std::int64_t l2_bytes = 0;
  std::int32_t shared_per_block_optin = 0, shared_per_sm = 0;
  std::int32_t clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  // Peak rates, operations a second (dense).
  double fp32_flops = 0, tf32_flops = 0, fp16_flops = 0, bf16_flops = 0, fp8_flops = 0,
         fp64_flops = 0, int8_flops = 0;
  double memory_bandwidth = 0;       // bytes a second
  double pcie_bandwidth = 0;         // bytes a second, host <-> device
  std::int64_t kernel_floor_ns = 0;  // shortest a kernel takes
  // Share of the peak that a family reaches; index by KernelFamily.
  std::array<double, 16> efficiency{};
  HostCosts host;
  std::vector<TimingRow> table;
};

}  // namespace prism
