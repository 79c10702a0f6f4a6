#include "comm/layout.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "base/error.h"

using namespace prism;

namespace {

// 32 bits at a time: std::mt19937's result type is wider on some machines.
struct Random {
  std::mt19937 engine;
  explicit Random(std::uint32_t seed) : engine(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine()); }
};

}  // namespace

TEST_CASE("nodes are numbered by the first position on them") {
  const ClusterProfile cluster;  // 8 GPUs a node
  const std::vector<std::uint32_t> members{17, 3, 16, 4, 40};
  const NodeLayout layout(members, cluster);
  CHECK(layout.ranks() == 5);
  CHECK(layout.nodes() == 3);
  CHECK(layout.node_of(0) == 0);
  CHECK(layout.node_of(1) == 1);
  CHECK(layout.node_of(2) == 0);
  CHECK(layout.node_of(3) == 1);
  CHECK(layout.node_of(4) == 2);
  CHECK(layout.local_of(2) == 1);
  CHECK(layout.at(1, 1) == 3);
  CHECK(layout.shape() == CommShape{5, 3, 2, 1});
}

TEST_CASE("a layout and shape_of agree, and places invert") {
  Random random(7);
  ClusterProfile cluster;
  for (int round = 0; round < 300; ++round) {
    cluster.gpus_per_node = 1 + random() % 9;
    std::set<std::uint32_t> chosen;
    const std::uint32_t count = 1 + random() % 200;
    while (chosen.size() < count) chosen.insert(random() % 4096);
    std::vector<std::uint32_t> members(chosen.begin(), chosen.end());
    std::shuffle(members.begin(), members.end(), random.engine);
    const NodeLayout layout(members, cluster);
    REQUIRE(layout.shape() == shape_of(members, cluster));
    bool good = true;
    for (std::uint32_t position = 0; position < layout.ranks(); ++position) {
      const std::uint32_t node = layout.node_of(position);
      good &= layout.at(layout.index_of(position)) == position;
      good &= layout.at(node, layout.local_of(position)) == position;
      for (const bool same : {false, true}) {
        const std::uint32_t channel = random() % 32;
        const std::uint32_t step = layout.step_of(position, channel, same);
        good &= layout.in_order(node, step, channel, same) == position;
      }
    }
    REQUIRE(good);
  }
}

TEST_CASE("what cannot be laid out is refused") {
  ClusterProfile cluster;
  const std::vector<std::uint32_t> none;
  const std::vector<std::uint32_t> one{0};
  const std::vector<std::uint32_t> hole{2, 0, 1};
  CHECK_THROWS_AS(NodeLayout(none, cluster), GraphError);
  CHECK_THROWS_AS(NodeLayout{none}, GraphError);
  CHECK_THROWS_AS(NodeLayout{hole}, GraphError);
  CHECK_THROWS_AS(shape_of(none, cluster), GraphError);
  cluster.gpus_per_node = 0;
  CHECK_THROWS_AS(NodeLayout(one, cluster), ProfileError);
  CHECK_THROWS_AS(shape_of(one, cluster), ProfileError);
}
