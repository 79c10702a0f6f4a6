#include "comm/layout.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"

namespace prism {

NodeLayout::NodeLayout(std::span<const std::uint32_t> members, const ClusterProfile& cluster) {
  if (members.empty()) {
    throw GraphError("layout: found a communicator without members, expected at least one rank");
  }
  if (cluster.gpus_per_node == 0) {
    throw ProfileError("gpus_per_node: found 0, expected at least 1");
  }
  std::vector<std::uint32_t> node_of_position(members.size());
  std::unordered_map<std::uint32_t, std::uint32_t> numbers;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const std::uint32_t machine = members[i] / cluster.gpus_per_node;
    const auto fresh = static_cast<std::uint32_t>(numbers.size());
    node_of_position[i] = numbers.try_emplace(machine, fresh).first->second;
  }
  number(node_of_position);
}

NodeLayout::NodeLayout(std::span<const std::uint32_t> ranks_per_node) {
  std::vector<std::uint32_t> node_of_position;
  for (std::uint32_t node = 0; node < ranks_per_node.size(); ++node) {
    if (ranks_per_node[node] == 0) {
      throw GraphError("layout: found a node without ranks, expected at least one on each");
    }
    node_of_position.insert(node_of_position.end(), ranks_per_node[node], node);
  }
  if (node_of_position.empty()) {
    throw GraphError("layout: found a communicator without members, expected at least one rank");
  }
  number(node_of_position);
}

void NodeLayout::number(std::span<const std::uint32_t> node_of_position) {
  node_of_.assign(node_of_position.begin(), node_of_position.end());
  const std::uint32_t nodes = 1 + *std::max_element(node_of_.begin(), node_of_.end());
  first_.assign(nodes + 1, 0);
  for (const std::uint32_t node : node_of_) ++first_[node + 1];
  for (std::uint32_t node = 0; node < nodes; ++node) first_[node + 1] += first_[node];
  index_of_.resize(node_of_.size());
  order_.resize(node_of_.size());
  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  for (std::uint32_t position = 0; position < ranks(); ++position) {
    index_of_[position] = next[node_of_[position]]++;
    order_[index_of_[position]] = position;
  }
}

CommShape NodeLayout::shape() const noexcept {
  CommShape shape{ranks(), nodes(), 0, ranks()};
  for (std::uint32_t node = 0; node < nodes(); ++node) {
    shape.max_ranks_per_node = std::max(shape.max_ranks_per_node, size(node));
    shape.min_ranks_per_node = std::min(shape.min_ranks_per_node, size(node));
  }
  return shape;
}

}  // namespace prism
