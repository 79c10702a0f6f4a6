// Communicator shape -> algorithm, protocol, channels, duration. Pure functions of their
// arguments; formulas and constants after NCCL 2.30.7's public source.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "comm/cluster.h"
#include "graph/op.h"

namespace prism {

// All that a duration depends on: equal shapes, equal durations.
struct CommShape {
  std::uint32_t ranks = 1;
  std::uint32_t nodes = 1;
  std::uint32_t max_ranks_per_node = 1;
  std::uint32_t min_ranks_per_node = 1;
  friend bool operator==(const CommShape&, const CommShape&) = default;
};

CommShape shape_of(std::span<const std::uint32_t> members, const ClusterProfile& cluster);

enum class Algorithm : std::uint8_t {
  tree,
  ring,
  collnet_direct,
  collnet_chain,
  nvls,
  nvls_tree,
  pat,
  p2p
};
enum class Protocol : std::uint8_t { ll, ll128, simple };

struct CommCost {
  Algorithm algorithm = Algorithm::ring;
  Protocol protocol = Protocol::simple;
  std::int32_t channels = 1;
  std::int64_t duration_ns = 0;
};

// bytes: the larger of the send and receive buffer of a rank. send/recv: see p2p_cost.
CommCost collective_cost(OpKind kind, std::int64_t bytes, DataType dtype, Reduction reduction,
                         const CommShape& shape, const ClusterProfile& cluster);
// One message between two ranks.
CommCost p2p_cost(std::int64_t bytes, bool same_node, const ClusterProfile& cluster);
// Whether a send does not wait for its receiver. At a threshold of 0 every send does.
constexpr bool is_eager(std::int64_t bytes, std::int64_t eager_bytes) noexcept {
  return eager_bytes > 0 && bytes <= eager_bytes;
}
// Device memory a communicator takes on each member when it is first used.
std::int64_t communicator_bytes(const CommShape& shape, const ClusterProfile& cluster);

std::string_view name(Algorithm algorithm) noexcept;
std::string_view name(Protocol protocol) noexcept;

}  // namespace prism
