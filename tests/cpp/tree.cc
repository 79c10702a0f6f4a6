#include "comm/tree.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

using namespace prism;

namespace {

// 32 bits at a time: std::mt19937's result type is wider on some machines.
struct Random {
  std::mt19937 engine;
  explicit Random(std::uint32_t seed) : engine(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine()); }
};

constexpr std::uint32_t none = no_peer;

// Connected, one root, parents and children agree. Uses the parent array alone for reachability,
// the children alone for the count.
bool is_tree(std::uint32_t nodes, int tree, std::vector<std::uint8_t>& children_of) {
  children_of.assign(nodes, 0);
  std::uint32_t roots = 0;
  std::uint32_t edges = 0;
  for (std::uint32_t node = 0; node < nodes; ++node) {
    const TreeNode here = double_tree_node(nodes, node, tree);
    if (here.parent == none) {
      ++roots;
    } else {
      if (here.parent >= nodes) return false;
      const TreeNode parent = double_tree_node(nodes, here.parent, tree);
      if ((here.is_first_child ? parent.first_child : parent.second_child) != node) return false;
    }
    for (const std::uint32_t child : {here.first_child, here.second_child}) {
      if (child == none) continue;
      if (child >= nodes || double_tree_node(nodes, child, tree).parent != node) return false;
      ++children_of[node];
      ++edges;
    }
    // The root is reached within the depth of a balanced tree.
    std::uint32_t at = node;
    int climbed = 0;
    while (at != none && climbed <= 32) {
      at = double_tree_node(nodes, at, tree).parent;
      ++climbed;
    }
    if (at != none) return false;
  }
  return roots == 1 && edges == nodes - 1;
}

}  // namespace

TEST_CASE("worked values: six nodes") {
  const TreeNode expected[2][6] = {
      {{none, none, 4, false},
       {2, none, none, true},
       {4, 1, 3, true},
       {2, none, none, false},
       {0, 2, 5, false},
       {4, none, none, false}},
      {{1, none, none, false},
       {5, 3, 0, false},
       {3, none, none, false},
       {1, 4, 2, true},
       {3, none, none, true},
       {none, none, 1, false}},
  };
  for (int tree = 0; tree < 2; ++tree) {
    for (std::uint32_t node = 0; node < 6; ++node) {
      CAPTURE(tree);
      CAPTURE(node);
      CHECK(double_tree_node(6, node, tree) == expected[tree][node]);
    }
  }
}

TEST_CASE("both trees are trees and share no inner node when even, all sizes to 4,096") {
  std::vector<std::uint8_t> first, second;
  bool good = true;
  for (std::uint32_t nodes = 1; nodes <= 4096; ++nodes) {
    bool here = is_tree(nodes, 0, first) && is_tree(nodes, 1, second);
    for (std::uint32_t node = 0; node < nodes; ++node) {
      here &= first[node] <= 2 && second[node] <= 2;
      if (nodes > 2 && nodes % 2 == 0) here &= first[node] < 2 || second[node] < 2;
    }
    if (!here) {
      good = false;
      MESSAGE("nodes " << nodes);
    }
  }
  CHECK(good);
}

TEST_CASE("over ranks: one root, ups and downs agree, at most 3 downs") {
  Random random(3);
  for (int round = 0; round < 400; ++round) {
    std::vector<std::uint32_t> sizes(1 + random() % 60);
    for (auto& size : sizes) size = 1 + random() % 8;
    const NodeLayout layout(sizes);
    const auto pattern = static_cast<TreePattern>(round % 3);
    const std::uint32_t channel = random() % 16;
    const bool same = random() % 2 == 0;
    for (int tree = 0; tree < 2; ++tree) {
      std::uint32_t roots = 0;
      std::uint32_t downs = 0;
      for (std::uint32_t at = 0; at < layout.ranks(); ++at) {
        const TreeLinks links = tree_links(layout, at, channel, tree, pattern, same);
        if (links.up == none) {
          ++roots;
        } else {
          const TreeLinks above = tree_links(layout, links.up, channel, tree, pattern, same);
          REQUIRE(std::count(above.down.begin(), above.down.end(), at) == 1);
        }
        bool ended = false;
        for (const std::uint32_t down : links.down) {
          if (down == none) {
            ended = true;
            continue;
          }
          REQUIRE_FALSE(ended);
          REQUIRE(tree_links(layout, down, channel, tree, pattern, same).up == at);
          ++downs;
        }
        // The whole way up stays finite: no cycles.
        std::uint32_t climb = at;
        std::uint32_t steps = 0;
        while (climb != none && steps <= layout.ranks()) {
          climb = tree_links(layout, climb, channel, tree, pattern, same).up;
          ++steps;
        }
        REQUIRE(climb == none);
      }
      REQUIRE(roots == 1);
      REQUIRE(downs == layout.ranks() - 1);
    }
  }
}

TEST_CASE("ports by pattern: where the children of a node of four hang") {
  const NodeLayout layout(std::vector<std::uint32_t>(6, 4));
  // Tree 0: node 4 has children 2 (first) and 5 (second), parent 0 (its second child).
  const std::uint32_t x0 = 16;
  const auto links = [&](std::uint32_t at, TreePattern pattern) {
    return tree_links(layout, at, 0, 0, pattern);
  };
  CHECK(links(x0, TreePattern::tree) == TreeLinks{0, {x0 + 1, 8, 20}});
  CHECK(links(x0, TreePattern::balanced) == TreeLinks{0, {x0 + 1, 20, none}});
  CHECK(links(x0 + 1, TreePattern::balanced) == TreeLinks{x0, {x0 + 2, 8, none}});
  CHECK(links(x0 + 1, TreePattern::split) == TreeLinks{x0, {x0 + 2, 8, 20}});
  CHECK(links(x0, TreePattern::split) == TreeLinks{1, {x0 + 1, none, none}});
}

TEST_CASE("half of the channels uses each tree") {
  CHECK(tree_of_channel(0, 1).tree == 0);
  for (std::uint32_t channel = 0; channel < 16; ++channel) {
    const TreeOfChannel which = tree_of_channel(channel, 16);
    CHECK(which.tree == (channel < 8 ? 0 : 1));
    CHECK(which.chain == channel % 8);
  }
}
