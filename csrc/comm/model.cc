#include "comm/model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>

#include "comm/channels.h"
#include "comm/tuning.h"

namespace prism {
namespace {

std::size_t generation(const ClusterProfile& cluster) noexcept {
  const std::int32_t cc = cluster.compute_capability;
  return cc >= 100 ? 3 : cc >= 90 ? 2 : cc >= 80 ? 1 : 0;
}

std::size_t nodes_index(const CommShape& shape) noexcept {
  return shape.nodes <= 2 ? shape.nodes - 1 : 2;
}

int log2_floor(std::uint64_t value) noexcept { return static_cast<int>(std::bit_width(value)) - 1; }

double ll_max(const CommShape& shape, const ClusterProfile& cluster) noexcept {
  if (shape.nodes == 1) return tuning::ll_max_one_node[generation(cluster)];
  const auto& table = cluster.cpu == CpuVendor::amd ? tuning::ll_max_amd : tuning::ll_max_intel;
  return table[shape.nodes == 2 ? 0 : 1];
}

double steps(OpKind kind, double ranks) noexcept {
  switch (kind) {
    case OpKind::all_reduce:
      return 2 * (ranks - 1);
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
      return ranks - 1;
    default:
      return ranks;
  }
}

bool is_gather_or_scatter(OpKind kind) noexcept {
  return kind == OpKind::all_gather || kind == OpKind::reduce_scatter;
}

// The switch's adders know these types and reductions; an average is a multiply and a sum there.
bool nvls_reduces(OpKind kind, DataType dtype, Reduction reduction) noexcept {
  if (kind == OpKind::all_gather) return true;
  const bool sum = reduction == Reduction::sum;
  const bool min_max = reduction == Reduction::min || reduction == Reduction::max;
  switch (dtype) {
    case DataType::int32:
    case DataType::uint32:
    case DataType::int64:
    case DataType::uint64:
    case DataType::float16:
    case DataType::bfloat16:
      return sum || min_max;
    case DataType::float32:
    case DataType::float64:
      return sum;
    default:
      return false;
  }
}

bool applies(OpKind kind, Algorithm algorithm, Protocol protocol, DataType dtype,
             Reduction reduction, const CommShape& shape, const ClusterProfile& cluster) noexcept {
  const bool all_reduce = kind == OpKind::all_reduce;
  const bool simple = protocol == Protocol::simple;
  if (protocol == Protocol::ll128 && !cluster.ll128) return false;
  switch (algorithm) {
    case Algorithm::ring:
      return true;
    case Algorithm::tree:
      return all_reduce;
    case Algorithm::nvls:  // between nodes its last step is CollNet's
      return simple && (all_reduce || is_gather_or_scatter(kind)) &&
             nvls_reduces(kind, dtype, reduction) && has_nvls(shape, cluster) &&
             (shape.nodes == 1 || cluster.collnet);
    case Algorithm::nvls_tree:
      return simple && all_reduce && nvls_reduces(kind, dtype, reduction) &&
             has_nvls(shape, cluster) && shape.nodes > 1;
    case Algorithm::pat:
      return simple && is_gather_or_scatter(kind) && shape.max_ranks_per_node == 1 &&
             !(kind == OpKind::reduce_scatter &&
               (reduction == Reduction::avg || reduction == Reduction::premul_sum));
    case Algorithm::collnet_direct:
      return simple && (all_reduce || is_gather_or_scatter(kind)) && cluster.collnet &&
             shape.nodes > 1 && shape.max_ranks_per_node <= 8;
    case Algorithm::collnet_chain:
      return simple && all_reduce && cluster.collnet && shape.nodes > 1 &&
             shape.max_ranks_per_node <= 8;
    case Algorithm::p2p:
      return false;
  }
  return false;
}

double bandwidth(OpKind kind, Algorithm algorithm, Protocol protocol, const CommShape& shape,
                 const ClusterProfile& cluster) {
  const std::size_t gen = generation(cluster);
  const std::size_t by_nodes = nodes_index(shape);
  const ChannelGraph graph = channel_graph(algorithm, shape, cluster);
  const double channels = graph.channels;
  const double ranks = shape.ranks;
  const double per_node = ranks / shape.nodes;
  const bool collnet =
      algorithm == Algorithm::collnet_direct || algorithm == Algorithm::collnet_chain;
  const double wire =
      channels * (shape.nodes <= 2 || collnet ? graph.intra_gbps : graph.inter_gbps);
  double bus = wire;
  switch (algorithm) {
    case Algorithm::ring:
      if (protocol == Protocol::ll) bus = std::min(ll_max(shape, cluster), wire / 2);
      if (protocol == Protocol::ll128) {
        bus = std::min(0.92 * wire, channels * tuning::ring_ll128[gen][by_nodes]);
      }
      break;
    case Algorithm::tree: {
      const double tree = std::min(0.92 * wire, channels * tuning::tree_max[gen][by_nodes]);
      bus = tree;
      if (protocol == Protocol::ll) bus = std::min(tree / 3.8, ll_max(shape, cluster));
      if (protocol == Protocol::ll128) {
        bus = std::min(tree * (shape.nodes == 1 ? 7.0 / 9.0 : 15.0 / 16.0),
                       channels * tuning::tree_ll128[gen][by_nodes]);
      }
      if (cluster.tree_pattern == TreePattern::tree) bus *= 0.85;
      break;
    }
    case Algorithm::pat:
      bus = 0.75 * wire;
      break;
    case Algorithm::nvls:
    case Algorithm::nvls_tree: {
      if (graph.channels < 2) return 0.0;
      const double local = shape.min_ranks_per_node;
      const double pipelined = kind == OpKind::all_reduce ? 2.0 : (local - 1) / local;
      double channel =
          graph.intra_gbps * tuning::nvls_efficiency[gen] * (channels - 1) / channels * pipelined;
      // NCCL takes the inter-node figure on one node too; there its search leaves it without
      // meaning, and measured choice and speed on one node show that it does not bind.
      if (shape.nodes > 1) {
        const bool both_ways = algorithm == Algorithm::nvls_tree && shape.nodes <= 2;
        channel = std::min(channel, graph.inter_gbps * (both_ways ? 2.0 : 1.0));
      }
      if (algorithm == Algorithm::nvls_tree) {
        channel = std::min(channel, tuning::nvls_tree_max[gen][by_nodes]);
      }
      bus = channels * channel;
      break;
    }
    case Algorithm::collnet_direct:
      if (kind == OpKind::all_reduce) {
        const double share = per_node / channels;
        bus = wire / (share - (share - 1) / 2);
        if (cluster.compute_capability >= 90) bus *= 0.85;
      } else {
        bus = per_node * std::min(graph.intra_gbps, 0.9 * graph.inter_gbps);
      }
      break;
    default:
      break;
  }
  if (algorithm != Algorithm::ring && is_gather_or_scatter(kind)) return bus;
  switch (algorithm) {
    case Algorithm::ring:
    case Algorithm::nvls:
    case Algorithm::nvls_tree:
      return bus * ranks / steps(kind, ranks);
    default:
      return bus / 2;
  }
}

double latency(OpKind kind, Algorithm algorithm, Protocol protocol, const CommShape& shape,
               const ClusterProfile& cluster) {
  const auto a = static_cast<std::size_t>(algorithm);
  const auto p = static_cast<std::size_t>(protocol);
  const bool one_node = shape.nodes == 1;
  const bool simple = protocol == Protocol::simple;
  const auto& local =
      cluster.intra_link == IntraLink::nvlink ? tuning::nvlink_latency : tuning::pci_latency;
  const double base = tuning::base_latency[a][p];
  const double intra = local[a][p];
  const std::uint32_t per_node = shape.ranks / shape.nodes;
  const double hops_inside = per_node - 1;
  const double depth = log2_floor(shape.nodes);
  // A flush after each received Simple buffer costs the NIC's latency once more.
  const double nic = cluster.network_latency_us * (simple ? 2 : 1);
  // A rank alone on its node sends and receives through one NIC: NCCL takes the tree's figure.
  const std::size_t net = per_node == 1 ? static_cast<std::size_t>(Algorithm::tree) : a;
  const double inter = tuning::net_latency[net][p] + nic;
  switch (algorithm) {
    case Algorithm::ring: {
      const double count = steps(kind, shape.ranks);
      if (kind == OpKind::broadcast || kind == OpKind::reduce) {
        const bool same =
            one_node ? cluster.one_node.same_channels : cluster.multi_node.same_channels;
        const auto& hop = one_node ? local : tuning::net_latency;
        if (same) return base + hop[a][p];
        const auto chunk = simple ? static_cast<std::size_t>(Algorithm::tree) : a;
        return base + count * hop[chunk][p];
      }
      const double between = one_node                     ? 0.0
                             : kind == OpKind::all_reduce ? 2.0 * (shape.nodes - 1)
                                                          : 1.0 * (shape.nodes - 1);
      double post = one_node ? 0.0 : cluster.cpu == CpuVendor::amd ? 2.0 : 1.0;
      if (simple) post *= 3;
      return base + (count - between) * std::max(intra, post) + between * inter;
    }
    case Algorithm::tree:
      return base + 2 * (hops_inside * intra + depth * inter);
    case Algorithm::nvls:
      return intra + (one_node ? 0.0 : inter);
    case Algorithm::nvls_tree:
      return base + intra + 2 * depth * inter;
    case Algorithm::pat:
      return base + depth * inter / 3.5 + 2.8 * shape.ranks;
    case Algorithm::collnet_direct:
      return base + 2 * (std::min(1.0, hops_inside) * intra + 0.4 * hops_inside) + inter;
    case Algorithm::collnet_chain:
      return base + 2 * hops_inside * intra + inter;
    case Algorithm::p2p:
      break;
  }
  return base;
}

double time_us(const CommFigures& figures, OpKind kind, Algorithm algorithm, Protocol protocol,
               std::int64_t bytes, const CommShape& shape, const ClusterProfile& cluster,
               const Calibration& calibration) {
  const auto p = static_cast<std::size_t>(protocol);
  double rate = 1000.0 * figures.gbps * calibration.bandwidth_efficiency[p];  // bytes a us
  if (algorithm == Algorithm::ring && protocol == Protocol::simple) {
    const double count = steps(kind, shape.ranks);
    rate *= count / (count + calibration.ring_fill_steps);
  }
  double start = figures.latency_us;
  const auto& correction = tuning::tree_correction[p];
  if (kind == OpKind::all_reduce && bytes >= 64) {
    const auto size = static_cast<std::size_t>(log2_floor(static_cast<std::uint64_t>(bytes) / 64));
    const bool corrected_nvls = algorithm == Algorithm::nvls_tree && size < 24 &&
                                cluster.compute_capability >= 100 &&
                                cluster.cpu != CpuVendor::other;
    if ((algorithm == Algorithm::tree && size < 23) || corrected_nvls) rate *= correction[size];
  }
  if (kind == OpKind::all_reduce && algorithm == Algorithm::ring && protocol == Protocol::simple &&
      shape.nodes > 1) {
    // Plateau of rings at medium sizes.
    const std::int64_t channels = communicator_channels(algorithm, shape, cluster);
    if (bytes / (channels * shape.ranks) >= 64) {
      start *= cluster.compute_capability < 80 ? 1.9 : 1.4;
    }
  }
  return start + calibration.extra_latency_us[p] + static_cast<double>(bytes) / rate;
}

}  // namespace

CommFigures comm_figures(OpKind kind, Algorithm algorithm, Protocol protocol, DataType dtype,
                         Reduction reduction, const CommShape& shape,
                         const ClusterProfile& cluster) {
  switch (kind) {
    case OpKind::all_reduce:
    case OpKind::all_gather:
    case OpKind::reduce_scatter:
    case OpKind::broadcast:
    case OpKind::reduce:
      break;
    default:
      return {};
  }
  if (!applies(kind, algorithm, protocol, dtype, reduction, shape, cluster)) return {};
  return {latency(kind, algorithm, protocol, shape, cluster),
          bandwidth(kind, algorithm, protocol, shape, cluster)};
}

double choice_time_us(const CommFigures& figures, OpKind kind, Algorithm algorithm,
                      Protocol protocol, std::int64_t bytes, const CommShape& shape,
                      const ClusterProfile& cluster) {
  return time_us(figures, kind, algorithm, protocol, bytes, shape, cluster, Calibration{});
}

double duration_us(const CommFigures& figures, OpKind kind, Algorithm algorithm, Protocol protocol,
                   std::int64_t bytes, const CommShape& shape, const ClusterProfile& cluster) {
  return time_us(figures, kind, algorithm, protocol, bytes, shape, cluster,
                 (shape.nodes == 1 ? cluster.one_node : cluster.multi_node).calibration);
}

std::int64_t nanoseconds(double us) noexcept {
  const double ns = std::floor(us * 1000.0 + 0.5);
  constexpr double limit = 4611686018427387904.0;  // 2^62
  return ns >= limit ? std::int64_t{1} << 62 : static_cast<std::int64_t>(ns);
}

}  // namespace prism
