#include "engine/slow_links.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/comm.h"
#include "comm/layout.h"
#include "comm/traffic.h"
#include "graph/builder.h"

using namespace prism;
using engine::Part;
using engine::SlowLinks;

namespace {

Graph graph_of(std::uint32_t world, const std::vector<std::uint32_t>& members, const char* name) {
  GraphBuilder builder(world);
  builder.communicator(name, members);
  return builder.finish("{}");
}

Part part_of(OpKind kind, std::int64_t bytes, std::uint32_t root = 0) {
  Part part;
  part.kind = kind;
  part.dtype = DataType::float32;
  part.bytes = bytes;
  part.peer = root;
  return part;
}

bool joins(const SlowLink& link, std::uint32_t a, std::uint32_t b) {
  if (link.other == SlowLink::every) return link.rank == a || link.rank == b;
  return (link.rank == a && link.other == b) || (link.rank == b && link.other == a);
}

}  // namespace

TEST_CASE("messages: both ways, entries multiply, inside their window only") {
  const Graph graph = graph_of(8, {4, 2, 7}, "c");
  const std::vector<SlowLink> links{
      {2, 4, 2.0}, {4, 2, 3.0, 10, 20}, {7, SlowLink::every, 5.0}, {4, 6, 9.0}};
  const SlowLinks slow(graph, links, nullptr);
  CHECK(slow.of_message(0, 0, 1, 9) == 2.0);
  CHECK(slow.of_message(0, 1, 0, 10) == 6.0);
  CHECK(slow.of_message(0, 0, 1, 20) == 2.0);
  CHECK(slow.of_message(0, 0, 2, 0) == 5.0);
  CHECK(slow.of_message(0, 2, 1, 0) == 5.0);
  CHECK(slow.of_message(0, 2, 2, 0) == 1.0);
}

TEST_CASE("a ring is slow if the two are neighbours in it, and only then") {
  ClusterProfile wiring;
  wiring.nvls = false;
  std::vector<std::uint32_t> members(8);
  std::iota(members.begin(), members.end(), 0U);
  const Graph graph = graph_of(8, members, "c");
  const Part large = part_of(OpKind::all_gather, std::int64_t{1} << 30);
  const auto factor = [&](const std::vector<SlowLink>& links) {
    return SlowLinks(graph, links, &wiring).of_collective(0, large, 0);
  };
  CHECK(factor({{3, 4, 2.5}}) == 2.5);
  CHECK(factor({{4, 3, 2.5}}) == 2.5);
  CHECK(factor({{0, 7, 2.5}}) == 2.5);
  CHECK(factor({{3, 5, 2.5}}) == 1.0);
  CHECK(factor({{5, SlowLink::every, 2.5}}) == 2.5);
  CHECK(factor({{3, 4, 2.0}, {6, 7, 3.0}}) == 3.0);  // the slowest edge
  CHECK(factor({{3, 4, 2.0}, {3, 4, 3.0}}) == 6.0);  // of one edge all
  CHECK(factor({{3, 4, 2.0}, {3, SlowLink::every, 3.0}}) == 6.0);
}

TEST_CASE("groups in host memory and others' communicators are left alone") {
  ClusterProfile wiring;
  const std::vector<SlowLink> links{{0, 1, 2.0}};
  const Part part = part_of(OpKind::all_reduce, 64);
  CHECK(SlowLinks(graph_of(2, {0, 1}, "gloo@c"), links, &wiring).of_collective(0, part, 0) == 1.0);
  CHECK(SlowLinks(graph_of(3, {0, 2}, "c"), links, nullptr).of_collective(0, part, 0) == 1.0);
  try {
    SlowLinks(graph_of(2, {0, 1}, "c"), links, nullptr).of_collective(0, part, 0);
    FAIL("it went through");
  } catch (const GraphError& error) {
    CHECK(std::string(error.what()).find("communicator 'c'") != std::string::npos);
  }
}

TEST_CASE("the slowest of the edges that traffic crosses, at every time") {
  std::mt19937 random(11);
  const auto below = [&](std::size_t n) { return static_cast<std::uint32_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    ClusterProfile wiring;
    wiring.nvls = false;
    wiring.gpus_per_node = 1 + below(8);
    const std::uint32_t world = 4 + below(40);
    std::vector<std::uint32_t> members(world);
    std::iota(members.begin(), members.end(), 0U);
    std::shuffle(members.begin(), members.end(), random);
    members.resize(2 + below(world - 1));
    const Graph graph = graph_of(world, members, "c");
    std::vector<SlowLink> links(1 + below(6));
    for (SlowLink& link : links) {
      link.rank = below(world);
      link.other = below(4) == 0 ? SlowLink::every : (link.rank + 1 + below(world - 1)) % world;
      link.factor = 1.0 + below(5);
      link.from_ns = below(10);
      link.to_ns = below(20);
    }
    SlowLinks slow(graph, links, &wiring);
    constexpr OpKind kinds[] = {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter,
                                OpKind::broadcast,  OpKind::reduce,     OpKind::all_to_all,
                                OpKind::gather,     OpKind::scatter};
    for (std::uint32_t content = 0; content < 3; ++content) {
      Part part =
          part_of(kinds[below(8)], std::int64_t{1} << (12 + below(20)), below(members.size()));
      part.content = content;
      const NodeLayout layout(members, wiring);
      const CommCost cost = collective_cost(part.kind, part.bytes, part.dtype, Reduction::sum,
                                            layout.shape(), wiring);
      // Bytes enough for every channel and chunk to carry some.
      const std::vector<Edge> edges =
          traffic({part.kind, cost.algorithm, std::int64_t{1} << 30, part.peer, cost.channels},
                  layout, wiring);
      for (std::int64_t t = 0; t < 21; ++t) {
        double want = 1.0;
        for (const Edge& edge : edges) {
          double factor = 1.0;
          for (const SlowLink& link : links) {
            if (link.from_ns <= t && t < link.to_ns &&
                joins(link, members[edge.from], members[edge.to]))
              factor *= link.factor;
          }
          want = std::max(want, factor);
        }
        CHECK(slow.of_collective(0, part, t) == want);
      }
    }
  }
}
