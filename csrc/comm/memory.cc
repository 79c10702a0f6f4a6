// Device memory of a communicator. NCCL gives every connection (channel, peer, direction) one
// buffer per protocol; inside a node a connection's buffers lie on one of the two GPUs (counted
// at the receiver), between nodes on both, with the LL buffer in host memory. Model: the ring and
// the tree are connected (what an all-reduce of small and large sizes touches), each rank having
// the mean number of tree links; with NVLink multicast also its buffers. Buffer sizes are NCCL
// 2.30.7's defaults. Lazily made point-to-point connections and the user's registered memory are
// not counted.
#include <algorithm>

#include "base/error.h"
#include "comm/channels.h"
#include "comm/comm.h"

namespace prism {
namespace {

constexpr std::int64_t ll_buffer = 524288;
constexpr std::int64_t ll128_buffer = 4915200;
constexpr std::int64_t simple_buffer = 4194304;
constexpr std::int64_t local_connection = ll_buffer + ll128_buffer + simple_buffer;
constexpr std::int64_t net_connection = ll128_buffer + simple_buffer;
// Per channel and rank: work queue, peer tables, flags.
constexpr std::int64_t channel_fixed = 65536;
// Multicast and unicast view of each head's 8-step buffer, 128 KiB a step.
constexpr std::int64_t nvls_head_buffer = 2 * 8 * 131072;

}  // namespace

std::int64_t communicator_bytes(const CommShape& shape, const ClusterProfile& cluster) {
  if (shape.ranks == 0 || shape.nodes == 0) {
    throw GraphError("communicator_bytes: found a communicator without members");
  }
  if (shape.ranks == 1) return 0;
  const std::int64_t channels = communicator_channels(Algorithm::ring, shape, cluster);
  // A ring has one incoming edge a rank, a tree of N ranks 2 (N - 1) directed edges. Of the
  // ring's N edges M cross nodes (none when M = 1), of the tree's 2 (M - 1).
  const std::int64_t ranks = shape.ranks;
  const std::int64_t nodes = shape.nodes;
  const std::int64_t crossing_ring = nodes > 1 ? nodes : 0;
  const std::int64_t crossing_tree = 2 * (nodes - 1);
  const std::int64_t local = (ranks - crossing_ring) + (2 * (ranks - 1) - crossing_tree);
  const std::int64_t crossing = 2 * (crossing_ring + crossing_tree);  // both ends hold buffers
  std::int64_t total =
      channels * ((local * local_connection + crossing * net_connection) / ranks + channel_fixed);
  if (has_nvls(shape, cluster)) {
    const std::int64_t heads = channel_graph(Algorithm::nvls, shape, cluster).channels;
    total += heads * communicator_channels(Algorithm::nvls, shape, cluster) * nvls_head_buffer;
  }
  return total;
}

}  // namespace prism
