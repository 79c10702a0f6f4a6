#include "comm/comm.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "comm/channels.h"
#include "comm/model.h"

using namespace prism;

namespace {

// The machine of the worked values: NVLink nodes of 8, sm90, Intel, 8 graph channels of
// 40/40 GB/s, no NIC latency. These are ClusterProfile's defaults.
const ClusterProfile reference;

CommShape uniform(std::uint32_t nodes, std::uint32_t per_node) {
  return {nodes * per_node, nodes, per_node, per_node};
}

CommCost all_reduce(std::int64_t bytes, const CommShape& shape,
                    const ClusterProfile& cluster = reference) {
  return collective_cost(OpKind::all_reduce, bytes, DataType::bfloat16, Reduction::sum, shape,
                         cluster);
}

struct Golden {
  std::uint32_t nodes;
  std::int64_t bytes;
  Algorithm algorithm;
  Protocol protocol;
  double us;
};

constexpr std::int64_t kib = 1024, mib = 1 << 20, gib = 1 << 30;

constexpr OpKind collectives[] = {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter,
                                  OpKind::broadcast,  OpKind::reduce,     OpKind::all_to_all,
                                  OpKind::gather,     OpKind::scatter};

ClusterProfile sm(std::int32_t compute_capability) {
  ClusterProfile cluster;
  cluster.compute_capability = compute_capability;
  cluster.nvls = compute_capability >= 90;
  return cluster;
}

}  // namespace

TEST_CASE("worked values: 16 and 1,024 nodes of 8") {
  const Golden table[] = {
      {16, kib, Algorithm::tree, Protocol::ll, 55.31},
      {16, 64 * kib, Algorithm::tree, Protocol::ll, 65.91},
      {16, mib, Algorithm::tree, Protocol::ll128, 114.57},
      {16, 16 * mib, Algorithm::tree, Protocol::ll128, 260.20},
      {16, 256 * mib, Algorithm::nvls_tree, Protocol::simple, 1856.81},
      {16, gib, Algorithm::nvls_tree, Protocol::simple, 6850.66},
      {1024, kib, Algorithm::tree, Protocol::ll, 115.31},
      {1024, 16 * mib, Algorithm::tree, Protocol::ll128, 281.85},
      {1024, gib, Algorithm::nvls_tree, Protocol::simple, 3798.03},
  };
  for (const Golden& golden : table) {
    ClusterProfile cluster = reference;
    if (golden.nodes == 1024) {
      for (ChannelGraph* graph :
           {&cluster.multi_node.ring, &cluster.multi_node.tree, &cluster.multi_node.nvls}) {
        graph->channels = 16;
      }
    }
    const CommCost cost = all_reduce(golden.bytes, uniform(golden.nodes, 8), cluster);
    CAPTURE(golden.nodes);
    CAPTURE(golden.bytes);
    CHECK(cost.algorithm == golden.algorithm);
    CHECK(cost.protocol == golden.protocol);
    CHECK(std::abs(static_cast<double>(cost.duration_ns) - golden.us * 1000) <= 5.0);
  }
}

// By hand from the equations of the model, 8 ranks on one node, ring: W = 8 * 40 = 320.
TEST_CASE("closed forms of a ring on one node") {
  ClusterProfile cluster = sm(80);
  const CommShape shape = uniform(1, 8);
  const auto ring = [&](OpKind kind, Protocol protocol) {
    return comm_figures(kind, Algorithm::ring, protocol, DataType::float32, Reduction::sum, shape,
                        cluster);
  };
  CHECK(ring(OpKind::all_reduce, Protocol::simple).latency_us == doctest::Approx(8.4 + 14 * 3.4));
  CHECK(ring(OpKind::all_reduce, Protocol::simple).gbps == doctest::Approx(320.0 * 8 / 14));
  CHECK(ring(OpKind::all_reduce, Protocol::ll).gbps == doctest::Approx(87.7 * 8 / 14));
  CHECK(ring(OpKind::all_reduce, Protocol::ll128).gbps == doctest::Approx(8 * 20.0 * 8 / 14));
  CHECK(ring(OpKind::all_gather, Protocol::simple).latency_us == doctest::Approx(8.4 + 7 * 3.4));
  CHECK(ring(OpKind::all_gather, Protocol::simple).gbps == doctest::Approx(320.0 * 8 / 7));
  CHECK(ring(OpKind::broadcast, Protocol::simple).latency_us == doctest::Approx(8.4 + 3.4));
  CHECK(ring(OpKind::reduce, Protocol::simple).gbps == doctest::Approx(320.0));
  cluster.one_node.same_channels = false;  // Simple then takes the tree's hop, once a rank
  CHECK(ring(OpKind::broadcast, Protocol::simple).latency_us == doctest::Approx(8.4 + 8 * 4.0));
  const CommCost cost = collective_cost(OpKind::reduce_scatter, gib, DataType::float32,
                                        Reduction::sum, shape, cluster);
  CHECK(cost.algorithm == Algorithm::ring);
  CHECK(cost.protocol == Protocol::simple);
  // 32.2 us + 2^30 B / 365.714 GB/s.
  CHECK(cost.duration_ns == 2968213);
}

