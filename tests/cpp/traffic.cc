#include "comm/traffic.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "base/error.h"
#include "comm/rounds.h"

using namespace prism;

namespace {

// 32 bits at a time: std::mt19937's result type is wider on some machines.
struct Random {
  std::mt19937 engine;
  explicit Random(std::uint32_t seed) : engine(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine()); }
};

const ClusterProfile cluster;

std::int64_t received(const std::vector<Edge>& edges, std::uint32_t position) {
  std::int64_t total = 0;
  for (const Edge& edge : edges) total += edge.to == position ? edge.bytes : 0;
  return total;
}

std::int64_t total(const std::vector<Edge>& edges) {
  std::int64_t sum = 0;
  for (const Edge& edge : edges) sum += edge.bytes;
  return sum;
}

NodeLayout random_layout(Random& random, std::uint32_t max_nodes) {
  std::vector<std::uint32_t> sizes(1 + random() % max_nodes);
  for (auto& size : sizes) size = 1 + random() % 8;
  return NodeLayout(sizes);
}

}  // namespace

TEST_CASE("ring all-reduce of divisible size: 2 (N - 1) / N of the bytes each") {
  for (const std::uint32_t ranks : {2U, 3U, 8U, 17U, 64U, 1000U, 4096U}) {
    std::vector<std::uint32_t> sizes(ranks / 8, 8);
    if (ranks % 8 != 0) sizes.push_back(ranks % 8);
    const NodeLayout layout(sizes);
    const std::int64_t bytes = std::int64_t{ranks} * 4 * 1024;
    const auto edges = traffic({OpKind::all_reduce, Algorithm::ring, bytes, 0, 4}, layout, cluster);
    bool good = true;
    std::vector<std::int64_t> sent(ranks, 0);
    for (const Edge& edge : edges) sent[edge.from] += edge.bytes;
    for (const std::int64_t here : sent) good &= here == 2 * bytes / ranks * (ranks - 1);
    CHECK(good);
    CHECK(total(edges) == 2 * (std::int64_t{ranks} - 1) * bytes);
  }
}

TEST_CASE("bytes are conserved by ring, tree and PAT, any size") {
  std::mt19937_64 seeds(17);
  Random random(17);
  for (int round = 0; round < 300; ++round) {
    const NodeLayout layout = random_layout(random, 20);
    const std::int64_t ranks = layout.ranks();
    const auto bytes = static_cast<std::int64_t>(seeds() % (std::uint64_t{1} << (1 + round % 40)));
    const std::int32_t channels = 1 + static_cast<std::int32_t>(random() % 16);
    const auto root = static_cast<std::uint32_t>(random() % layout.ranks());
    const auto run = [&](OpKind kind, Algorithm algorithm) {
      return traffic({kind, algorithm, bytes, root, channels}, layout, cluster);
    };
    CHECK(total(run(OpKind::all_reduce, Algorithm::ring)) == 2 * (ranks - 1) * bytes);
    CHECK(total(run(OpKind::all_gather, Algorithm::ring)) == (ranks - 1) * bytes);
    CHECK(total(run(OpKind::reduce_scatter, Algorithm::ring)) == (ranks - 1) * bytes);
    CHECK(total(run(OpKind::all_reduce, Algorithm::tree)) == 2 * (ranks - 1) * bytes);

    const auto broadcast = run(OpKind::broadcast, Algorithm::ring);
    CHECK(total(broadcast) == (ranks - 1) * bytes);
    CHECK(received(broadcast, root) == 0);
    const auto reduce = run(OpKind::reduce, Algorithm::ring);
    CHECK(total(reduce) == (ranks - 1) * bytes);
    CHECK(bytes_sent(reduce, root) == 0);
    CHECK(received(reduce, root) == (ranks > 1 ? bytes : 0));

    // In a tree every rank sends what it receives: up and down each link once.
    const auto tree = run(OpKind::all_reduce, Algorithm::tree);
    for (std::uint32_t at = 0; at < layout.ranks(); ++at) {
      REQUIRE(bytes_sent(tree, at) == received(tree, at));
    }
  }
}

