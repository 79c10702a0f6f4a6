#include "comm/traffic.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "comm/pat.h"
#include "comm/ring.h"
#include "comm/tree.h"

namespace prism {
namespace {

constexpr std::int64_t max_bytes = std::int64_t{1} << 60;  // sums stay below 2^63

// Part `index` of `total` split into `parts` that differ by one byte at most.
std::int64_t part(std::int64_t total, std::int64_t parts, std::int64_t index) noexcept {
  return total / parts + (index < total % parts ? 1 : 0);
}

[[noreturn]] void refuse(const Collective& what, const std::string& found,
                         const std::string& expected) {
  throw GraphError("traffic of " + std::string(name(what.kind)) + " by " +
                   std::string(name(what.algorithm)) + ": found " + found + ", expected " +
                   expected);
}

// Chunk numbers on a ring are ring places: rank at place i sends in the reducing pass all chunks
// but the one it ends with (i), in the gathering pass all but its successor's (i + 1).
void add_ring(const Collective& what, const NodeLayout& layout, const ClusterProfile& cluster,
              std::vector<Edge>& edges) {
  const std::int64_t ranks = layout.ranks();
  const bool reduces = what.kind == OpKind::all_reduce || what.kind == OpKind::reduce_scatter;
  const bool gathers = what.kind == OpKind::all_reduce || what.kind == OpKind::all_gather;
  const RingOptions options{layout.nodes() == 1 ? cluster.one_node.same_channels
                                                : cluster.multi_node.same_channels};
  for (std::int32_t channel = 0; channel < what.channels; ++channel) {
    const std::int64_t share = part(what.bytes, what.channels, channel);
    // Around from the root: a broadcast starts there and the last rank sends nothing; a reduce
    // ends there.
    std::uint32_t at = what.root;
    for (std::int64_t place = 0; place < ranks; ++place) {
      const std::uint32_t next =
          ring_links(layout, at, static_cast<std::uint32_t>(channel), options).next;
      std::int64_t bytes = 0;
      if (reduces) bytes += share - part(share, ranks, place);
      if (gathers) bytes += share - part(share, ranks, (place + 1) % ranks);
      if (what.kind == OpKind::broadcast && next != what.root) bytes = share;
      if (what.kind == OpKind::reduce && at != what.root) bytes = share;
      edges.push_back({at, next, bytes});
      at = next;
    }
  }
}

void add_tree(const Collective& what, const NodeLayout& layout, const ClusterProfile& cluster,
              std::vector<Edge>& edges) {
  const bool same =
      layout.nodes() == 1 ? cluster.one_node.same_channels : cluster.multi_node.same_channels;
  const auto channels = static_cast<std::uint32_t>(what.channels);
  for (std::uint32_t channel = 0; channel < channels; ++channel) {
    const TreeOfChannel which = tree_of_channel(channel, channels);
    const std::int64_t share = part(what.bytes, what.channels, channel);
    for (std::uint32_t at = 0; at < layout.ranks(); ++at) {
      const TreeLinks links =
          tree_links(layout, at, which.chain, which.tree, cluster.tree_pattern, same);
      if (links.up == no_peer) continue;
      edges.push_back({at, links.up, share});
      edges.push_back({links.up, at, share});
    }
  }
}

void add_pat(const Collective& what, const NodeLayout& layout, std::vector<Edge>& edges) {
  const std::uint32_t ranks = layout.ranks();
  const std::int64_t chunk = what.bytes / ranks + (what.bytes % ranks != 0);
  for (std::uint32_t at = 0; at < ranks; ++at) {
    for (std::uint32_t dimension = 0; dimension < pat_dimensions(ranks); ++dimension) {
      const PatStep step = pat_step(ranks, at, dimension, what.kind == OpKind::all_gather);
      edges.push_back({at, step.send_to, chunk * static_cast<std::int64_t>(step.chunks)});
    }
  }
}

void add_p2p(const Collective& what, const NodeLayout& layout, std::vector<Edge>& edges) {
  const std::uint32_t ranks = layout.ranks();
  const auto add = [&](std::uint32_t from, std::uint32_t to, std::uint32_t share) {
    if (from != to) edges.push_back({from, to, part(what.bytes, ranks, share)});
  };
  if (what.kind == OpKind::gather) {
    for (std::uint32_t from = 0; from < ranks; ++from) add(from, what.root, from);
  } else if (what.kind == OpKind::scatter) {
    for (std::uint32_t to = 0; to < ranks; ++to) add(what.root, to, to);
  } else {
    for (std::uint32_t from = 0; from < ranks; ++from) {
      for (std::uint32_t to = 0; to < ranks; ++to) add(from, to, to);
    }
  }
}

void merge(std::vector<Edge>& edges) {
  std::erase_if(edges, [](const Edge& edge) { return edge.bytes == 0; });
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return a.from != b.from ? a.from < b.from : a.to < b.to;
  });
  std::size_t kept = 0;
  for (const Edge& edge : edges) {
    if (kept > 0 && edges[kept - 1].from == edge.from && edges[kept - 1].to == edge.to) {
      edges[kept - 1].bytes += edge.bytes;
    } else {
      edges[kept++] = edge;
    }
  }
  edges.resize(kept);
}

}  // namespace

std::vector<Edge> traffic(const Collective& what, const NodeLayout& layout,
                          const ClusterProfile& cluster) {
  if (what.bytes < 0 || what.bytes > max_bytes) {
    refuse(what, std::to_string(what.bytes) + " bytes", "0 to 2^60");
  }
  if (what.channels < 1) refuse(what, std::to_string(what.channels) + " channels", "1 or more");
  if (what.root >= layout.ranks()) {
    refuse(what, "root " + std::to_string(what.root),
           "a position below " + std::to_string(layout.ranks()));
  }
  std::vector<Edge> edges;
  if (layout.ranks() == 1) return edges;
  const OpKind kind = what.kind;
  const bool gathers = kind == OpKind::all_gather || kind == OpKind::reduce_scatter;
  if (what.algorithm == Algorithm::ring && (gathers || kind == OpKind::all_reduce ||
                                            kind == OpKind::broadcast || kind == OpKind::reduce)) {
    add_ring(what, layout, cluster, edges);
  } else if (what.algorithm == Algorithm::tree && kind == OpKind::all_reduce) {
    add_tree(what, layout, cluster, edges);
  } else if (what.algorithm == Algorithm::pat && gathers && layout.nodes() == layout.ranks()) {
    add_pat(what, layout, edges);
  } else if (what.algorithm == Algorithm::p2p &&
             (kind == OpKind::all_to_all || kind == OpKind::gather || kind == OpKind::scatter)) {
    add_p2p(what, layout, edges);
  } else {
    refuse(what, "no such use", "ring, tree (all_reduce), pat (one rank a node) or p2p");
  }
  merge(edges);
  return edges;
}

std::int64_t bytes_sent(const std::vector<Edge>& edges, std::uint32_t position) noexcept {
  std::int64_t total = 0;
  for (const Edge& edge : edges) total += edge.from == position ? edge.bytes : 0;
  return total;
}

}  // namespace prism