TEST_CASE("the choice is the fastest candidate, and every candidate is one of the known") {
  for (const std::int32_t cc : {70, 80, 90, 100}) {
    const ClusterProfile cluster = sm(cc);
    for (const OpKind kind : collectives) {
      for (const CommShape& shape : {uniform(1, 2), uniform(1, 8), uniform(2, 8), uniform(64, 1),
                                     uniform(16, 8), uniform(512, 8)}) {
        for (std::int64_t bytes = 1; bytes < (std::int64_t{1} << 40); bytes *= 8) {
          const CommCost best =
              collective_cost(kind, bytes, DataType::bfloat16, Reduction::sum, shape, cluster);
          const auto all = collective_candidates(kind, bytes, DataType::bfloat16, Reduction::sum,
                                                 shape, cluster);
          std::int64_t least = std::numeric_limits<std::int64_t>::max();
          for (const CommCost& one : all) least = std::min(least, one.duration_ns);
          REQUIRE(best.duration_ns == least);
          REQUIRE(best.channels >= 1);
          REQUIRE(best.channels <= 64);
        }
      }
    }
  }
}

TEST_CASE("a candidate never gets faster with more bytes, but for NCCL's tree correction") {
  // The correction table makes a corrected algorithm faster where it rises from one power of two
  // to the next; elsewhere time grows with bytes.
  for (const std::int32_t cc : {80, 90, 100}) {
    const ClusterProfile cluster = sm(cc);
    for (const OpKind kind : collectives) {
      for (const CommShape& shape : {uniform(1, 8), uniform(4, 8), uniform(100, 1)}) {
        std::vector<CommCost> before;
        for (std::int64_t bytes = 1; bytes < (std::int64_t{1} << 36); bytes += 1 + bytes / 5) {
          const auto now =
              collective_candidates(kind, bytes, DataType::float32, Reduction::sum, shape, cluster);
          for (std::size_t i = 0; i < before.size(); ++i) {
            REQUIRE(now[i].algorithm == before[i].algorithm);
            const bool corrected = now[i].algorithm == Algorithm::tree ||
                                   (now[i].algorithm == Algorithm::nvls_tree && cc >= 100);
            const bool p2p = now[i].algorithm == Algorithm::p2p;
            if (!corrected && (!p2p || now[i].protocol == before[i].protocol)) {
              REQUIRE(now[i].duration_ns >= before[i].duration_ns);
            }
          }
          before = now;
        }
      }
    }
  }
}

TEST_CASE("no shape to 4,096 ranks and 1,024 nodes crashes, and costs are sane") {
  const ClusterProfile cluster;
  bool good = true;
  for (std::uint32_t ranks = 1; ranks <= 4096; ++ranks) {
    const std::uint32_t nodes = 1 + (ranks * 7919U) % std::min(ranks, 1024U);
    const CommShape shape{ranks, nodes, (ranks + nodes - 1) / nodes, ranks / nodes};
    const OpKind kind = collectives[ranks % 8];
    const std::int64_t bytes = std::int64_t{1} << (ranks % 41);
    const CommCost cost =
        collective_cost(kind, bytes, DataType::bfloat16, Reduction::sum, shape, cluster);
    good &= ranks == 1 ? cost.duration_ns == 0 : cost.duration_ns > 0;
    good &= cost.channels >= 1;
    const std::int64_t memory = communicator_bytes(shape, cluster);
    good &= ranks == 1 ? memory == 0 : memory > 0 && memory < (std::int64_t{1} << 33);
    if (!good) {
      MESSAGE("ranks " << ranks << " nodes " << nodes);
      break;
    }
  }
  CHECK(good);
}

