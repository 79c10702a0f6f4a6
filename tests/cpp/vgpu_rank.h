// A rank on the virtual GPU with costs that are easy to add up.
#pragma once

#include <doctest/doctest.h>

#include <vector>

#include "cost/cost.h"
#include "graph/graph.h"
#include "vgpu/device/kernels.h"
#include "vgpu/device/runtime.h"
#include "vgpu/device/session.h"

namespace prism::vgpu::testing {

inline SessionOptions rank_options() {
  SessionOptions options;
  options.rank = 1;
  options.world_size = 4;
  options.device_count = 2;
  DeviceProfile& device = options.device;
  device.name = "test";
  device.memory_bytes = std::int64_t{1} << 30;
  device.context_bytes = std::int64_t{64} << 20;
  device.sms = 10;
  device.compute_major = 9;
  device.fp32_flops = device.tf32_flops = device.fp16_flops = device.bf16_flops = 1e12;
  device.memory_bandwidth = 1e12;
  device.pcie_bandwidth = 1e10;
  device.kernel_floor_ns = 1000;
  device.efficiency.fill(1.0);
  device.host = {10000, 3000, 100, 200, 50, 7000, 20, 5000};
  // A kernel whose duration is a table row, so that tests know it.
  device.table.push_back({"five_microseconds", KernelShape{}, 5000});
  return options;
}

inline constexpr std::string_view five = "five_microseconds";

inline std::vector<Op> ops_of(const Graph& graph) {
  std::vector<Op> ops;
  const RankView rank = graph.rank(1);
  for (const std::uint32_t block : graph.program(rank.program).blocks) {
    graph.read_block(block, ops);
  }
  return ops;
}

inline std::vector<Op> finish() { return ops_of(Session::get().finish({}, "{}")); }

}  // namespace prism::vgpu::testing
