// Which ghosts of an emulation exchange bytes with a sandbox rank: those that the communicators'
// rings, trees and messages make neighbours of one. Of all others only the timing matters.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/cluster.h"
#include "graph/graph.h"

namespace prism {

struct Materialised {
  std::vector<std::uint32_t> ghosts;  // ascending
  // Transfers between a sandbox rank and a ghost over the recorded programs: one for each
  // communication op and ghost that it exchanges bytes with.
  std::uint64_t messages = 0;
};

// GraphError: a rank that the graph does not hold.
Materialised materialised(const Graph& graph, std::span<const std::uint32_t> sandbox,
                          const ClusterProfile& cluster);

// Positions that exchange bytes with `position` in a collective: ascending, without itself.
std::vector<std::uint32_t> exchanging_peers(const Op& op, std::span<const std::uint32_t> members,
                                            std::uint32_t position, const ClusterProfile& cluster);

}  // namespace prism
