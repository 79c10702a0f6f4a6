#include "comm/tree.h"

#include <bit>

namespace prism {
namespace {

// Tree 0 on nodes 0 .. n - 1. With b the lowest set bit of r: leaves are odd, a node's subtree
// spans r - b + 1 .. r + b - 1, and the root 0 has one child, half the power of two not below n.
TreeNode binary_tree_node(std::uint64_t n, std::uint64_t r) noexcept {
  TreeNode node;
  const auto id = [](std::uint64_t value) { return static_cast<std::uint32_t>(value); };
  if (r == 0) {
    if (n > 1) node.second_child = id(std::bit_ceil(n) / 2);
    return node;
  }
  const std::uint64_t bit = r & (~r + 1);
  const bool parent_below = (r & (2 * bit)) != 0 || r + bit >= n;
  node.parent = id(parent_below ? r - bit : r + bit);
  node.is_first_child = !parent_below;
  if (bit == 1) return node;
  node.first_child = id(r - bit / 2);
  for (std::uint64_t step = bit / 2; step > 0; step /= 2) {
    if (r + step < n) {
      node.second_child = id(r + step);
      break;
    }
  }
  return node;
}

std::uint32_t relabel(std::uint32_t n, std::uint32_t node) noexcept {
  if (node == no_peer) return no_peer;
  return n % 2 == 0 ? n - 1 - node : (node + n - 1) % n;
}

std::uint32_t label_back(std::uint32_t n, std::uint32_t node) noexcept {
  if (node == no_peer) return no_peer;
  return n % 2 == 0 ? n - 1 - node : (node + 1) % n;
}

std::uint32_t child_port(TreePattern pattern, int child, std::uint32_t size) noexcept {
  if (size < 2 || pattern == TreePattern::tree) return 0;
  return pattern == TreePattern::split || child == 0 ? 1 : 0;
}

}  // namespace

TreeNode double_tree_node(std::uint32_t nodes, std::uint32_t node, int tree) noexcept {
  if (tree == 0) return binary_tree_node(nodes, node);
  const TreeNode found = binary_tree_node(nodes, relabel(nodes, node));
  return {label_back(nodes, found.parent), label_back(nodes, found.first_child),
          label_back(nodes, found.second_child), found.is_first_child};
}

TreeLinks tree_links(const NodeLayout& layout, std::uint32_t position, std::uint32_t channel,
                     int tree, TreePattern pattern, bool same_channels) noexcept {
  const std::uint32_t node = layout.node_of(position);
  const std::uint32_t size = layout.size(node);
  const std::uint32_t step = layout.step_of(position, channel, same_channels);
  const auto visit = [&](std::uint32_t which, std::uint32_t place) {
    return layout.in_order(which, place, channel, same_channels);
  };
  const TreeNode here = double_tree_node(layout.nodes(), node, tree);

  TreeLinks links;
  if (step > 0) {
    links.up = visit(node, step - 1);
  } else if (here.parent != no_peer) {
    const int child = here.is_first_child ? 0 : 1;
    links.up = visit(here.parent, child_port(pattern, child, layout.size(here.parent)));
  }
  std::size_t used = 0;
  if (step + 1 < size) links.down[used++] = visit(node, step + 1);
  const std::uint32_t children[] = {here.first_child, here.second_child};
  for (int child = 0; child < 2; ++child) {
    if (children[child] == no_peer || child_port(pattern, child, size) != step) continue;
    links.down[used++] = visit(children[child], 0);
  }
  return links;
}

}  // namespace prism
