#include "comm/comm.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/channels.h"
#include "comm/model.h"

namespace prism {
namespace {

// Ties go to the earlier of these.
constexpr std::array algorithms{Algorithm::tree,
                                Algorithm::ring,
                                Algorithm::collnet_direct,
                                Algorithm::collnet_chain,
                                Algorithm::nvls,
                                Algorithm::nvls_tree,
                                Algorithm::pat};
constexpr std::array protocols{Protocol::ll, Protocol::ll128, Protocol::simple};

// NCCL puts fp8 reductions over more than 8 ranks on a ring last, because rounding piles up.
double choice_penalty(OpKind kind, Algorithm algorithm, DataType dtype, const CommShape& shape) {
  const bool reduces =
      kind == OpKind::all_reduce || kind == OpKind::reduce_scatter || kind == OpKind::reduce;
  const bool fp8 = dtype == DataType::float8e4m3 || dtype == DataType::float8e5m2;
  return reduces && fp8 && algorithm == Algorithm::ring && shape.ranks > 8 ? 1024.0 : 1.0;
}

void check(OpKind kind, std::int64_t bytes, const CommShape& shape) {
  if (!is_communication(kind) || is_point_to_point(kind)) {
    throw GraphError("collective_cost: found " + std::string(name(kind)) +
                     ", expected a collective; send and recv are p2p_cost's");
  }
  if (bytes < 0) {
    throw GraphError(std::string(name(kind)) + ": found " + std::to_string(bytes) +
                     " bytes, expected 0 or more");
  }
  if (shape.ranks == 0 || shape.nodes == 0 || shape.nodes > shape.ranks ||
      shape.min_ranks_per_node == 0 || shape.min_ranks_per_node > shape.max_ranks_per_node ||
      shape.max_ranks_per_node > shape.ranks) {
    throw GraphError(std::string(name(kind)) + ": found a communicator of " +
                     std::to_string(shape.ranks) + " ranks on " + std::to_string(shape.nodes) +
                     " nodes (" + std::to_string(shape.min_ranks_per_node) + " to " +
                     std::to_string(shape.max_ranks_per_node) +
                     " a node), expected at least one rank on each node");
  }
}

bool is_grouped(OpKind kind) noexcept {
  return kind == OpKind::all_to_all || kind == OpKind::gather || kind == OpKind::scatter;
}

template <class Visit>
void each_candidate(OpKind kind, DataType dtype, Reduction reduction, const CommShape& shape,
                    const ClusterProfile& cluster, const Visit& visit) {
  for (const Algorithm algorithm : algorithms) {
    for (const Protocol protocol : protocols) {
      const CommFigures figures =
          comm_figures(kind, algorithm, protocol, dtype, reduction, shape, cluster);
      if (figures.available()) visit(algorithm, protocol, figures);
    }
  }
}

CommCost priced(const CommFigures& figures, OpKind kind, Algorithm algorithm, Protocol protocol,
                std::int64_t bytes, const CommShape& shape, const ClusterProfile& cluster) {
  const double us = duration_us(figures, kind, algorithm, protocol, bytes, shape, cluster);
  return {algorithm, protocol, channels_used(algorithm, protocol, bytes, shape, cluster),
          nanoseconds(us)};
}

}  // namespace

CommShape shape_of(std::span<const std::uint32_t> members, const ClusterProfile& cluster) {
  if (members.empty()) {
    throw GraphError("shape_of: found a communicator without members, expected at least one rank");
  }
  if (cluster.gpus_per_node == 0) {
    throw ProfileError("gpus_per_node: found 0, expected at least 1");
  }
  std::vector<std::uint32_t> nodes(members.size());
  std::transform(members.begin(), members.end(), nodes.begin(),
                 [&](std::uint32_t rank) { return rank / cluster.gpus_per_node; });
  std::sort(nodes.begin(), nodes.end());
  CommShape shape{static_cast<std::uint32_t>(members.size()), 0, 0,
                  static_cast<std::uint32_t>(members.size())};
  for (std::size_t first = 0, last = 0; first < nodes.size(); first = last) {
    while (last < nodes.size() && nodes[last] == nodes[first]) ++last;
    const auto here = static_cast<std::uint32_t>(last - first);
    ++shape.nodes;
    shape.max_ranks_per_node = std::max(shape.max_ranks_per_node, here);
    shape.min_ranks_per_node = std::min(shape.min_ranks_per_node, here);
  }
  return shape;
}

CommCost collective_cost(OpKind kind, std::int64_t bytes, DataType dtype, Reduction reduction,
                         const CommShape& shape, const ClusterProfile& cluster) {
  check(kind, bytes, shape);
  if (shape.ranks == 1) return {Algorithm::ring, Protocol::simple, 1, 0};
  if (is_grouped(kind)) return grouped_cost(bytes, shape, cluster);
  CommCost best;
  CommFigures best_figures;
  double best_us = 0.0;
  each_candidate(kind, dtype, reduction, shape, cluster,
                 [&](Algorithm algorithm, Protocol protocol, const CommFigures& figures) {
                   const double us =
                       choice_time_us(figures, kind, algorithm, protocol, bytes, shape, cluster) *
                       choice_penalty(kind, algorithm, dtype, shape);
                   if (best_figures.available() && us >= best_us) return;
                   best = {algorithm, protocol, 1, 0};
                   best_figures = figures;
                   best_us = us;
                 });
  if (!best_figures.available()) {
    throw ProfileError("cluster profile " + cluster.name +
                       ": ring bandwidth: found 0, expected more");
  }
  return priced(best_figures, kind, best.algorithm, best.protocol, bytes, shape, cluster);
}

std::vector<CommCost> collective_candidates(OpKind kind, std::int64_t bytes, DataType dtype,
                                            Reduction reduction, const CommShape& shape,
                                            const ClusterProfile& cluster) {
  check(kind, bytes, shape);
  std::vector<CommCost> out;
  if (shape.ranks == 1 || is_grouped(kind)) {
    out.push_back(collective_cost(kind, bytes, dtype, reduction, shape, cluster));
    return out;
  }
  each_candidate(kind, dtype, reduction, shape, cluster,
                 [&](Algorithm algorithm, Protocol protocol, const CommFigures& figures) {
                   out.push_back(priced(figures, kind, algorithm, protocol, bytes, shape, cluster));
                 });
  return out;
}

std::string_view name(Algorithm algorithm) noexcept {
  switch (algorithm) {
    case Algorithm::tree:
      return "tree";
    case Algorithm::ring:
      return "ring";
    case Algorithm::collnet_direct:
      return "collnet_direct";
    case Algorithm::collnet_chain:
      return "collnet_chain";
    case Algorithm::nvls:
      return "nvls";
    case Algorithm::nvls_tree:
      return "nvls_tree";
    case Algorithm::pat:
      return "pat";
    case Algorithm::p2p:
      return "p2p";
  }
  return "unknown";
}

std::string_view name(Protocol protocol) noexcept {
  switch (protocol) {
    case Protocol::ll:
      return "ll";
    case Protocol::ll128:
      return "ll128";
    case Protocol::simple:
      return "simple";
  }
  return "unknown";
}

}  // namespace prism