TEST_CASE("every rank of an all-gather receives all but its own share, ring and PAT") {
  for (const std::uint32_t ranks : {2U, 3U, 7U, 8U, 100U}) {
    const std::vector<std::uint32_t> sizes(ranks, 1);
    const NodeLayout layout(sizes);
    const std::int64_t bytes = std::int64_t{ranks} * 4096;
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::pat}) {
      for (const OpKind kind : {OpKind::all_gather, OpKind::reduce_scatter}) {
        const auto edges = traffic({kind, algorithm, bytes, 0, 2}, layout, cluster);
        for (std::uint32_t at = 0; at < ranks; ++at) {
          REQUIRE(bytes_sent(edges, at) == bytes - 4096);
          REQUIRE(received(edges, at) == bytes - 4096);
        }
      }
    }
  }
}

TEST_CASE("all-to-all, gather and scatter move each share over one edge") {
  const std::vector<std::uint32_t> sizes{3, 2};
  const NodeLayout layout(sizes);
  const auto all = traffic({OpKind::all_to_all, Algorithm::p2p, 5 * 64}, layout, cluster);
  CHECK(all.size() == 20);
  CHECK(total(all) == 20 * 64);
  const auto gather = traffic({OpKind::gather, Algorithm::p2p, 5 * 64, 3}, layout, cluster);
  CHECK(received(gather, 3) == 4 * 64);
  CHECK(total(gather) == 4 * 64);
  const auto scatter = traffic({OpKind::scatter, Algorithm::p2p, 5 * 64 + 2, 3}, layout, cluster);
  CHECK(bytes_sent(scatter, 3) == 4 * 64 + 2);
  CHECK(total(scatter) == 4 * 64 + 2);
}

TEST_CASE("edges of an all-to-all are those of the rounds") {
  Random random(23);
  const NodeLayout layout = random_layout(random, 6);
  const P2pRounds schedule(layout);
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::int64_t> expected;
  const std::int64_t share = 4096;
  for (std::uint32_t at = 0; at < layout.ranks(); ++at) {
    for (std::uint32_t round = 0; round < schedule.rounds(); ++round) {
      const std::uint32_t to = schedule.send_to(at, round);
      if (to != at) expected[{at, to}] += share;
    }
  }
  const auto edges =
      traffic({OpKind::all_to_all, Algorithm::p2p, share * layout.ranks()}, layout, cluster);
  CHECK(edges.size() == expected.size());
  for (const Edge& edge : edges) CHECK(expected.at({edge.from, edge.to}) == edge.bytes);
}

TEST_CASE("on the wire: LL doubles, LL128 adds a sixteenth") {
  CHECK(wire_bytes(1000, Protocol::ll) == 2000);
  CHECK(wire_bytes(1200, Protocol::ll128) == 1280);
  CHECK(wire_bytes(1, Protocol::ll128) == 2);
  CHECK(wire_bytes(1000, Protocol::simple) == 1000);
}

TEST_CASE("one rank moves nothing; what does not exist is refused") {
  const NodeLayout alone(std::vector<std::uint32_t>{1});
  CHECK(traffic({OpKind::all_reduce, Algorithm::ring, 1 << 20}, alone, cluster).empty());
  const NodeLayout layout(std::vector<std::uint32_t>{2, 2});
  CHECK_THROWS_AS(traffic({OpKind::all_reduce, Algorithm::ring, -1}, layout, cluster), GraphError);
  CHECK_THROWS_AS(traffic({OpKind::broadcast, Algorithm::ring, 1, 4}, layout, cluster), GraphError);
  CHECK_THROWS_AS(traffic({OpKind::broadcast, Algorithm::tree, 1}, layout, cluster), GraphError);
  CHECK_THROWS_AS(traffic({OpKind::all_gather, Algorithm::pat, 1}, layout, cluster), GraphError);
  CHECK_THROWS_AS(traffic({OpKind::all_reduce, Algorithm::ring, 1, 0, 0}, layout, cluster),
                  GraphError);
}
