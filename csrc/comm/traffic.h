// Bytes over each edge of a collective: payload, exact and conserved. A rank's own share and what
// protocols add on the wire (wire_bytes) are not in it.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/comm.h"
#include "comm/layout.h"

namespace prism {

struct Edge {
  std::uint32_t from = 0;  // positions in the communicator
  std::uint32_t to = 0;
  std::int64_t bytes = 0;
  friend bool operator==(const Edge&, const Edge&) = default;
};

struct Collective {
  OpKind kind = OpKind::all_reduce;
  Algorithm algorithm = Algorithm::ring;
  std::int64_t bytes = 0;  // larger of the send and receive buffer of a rank (of the root)
  std::uint32_t root = 0;  // position; broadcast, reduce, gather, scatter
  std::int32_t channels = 1;
};

// Edges with bytes above 0, one a pair of ranks, sorted by (from, to).
//   ring: all-reduce, all-gather, reduce-scatter, broadcast, reduce; tree: all-reduce; PAT:
//   all-gather, reduce-scatter of one rank a node; p2p: all_to_all, gather, scatter (even splits).
// GraphError: another pair of kind and algorithm, negative bytes, a root outside.
std::vector<Edge> traffic(const Collective& collective, const NodeLayout& layout,
                          const ClusterProfile& cluster);

// What a rank sends of these edges.
std::int64_t bytes_sent(const std::vector<Edge>& edges, std::uint32_t position) noexcept;

// LL sends a flag with every 4 bytes, LL128 one with every 120.
constexpr std::int64_t wire_bytes(std::int64_t payload, Protocol protocol) noexcept {
  switch (protocol) {
    case Protocol::ll:
      return 2 * payload;
    case Protocol::ll128:
      return payload + payload / 15 + (payload % 15 != 0);
    case Protocol::simple:
      break;
  }
  return payload;
}

}  // namespace prism
