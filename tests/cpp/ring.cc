#include "comm/ring.h"

#include <doctest/doctest.h>

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

NodeLayout nodes_of(std::uint32_t ranks, std::uint32_t per_node) {
  std::vector<std::uint32_t> sizes(ranks / per_node, per_node);
  if (ranks % per_node != 0) sizes.push_back(ranks % per_node);
  return NodeLayout(sizes);
}

bool is_one_cycle(const NodeLayout& layout, std::uint32_t channel, const RingOptions& options) {
  std::uint32_t at = 0;
  for (std::uint32_t i = 0; i < layout.ranks(); ++i) {
    const std::uint32_t next = ring_links(layout, at, channel, options).next;
    if (ring_links(layout, next, channel, options).previous != at) return false;
    at = next;
    if (at == 0) return i + 1 == layout.ranks();
  }
  return false;
}

}  // namespace

TEST_CASE("two nodes of four: the last of a node sends to the first of the next") {
  const NodeLayout layout = nodes_of(8, 4);
  CHECK(ring_links(layout, 3, 0) == RingLinks{2, 4});
  CHECK(ring_links(layout, 0, 0) == RingLinks{7, 1});
  // Channel 2 enters each node at its third GPU.
  const RingOptions rails{false, false};
  CHECK(ring_links(layout, 2, 2, rails) == RingLinks{5, 3});
  CHECK(ring_links(layout, 1, 2, rails) == RingLinks{0, 6});
  // With crossed rails the odd node is visited as channel 3 would.
  CHECK(ring_links(layout, 1, 2, {false, true}) == RingLinks{0, 7});
}

TEST_CASE("a ring is one cycle, all sizes to 4,096") {
  bool good = true;
  for (std::uint32_t ranks = 1; ranks <= 4096; ++ranks) {
    const std::uint32_t per_node = 1 + ranks % 8;
    const NodeLayout layout = nodes_of(ranks, per_node);
    const RingOptions options{ranks % 2 == 0, ranks % 3 == 0};
    if (!is_one_cycle(layout, ranks % 16, options)) {
      good = false;
      MESSAGE("ranks " << ranks);
    }
  }
  CHECK(good);
}

TEST_CASE("a ring is one cycle on nodes of uneven size, every channel") {
  Random random(11);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::uint32_t> sizes(1 + random() % 40);
    for (auto& size : sizes) size = 1 + random() % 8;
    const NodeLayout layout(sizes);
    for (std::uint32_t channel = 0; channel < 32; ++channel) {
      REQUIRE(is_one_cycle(layout, channel, {channel % 2 == 0, round % 2 == 0}));
    }
  }
}
