#include "engine/materialised.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "comm/traffic.h"
#include "graph/builder.h"

using namespace prism;

namespace {

Op collective(OpKind kind, std::int64_t bytes, std::uint32_t peer = 0) {
  Op op;
  op.kind = kind;
  op.bytes = bytes;
  op.dtype = DataType::float32;
  op.peer = peer;
  return op;
}

std::vector<std::uint32_t> members_of(std::mt19937& random, std::uint32_t world) {
  std::vector<std::uint32_t> all(world);
  std::iota(all.begin(), all.end(), 0U);
  std::shuffle(all.begin(), all.end(), random);
  all.resize(2 + random() % (world - 1U));
  if (random() % 2 == 0) std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

TEST_CASE("peers are those that a collective's traffic joins") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    ClusterProfile cluster;
    cluster.nvls = false;
    cluster.gpus_per_node = static_cast<std::uint32_t>(1 + random() % 8);
    const std::vector<std::uint32_t> members =
        members_of(random, static_cast<std::uint32_t>(4 + random() % 60));
    constexpr OpKind kinds[] = {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter,
                                OpKind::broadcast,  OpKind::reduce,     OpKind::all_to_all,
                                OpKind::gather,     OpKind::scatter};
    const OpKind kind = kinds[random() % 8];
    const std::int64_t bytes = std::int64_t{1} << (12 + random() % 20);
    const auto root = static_cast<std::uint32_t>(random() % members.size());
    const Op op = collective(kind, bytes, root);
    const NodeLayout layout(members, cluster);
    const CommCost cost =
        collective_cost(kind, bytes, op.dtype, Reduction::sum, layout.shape(), cluster);
    // Bytes enough for every channel and chunk to carry some.
    const std::vector<Edge> edges = traffic(
        {kind, cost.algorithm, std::int64_t{1} << 30, root, cost.channels}, layout, cluster);
    for (std::uint32_t position = 0; position < members.size(); ++position) {
      std::set<std::uint32_t> want;
      for (const Edge& edge : edges) {
        if (edge.from == position) want.insert(edge.to);
        if (edge.to == position) want.insert(edge.from);
      }
      const std::vector<std::uint32_t> found = exchanging_peers(op, members, position, cluster);
      CAPTURE(position);
      CHECK(found == std::vector<std::uint32_t>(want.begin(), want.end()));
    }
  }
}

TEST_CASE("NVLink multicast joins the ranks of a node, and heads across nodes") {
  ClusterProfile cluster;
  std::vector<std::uint32_t> members(64);
  std::iota(members.begin(), members.end(), 0U);
  const Op op = collective(OpKind::all_reduce, std::int64_t{1} << 30);
  const CommCost cost = collective_cost(op.kind, op.bytes, op.dtype, Reduction::sum,
                                        shape_of(members, cluster), cluster);
  REQUIRE(cost.algorithm == Algorithm::nvls_tree);
  const std::vector<std::uint32_t> peers = exchanging_peers(op, members, 20, cluster);
  for (std::uint32_t p = 16; p < 24; ++p) {
    CHECK(std::binary_search(peers.begin(), peers.end(), p) == (p != 20));
  }
  for (const std::uint32_t p : peers) CHECK((p / 8 == 2 || p % 8 == 4));
  CHECK(peers.size() > 7);
}

TEST_CASE("ghosts and messages of a job") {
  // Ranks 0..3 in a ring of send and recv, and all in one all-reduce.
  GraphBuilder builder(4);
  const std::vector<std::uint32_t> all{0, 1, 2, 3};
  const std::uint32_t id = builder.communicator("world", all);
  for (std::uint32_t r = 0; r < 4; ++r) {
    Op send = collective(OpKind::send, 64, 1), receive = collective(OpKind::recv, 64, 3);
    send.flags |= Op::group_continues;
    const std::vector<Op> ops{send, receive, send, receive};
    const std::vector<Binding> bindings{{id, r}};
    builder.set_rank(r, ops, bindings);
  }
  const Graph graph = builder.finish("{}");
  const ClusterProfile cluster;
  const std::vector<std::uint32_t> one{1}, neighbours{1, 2};
  const Materialised first = materialised(graph, one, cluster);
  CHECK(first.ghosts == std::vector<std::uint32_t>{0, 2});
  CHECK(first.messages == 4);
  const Materialised second = materialised(graph, neighbours, cluster);
  CHECK(second.ghosts == std::vector<std::uint32_t>{0, 3});
  CHECK(second.messages == 4);
  CHECK(materialised(graph, all, cluster).ghosts.empty());
}
