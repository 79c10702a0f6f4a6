// NCCL's double binary tree over nodes and the chain inside a node. Two trees carry half of the
// data each, so that a node that forwards a lot in one forwards little in the other.
#pragma once

#include <array>
#include <cstdint>

#include "comm/cluster.h"
#include "comm/layout.h"

namespace prism {

inline constexpr std::uint32_t no_peer = 0xffffffffU;

// Node `node` of `nodes` in tree 0 or 1.
struct TreeNode {
  std::uint32_t parent = no_peer;
  std::uint32_t first_child = no_peer;
  std::uint32_t second_child = no_peer;
  bool is_first_child = false;  // of its parent; false at the root
  friend bool operator==(const TreeNode&, const TreeNode&) = default;
};
TreeNode double_tree_node(std::uint32_t nodes, std::uint32_t node, int tree) noexcept;

// A rank's links: up towards the root, down away from it; at most 3 downs, no_peer in unused
// places, which come last.
struct TreeLinks {
  std::uint32_t up = no_peer;
  std::array<std::uint32_t, 3> down{no_peer, no_peer, no_peer};
  friend bool operator==(const TreeLinks&, const TreeLinks&) = default;
};

// Ports on the chain x0, x1, ... of a node: the parent is reached from x0; children from x0 and x0
// (tree), x1 and x0 (balanced), x1 and x1 (split). A node of one rank has all ports on it.
TreeLinks tree_links(const NodeLayout& layout, std::uint32_t position, std::uint32_t channel,
                     int tree, TreePattern pattern, bool same_channels = true) noexcept;

// The first half of a communicator's channels uses tree 0, the second tree 1 with equal chains.
struct TreeOfChannel {
  int tree = 0;
  std::uint32_t chain = 0;  // the channel whose order inside the node it has
};
constexpr TreeOfChannel tree_of_channel(std::uint32_t channel, std::uint32_t channels) noexcept {
  const std::uint32_t half = channels / 2;
  return half == 0 || channel < half ? TreeOfChannel{0, channel} : TreeOfChannel{1, channel - half};
}

}  // namespace prism