TEST_CASE("zero bytes cost the latency alone, one rank nothing") {
  for (const OpKind kind : collectives) {
    CHECK(collective_cost(kind, gib, DataType::float32, Reduction::sum, uniform(1, 1), reference)
              .duration_ns == 0);
    const CommCost zero =
        collective_cost(kind, 0, DataType::float32, Reduction::sum, uniform(2, 8), reference);
    CHECK(zero.duration_ns > 0);
    CHECK(zero.duration_ns <=
          collective_cost(kind, 8, DataType::float32, Reduction::sum, uniform(2, 8), reference)
              .duration_ns);
  }
  CHECK(p2p_cost(0, true, reference).duration_ns == 7200);   // 6.6 + 0.6
  CHECK(p2p_cost(0, false, reference).duration_ns == 9300);  // 6.6 + 2.7
}

TEST_CASE("sizes above 2^31 elements and at the end of 64 bits") {
  const std::int64_t bytes = (std::int64_t{1} << 33) + 32;  // 2^31 + 8 floats
  const CommCost more = all_reduce(bytes, uniform(1, 8));
  const CommCost less = all_reduce(bytes - 32, uniform(1, 8));
  CHECK(more.duration_ns >= less.duration_ns);
  CHECK(more.duration_ns > 10000000);
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  ClusterProfile slow;
  slow.one_node.ring = {1, 1e-9, 1e-9};
  slow.one_node.tree = slow.one_node.ring;
  slow.nvls = false;
  CHECK(all_reduce(huge, uniform(1, 8), slow).duration_ns == std::int64_t{1} << 62);
  CHECK(p2p_cost(huge, false, reference).duration_ns > 0);
  for (const OpKind kind : collectives) {
    CHECK(collective_cost(kind, huge, DataType::int8, Reduction::max, uniform(1024, 4), reference)
              .duration_ns > 0);
  }
}

TEST_CASE("what cannot be costed is refused") {
  const CommShape shape = uniform(2, 8);
  const auto cost = [&](OpKind kind, std::int64_t bytes, const CommShape& where) {
    return collective_cost(kind, bytes, DataType::float32, Reduction::sum, where, reference);
  };
  CHECK_THROWS_AS(cost(OpKind::all_reduce, -1, shape), GraphError);
  CHECK_THROWS_AS(cost(OpKind::send, 1, shape), GraphError);
  CHECK_THROWS_AS(cost(OpKind::kernel, 1, shape), GraphError);
  CHECK_THROWS_AS(cost(OpKind::all_reduce, 1, {0, 0, 0, 0}), GraphError);
  CHECK_THROWS_AS(cost(OpKind::all_reduce, 1, {4, 5, 1, 1}), GraphError);
  CHECK_THROWS_AS(cost(OpKind::all_reduce, 1, {4, 2, 1, 2}), GraphError);
  CHECK_THROWS_AS(p2p_cost(-1, true, reference), GraphError);
  CHECK_THROWS_AS(communicator_bytes({0, 1, 0, 0}, reference), GraphError);
  ClusterProfile dead = sm(80);
  dead.one_node.ring.intra_gbps = 0.0;
  dead.one_node.tree.intra_gbps = 0.0;
  CHECK_THROWS_AS(all_reduce(1, uniform(1, 8), dead), ProfileError);
}

TEST_CASE("NVLink multicast: who may use it") {
  const auto at = [](std::int64_t bytes, const CommShape& shape, DataType dtype,
                     Reduction reduction, const ClusterProfile& cluster = reference) {
    return collective_cost(OpKind::all_reduce, bytes, dtype, reduction, shape, cluster).algorithm;
  };
  CHECK(at(gib, uniform(1, 8), DataType::bfloat16, Reduction::sum) == Algorithm::nvls);
  CHECK(at(gib, uniform(4, 8), DataType::float32, Reduction::sum) == Algorithm::nvls_tree);
  // An average is a multiply and a sum; float32 has no maximum in the switch; fp8 nothing.
  CHECK(at(gib, uniform(1, 8), DataType::bfloat16, Reduction::avg) == Algorithm::ring);
  CHECK(at(gib, uniform(1, 8), DataType::float32, Reduction::max) == Algorithm::ring);
  CHECK(at(gib, uniform(1, 8), DataType::float8e4m3, Reduction::sum) == Algorithm::ring);
  CHECK(at(gib, uniform(1, 2), DataType::bfloat16, Reduction::sum) == Algorithm::ring);
  CHECK(at(gib, uniform(1, 8), DataType::bfloat16, Reduction::sum, sm(80)) == Algorithm::ring);
  const CommShape uneven{15, 2, 8, 7};
  CHECK(at(gib, uneven, DataType::bfloat16, Reduction::sum) != Algorithm::nvls_tree);
}

