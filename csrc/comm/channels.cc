#include "comm/channels.h"

#include <algorithm>

namespace prism {
namespace {

constexpr std::int32_t max_channels = 64;
constexpr std::int32_t max_search_channels = 32;  // before the communicator doubles them
constexpr double pci_gbps = 12.0;

// Top of the speed table that the search tries inside a node.
double top_intra_speed(std::int32_t compute_capability) noexcept {
  return compute_capability >= 100 ? 90.0 : compute_capability >= 90 ? 60.0 : 40.0;
}

std::int32_t share_of(std::int32_t channels, std::uint32_t ranks_per_node,
                      std::uint32_t gpus_per_node) noexcept {
  const std::int64_t share = std::int64_t{channels} * ranks_per_node / gpus_per_node;
  return static_cast<std::int32_t>(std::max<std::int64_t>(1, share));
}

void duplicate(ChannelGraph& graph, std::int32_t compute_capability) noexcept {
  if (graph.intra_gbps < 25.0) return;
  if (compute_capability > 80 && graph.intra_gbps < 50.0 && graph.channels > 4) return;
  if (2 * graph.channels > max_search_channels) return;
  graph.channels *= 2;
  graph.intra_gbps /= 2;
  graph.inter_gbps /= 2;
}

bool is_nvls_graph(Algorithm algorithm) noexcept {
  return algorithm == Algorithm::nvls || algorithm == Algorithm::nvls_tree ||
         algorithm == Algorithm::collnet_direct;
}

}  // namespace

bool has_nvls(const CommShape& shape, const ClusterProfile& cluster) noexcept {
  return cluster.nvls && cluster.compute_capability >= 90 && shape.min_ranks_per_node > 2 &&
         shape.min_ranks_per_node == shape.max_ranks_per_node;
}

ChannelGraph channel_graph(Algorithm algorithm, const CommShape& shape,
                           const ClusterProfile& cluster) {
  const bool one_node = shape.nodes == 1;
  const ChannelGraphs& graphs = one_node ? cluster.one_node : cluster.multi_node;
  const bool nvls = is_nvls_graph(algorithm);
  ChannelGraph graph = nvls                           ? graphs.nvls
                       : algorithm == Algorithm::ring ? graphs.ring
                                                      : graphs.tree;
  // NCCL takes the least over all nodes.
  const std::uint32_t ranks = std::min(shape.min_ranks_per_node, cluster.gpus_per_node);
  if (ranks == cluster.gpus_per_node) return graph;
  if (one_node) {
    if (nvls) {
      const double total = graph.channels * graph.intra_gbps;
      graph.channels = share_of(graph.channels, ranks, cluster.gpus_per_node);
      graph.intra_gbps =
          std::min(total / graph.channels,
                   std::max(graph.intra_gbps, top_intra_speed(cluster.compute_capability)));
    }
    return graph;
  }
  graph.channels = share_of(graph.channels, ranks, cluster.gpus_per_node);
  // A lone GPU of its node enters and leaves through its NIC: no step stays inside.
  if (ranks == 1) graph.intra_gbps = graph.inter_gbps;
  if (!nvls) duplicate(graph, cluster.compute_capability);
  return graph;
}

std::int32_t communicator_channels(Algorithm algorithm, const CommShape& shape,
                                   const ClusterProfile& cluster) {
  const bool one_node = shape.nodes == 1;
  if (algorithm == Algorithm::p2p) {
    return one_node ? cluster.p2p_channels : cluster.p2p_channels_multi_node;
  }
  if (algorithm == Algorithm::nvls || algorithm == Algorithm::nvls_tree) {
    return one_node ? cluster.nvls_channels : cluster.nvls_channels_multi_node;
  }
  const ChannelGraph ring = channel_graph(Algorithm::ring, shape, cluster);
  const ChannelGraph tree = channel_graph(Algorithm::tree, shape, cluster);
  std::int32_t channels = std::min(max_channels, 2 * std::min(ring.channels, tree.channels));
  if (cluster.compute_capability >= 90 && !one_node && ring.intra_gbps > 45.0 && channels < 16) {
    channels *= 2;
  }
  return channels;
}

std::int32_t channels_used(Algorithm algorithm, Protocol protocol, std::int64_t bytes,
                           const CommShape& shape, const ClusterProfile& cluster) {
  const std::int32_t channels = communicator_channels(algorithm, shape, cluster);
  std::int64_t threads = 512;
  std::int64_t threshold = 64;
  if (protocol == Protocol::ll) {
    threshold = algorithm == Algorithm::ring ? std::int64_t{8} * shape.ranks : 8;
  } else if (protocol == Protocol::ll128) {
    threads = 640;
    threshold = 8;
  } else if (algorithm == Algorithm::ring) {
    const ChannelGraph ring = channel_graph(algorithm, shape, cluster);
    if (ring.channels * ring.intra_gbps <= pci_gbps) threads = 256;
  }
  // NCCL lowers the count one by one while bytes < channels * threads * threshold.
  const std::int64_t enough = std::max<std::int64_t>(1, bytes / (threads * threshold));
  return static_cast<std::int32_t>(std::min<std::int64_t>(channels, enough));
}

}  // namespace prism
