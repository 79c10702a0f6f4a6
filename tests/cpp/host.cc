#include "comm/host.h"

#include <doctest/doctest.h>

#include <cstdint>

#include "comm/comm.h"

using namespace prism;

TEST_CASE("a group in host memory takes the steps of gloo's algorithms, a message each") {
  const ClusterProfile cluster;
  const auto message = [&](std::int64_t bytes) {
    return p2p_cost(bytes, false, cluster).duration_ns;
  };
  const auto take = [&](OpKind kind, std::int64_t bytes, std::uint32_t ranks) {
    return host_duration_ns(kind, bytes, ranks, cluster);
  };
  CHECK(take(OpKind::all_reduce, 0, 2) == message(0));  // barriers
  CHECK(take(OpKind::all_reduce, 0, 16) == 4 * message(0));
  CHECK(take(OpKind::all_reduce, 0, 17) == 5 * message(0));
  CHECK(take(OpKind::all_reduce, 1600, 16) == 30 * message(100));
  CHECK(take(OpKind::all_reduce, 1601, 16) == 30 * message(101));
  CHECK(take(OpKind::reduce, 1600, 16) == 30 * message(100));
  CHECK(take(OpKind::broadcast, 1000, 8) == 3 * message(1000));
  for (const OpKind kind : {OpKind::all_gather, OpKind::reduce_scatter, OpKind::all_to_all,
                            OpKind::gather, OpKind::scatter}) {
    CHECK(take(kind, 800, 8) == 7 * message(100));
    CHECK(take(kind, 800, 1) == 0);
  }
  CHECK(take(OpKind::send, 100, 8) == message(100));
  CHECK(take(OpKind::recv, 100, 8) == message(100));
  CHECK(take(OpKind::all_gather, std::int64_t{1} << 53, 1U << 24) > 0);
  CHECK(take(OpKind::broadcast, std::int64_t{1} << 53, 1U << 24) <= std::int64_t{1} << 53);
}

TEST_CASE("groups in host memory are known by the mark before their name") {
  CHECK(is_host_group("gloo@undefined:3"));
  CHECK(!is_host_group("gloo:3"));
  CHECK(!is_host_group("undefined:gloo@"));
  CHECK(!is_host_group(""));
}