TEST_CASE("fp8 sums over more than 8 ranks avoid the ring, at their real price") {
  const CommShape shape = uniform(4, 8);
  const auto fp8 =
      collective_cost(OpKind::all_reduce, gib, DataType::float8e4m3, Reduction::sum, shape, sm(80));
  CHECK(fp8.algorithm == Algorithm::tree);
  const auto only_ring = collective_cost(OpKind::reduce_scatter, gib, DataType::float8e4m3,
                                         Reduction::sum, shape, sm(80));
  CHECK(only_ring.algorithm == Algorithm::ring);
  CHECK(only_ring.duration_ns ==
        collective_cost(OpKind::reduce_scatter, gib, DataType::uint8, Reduction::sum, shape, sm(80))
            .duration_ns);
}

TEST_CASE("PAT gathers between nodes of one rank while sizes are small") {
  const auto gather = [](std::int64_t bytes, const CommShape& shape) {
    return collective_cost(OpKind::all_gather, bytes, DataType::bfloat16, Reduction::sum, shape,
                           reference)
        .algorithm;
  };
  CHECK(gather(64 * kib, uniform(16, 1)) == Algorithm::pat);
  CHECK(gather(gib, uniform(16, 1)) == Algorithm::ring);
  CHECK(gather(64 * kib, uniform(2, 8)) == Algorithm::ring);
  CHECK(collective_cost(OpKind::reduce_scatter, 64 * kib, DataType::bfloat16, Reduction::avg,
                        uniform(16, 1), reference)
            .algorithm == Algorithm::ring);
}

TEST_CASE("a message: LL to 16 KiB, channels by 64 KiB parts, links by place") {
  CHECK(p2p_cost(16 * kib, true, reference).protocol == Protocol::ll);
  CHECK(p2p_cost(16 * kib + 1, true, reference).protocol == Protocol::simple);
  CHECK(p2p_cost(64 * kib, true, reference).channels == 1);
  CHECK(p2p_cost(64 * kib + 1, true, reference).channels == 2);
  CHECK(p2p_cost(gib, true, reference).channels == 32);
  CHECK(p2p_cost(gib, false, reference).channels == 2);
  // 8.4 + 3.4 us + 2^30 B / 370.8 GB/s; 8.4 + 14 us + 2^30 B / 48 GB/s.
  CHECK(p2p_cost(gib, true, reference).duration_ns == 2907544);
  CHECK(p2p_cost(gib, false, reference).duration_ns == 22392021);
  CHECK(is_eager(mib, reference.eager_bytes));
  CHECK_FALSE(is_eager(mib + 1, reference.eager_bytes));
  CHECK_FALSE(is_eager(0, 0));
}

TEST_CASE("an all-to-all runs NVLink and NIC side by side") {
  const auto cost = [](std::int64_t bytes, const CommShape& shape) {
    return static_cast<double>(collective_cost(OpKind::all_to_all, bytes, DataType::bfloat16,
                                               Reduction::sum, shape, reference)
                                   .duration_ns);
  };
  // One node: 7/8 of the bytes over NVLink.
  CHECK(cost(gib, uniform(1, 8)) == doctest::Approx(11800 + gib * 7 / 8 / 370.8).epsilon(1e-6));
  // Two nodes: half of them over the NIC, far longer than 7/16 over NVLink.
  CHECK(cost(gib, uniform(2, 8)) == doctest::Approx(22400 + gib / 2 / 48.0).epsilon(1e-6));
}

