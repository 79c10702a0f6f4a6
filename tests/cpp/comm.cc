#include "comm/comm.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <set>
#include <string>
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
