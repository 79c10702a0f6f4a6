// Device memory of a communicator: a model of what NCCL 2.30.7 allocates at its default buffer
// sizes.
//   NCCL connects an algorithm when it first chooses it; counted are those that the cost model
//   chooses for all-reduces of 1 KiB to 1 GiB.
//   A connection is one channel, one peer, one direction, with a buffer for every protocol.
//   Inside a node they lie on the receiver (LL, LL128, Simple: 10 MiB in units of 2 MiB), the
//   sender keeps 2 MiB of flags. Between nodes both ends hold LL128 and Simple buffers (10 MiB);
//   LL's lies in host memory.
//   NVLink multicast: two 8-step buffers of 128 KiB a step for each head and channel.
// Trees are counted with the mean number of links of a rank. Point-to-point connections, made as
// they are used, and memory that the user registers are not counted.
// Public check: a 4 MiB all-reduce on A100 took 544 MiB (2 GPUs) and 688 MiB (4 GPUs) with a NCCL
// that connected ring and tree at once (NVIDIA/nccl issue 964); both together: 576 and 720 here.
#include <cstdint>

#include "base/error.h"
#include "comm/channels.h"
#include "comm/comm.h"

namespace prism {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;
constexpr std::int64_t local_receive = 10 * mib;
constexpr std::int64_t local_send = 2 * mib;
constexpr std::int64_t net_end = 10 * mib;
constexpr std::int64_t nvls_buffer = 2 * mib;  // of one head on one channel

struct Used {
  bool ring = false;
  bool tree = false;
  bool nvls = false;
  bool nvls_tree = false;
};

Used algorithms_used(const CommShape& shape, const ClusterProfile& cluster) {
  Used used;
  for (std::int64_t bytes = 1024; bytes <= 1024 * mib; bytes *= 2) {
    const CommCost cost = collective_cost(OpKind::all_reduce, bytes, DataType::bfloat16,
                                          Reduction::sum, shape, cluster);
    used.ring |= cost.algorithm == Algorithm::ring;
    used.tree |= cost.algorithm == Algorithm::tree;
    used.nvls |= cost.algorithm == Algorithm::nvls;
    used.nvls_tree |= cost.algorithm == Algorithm::nvls_tree;
  }
  // Gathers, broadcasts and reductions to one rank run on the ring.
  used.ring = true;
  return used;
}

// Mean bytes of a rank for `edges` directed connections on each channel, of which `crossing`
// leave their node.
std::int64_t connections(std::int64_t channels, std::int64_t edges, std::int64_t crossing,
                         std::int64_t ranks) noexcept {
  const std::int64_t bytes =
      (edges - crossing) * (local_receive + local_send) + crossing * 2 * net_end;
  return channels * (bytes / ranks);
}

}  // namespace

std::int64_t communicator_bytes(const CommShape& shape, const ClusterProfile& cluster) {
  if (shape.ranks == 1 && shape.nodes == 1) return 0;
  const Used used = algorithms_used(shape, cluster);  // checks the shape
  const std::int64_t ranks = shape.ranks;
  const std::int64_t nodes = shape.nodes;
  const std::int64_t channels = communicator_channels(Algorithm::ring, shape, cluster);
  std::int64_t total = 0;
  if (used.ring) total += connections(channels, ranks, nodes > 1 ? nodes : 0, ranks);
  if (used.tree) total += connections(channels, 2 * (ranks - 1), 2 * (nodes - 1), ranks);
  if (used.nvls || used.nvls_tree) {
    const std::int64_t heads = channel_graph(Algorithm::nvls, shape, cluster).channels;
    const std::int64_t nvls = communicator_channels(Algorithm::nvls, shape, cluster);
    total += heads * nvls * nvls_buffer;
    if (used.nvls_tree) total += connections(nvls, 2 * (nodes - 1), 2 * (nodes - 1), nodes);
  }
  return total;
}

}  // namespace prism