TEST_CASE("channels: doubled graph, NVLS its own, fewer for small sizes") {
  const CommShape shape = uniform(4, 8);
  CHECK(communicator_channels(Algorithm::ring, shape, reference) == 16);
  CHECK(communicator_channels(Algorithm::nvls_tree, shape, reference) == 16);
  ClusterProfile fast = reference;
  fast.multi_node.ring = {4, 48.0, 48.0};
  fast.multi_node.tree = fast.multi_node.ring;
  CHECK(communicator_channels(Algorithm::ring, shape, fast) == 16);  // 4 * 2 * 2
  fast.compute_capability = 80;
  CHECK(communicator_channels(Algorithm::ring, shape, fast) == 8);
  CHECK(channels_used(Algorithm::tree, Protocol::ll, 1, shape, reference) == 1);
  CHECK(channels_used(Algorithm::tree, Protocol::ll, 512 * 8 * 5, shape, reference) == 5);
  CHECK(channels_used(Algorithm::tree, Protocol::ll, 512 * 8 * 5 - 1, shape, reference) == 4);
  CHECK(channels_used(Algorithm::ring, Protocol::ll, 512 * 8 * 32 * 3, shape, reference) == 3);
  CHECK(channels_used(Algorithm::ring, Protocol::simple, gib, shape, reference) == 16);
}

TEST_CASE("communicators that leave GPUs out keep their own NICs' bandwidth") {
  ClusterProfile cluster = reference;
  cluster.multi_node.ring = {8, 45.0, 45.0};
  const ChannelGraph half = channel_graph(Algorithm::ring, uniform(4, 4), cluster);
  CHECK(half.channels * half.inter_gbps == doctest::Approx(180.0));
  CHECK(half.channels == 8);  // 4, split in two
  const ChannelGraph one = channel_graph(Algorithm::ring, uniform(64, 1), cluster);
  CHECK(one.channels == 2);
  CHECK(one.channels * one.inter_gbps == doctest::Approx(45.0));
  const ChannelGraph pair = channel_graph(Algorithm::ring, uniform(1, 2), cluster);
  CHECK(pair == cluster.one_node.ring);
}

TEST_CASE("device memory: ring and tree on one A100 node of two and four") {
  ClusterProfile cluster = sm(80);
  cluster.one_node.ring = {12, 20.0, 20.0};
  cluster.one_node.tree = cluster.one_node.ring;
  // 24 channels, one incoming and one outgoing connection each.
  CHECK(communicator_bytes(uniform(1, 2), cluster) == 24 * 12 * mib);
  CHECK(communicator_bytes(uniform(1, 4), cluster) == 24 * 12 * mib);
  // With multicast: 8 heads, 16 channels of 2 MiB more.
  const ClusterProfile& h100 = reference;
  CHECK(communicator_bytes(uniform(1, 8), h100) == 16 * 12 * mib + 8 * 16 * 2 * mib);
  CHECK(communicator_bytes(uniform(1, 1), h100) == 0);
}

TEST_CASE("calibration scales durations, never the choice") {
  const ClusterProfile plain = sm(80);
  ClusterProfile calibrated = plain;
  calibrated.one_node.calibration = {{1.0, 0.5, 0.25}, {1.0, 2.0, 40.0}, 0.5};
  for (std::int64_t bytes = 8; bytes <= 4 * gib; bytes *= 2) {
    const CommCost a = all_reduce(bytes, uniform(1, 8), plain);
    const CommCost b = all_reduce(bytes, uniform(1, 8), calibrated);
    CHECK(a.algorithm == b.algorithm);
    CHECK(a.protocol == b.protocol);
    CHECK(b.duration_ns > a.duration_ns);
    CHECK(all_reduce(bytes, uniform(2, 8), plain).duration_ns ==
          all_reduce(bytes, uniform(2, 8), calibrated).duration_ns);
  }
  // 56 + 40 us, bandwidth a quarter, 14.5 steps for 14.
  const double us = 96.0 + 1073741824.0 / (1000.0 * 320 * 8 / 14 / 4) * 14.5 / 14;
  CHECK(all_reduce(gib, uniform(1, 8), calibrated).duration_ns ==
        static_cast<std::int64_t>(std::llround(us * 1000)));
}

TEST_CASE("names are distinct") {
  std::set<std::string_view> algorithms;
  for (int i = 0; i < 8; ++i) algorithms.insert(name(static_cast<Algorithm>(i)));
  CHECK(algorithms.size() == 8);
  std::set<std::string_view> protocols;
  for (int i = 0; i < 3; ++i) protocols.insert(name(static_cast<Protocol>(i)));
  CHECK(protocols.size() == 3);
}
