// What a program amounts to: ops, collectives, bytes, device time and where that time comes from.
#pragma once

#include <array>
#include <cstdint>

#include "graph/graph.h"

namespace prism {

struct ProgramStatistics {
  std::uint64_t ops = 0;  // blocks expanded
  std::uint64_t iterations = 0;
  std::array<std::uint64_t, 64> by_kind{};  // ops by OpKind
  std::int64_t bytes_sent = 0;              // sum of `bytes` of communication ops except recv
  // Sum of the durations of kernels, copies, sets and communication, by Provenance (ns).
  std::array<std::int64_t, 4> device_ns{};

  std::uint64_t count(OpKind kind) const noexcept {
    return by_kind[static_cast<std::size_t>(kind)];
  }
};

// GraphError if there is no such program. Sums stop at the largest int64.
ProgramStatistics program_statistics(const Graph& graph, std::uint32_t program);

}  // namespace prism
