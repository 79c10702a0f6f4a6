// Who of a communicator sits on which node. Ranks here are positions in the communicator; nodes
// are numbered by the first position on them, as NCCL numbers them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/cluster.h"
#include "comm/comm.h"

namespace prism {

class NodeLayout {
 public:
  // GraphError: no members. ProfileError: no GPUs a node.
  NodeLayout(std::span<const std::uint32_t> members, const ClusterProfile& cluster);
  // Nodes of the given sizes, positions in node order (tests, synthetic jobs).
  explicit NodeLayout(std::span<const std::uint32_t> ranks_per_node);

  std::uint32_t ranks() const noexcept { return static_cast<std::uint32_t>(node_of_.size()); }
  std::uint32_t nodes() const noexcept { return static_cast<std::uint32_t>(first_.size()) - 1; }
  std::uint32_t node_of(std::uint32_t position) const noexcept { return node_of_[position]; }
  // Index among the ranks of its node, and among all ranks in node order.
  std::uint32_t local_of(std::uint32_t position) const noexcept {
    return index_of_[position] - first_[node_of_[position]];
  }
  std::uint32_t index_of(std::uint32_t position) const noexcept { return index_of_[position]; }
  std::uint32_t at(std::uint32_t index) const noexcept { return order_[index]; }
  std::uint32_t size(std::uint32_t node) const noexcept { return first_[node + 1] - first_[node]; }
  std::uint32_t at(std::uint32_t node, std::uint32_t local) const noexcept {
    return order_[first_[node] + local];
  }
  CommShape shape() const noexcept;

  // The order in which a channel visits the ranks of a node: the topology search's result, which
  // we do not have. Model: with same_channels all channels start at the first rank; otherwise
  // channel c starts at local rank c, the one next to its rail, and wraps around.
  std::uint32_t in_order(std::uint32_t node, std::uint32_t step, std::uint32_t channel,
                         bool same_channels) const noexcept {
    const std::uint32_t start = same_channels ? 0 : channel % size(node);
    return at(node, (start + step) % size(node));
  }
  std::uint32_t step_of(std::uint32_t position, std::uint32_t channel,
                        bool same_channels) const noexcept {
    const std::uint32_t here = size(node_of(position));
    const std::uint32_t start = same_channels ? 0 : channel % here;
    return (local_of(position) + here - start) % here;
  }

 private:
  void number(std::span<const std::uint32_t> node_of_position);

  std::vector<std::uint32_t> node_of_;   // by position
  std::vector<std::uint32_t> index_of_;  // by position: place in order_
  std::vector<std::uint32_t> order_;     // positions, node by node
  std::vector<std::uint32_t> first_;     // by node, into order_; one past the end
};

}  // namespace prism
