#include "engine/materialised.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "comm/comm.h"
#include "comm/layout.h"
#include "comm/pat.h"
#include "comm/ring.h"
#include "comm/tree.h"

namespace prism {
namespace {

using Positions = std::vector<std::uint32_t>;

void add_node(const NodeLayout& layout, std::uint32_t position, Positions& peers) {
  const std::uint32_t node = layout.node_of(position);
  for (std::uint32_t k = 0; k < layout.size(node); ++k) peers.push_back(layout.at(node, k));
}

// NVLSTree: the double tree of nodes joins heads of one index. CollNet's network side is a switch.
void add_heads(const NodeLayout& layout, std::uint32_t position, Positions& peers) {
  const std::uint32_t node = layout.node_of(position), local = layout.local_of(position);
  for (int tree = 0; tree < 2; ++tree) {
    const TreeNode at = double_tree_node(layout.nodes(), node, tree);
    for (const std::uint32_t other : {at.parent, at.first_child, at.second_child}) {
      if (other != no_peer && local < layout.size(other)) peers.push_back(layout.at(other, local));
    }
  }
}

void add_collective(const Op& op, const NodeLayout& layout, std::uint32_t position,
                    const ClusterProfile& cluster, Positions& peers) {
  const CommCost cost = collective_cost(op.kind, op.bytes, op.dtype,
                                        static_cast<Reduction>(op.detail), layout.shape(), cluster);
  const bool same =
      layout.nodes() == 1 ? cluster.one_node.same_channels : cluster.multi_node.same_channels;
  const auto channels = static_cast<std::uint32_t>(std::max(cost.channels, 1));
  switch (cost.algorithm) {
    case Algorithm::ring:
      for (std::uint32_t c = 0; c < channels; ++c) {
        const RingLinks links = ring_links(layout, position, c, RingOptions{same});
        // From the root around, or around to it: the ring is open there.
        const bool into_root = op.kind != OpKind::broadcast, from_root = op.kind != OpKind::reduce;
        if (position == op.peer ? into_root : links.previous != op.peer || from_root) {
          peers.push_back(links.previous);
        }
        if (position == op.peer ? from_root : links.next != op.peer || into_root) {
          peers.push_back(links.next);
        }
      }
      return;
    case Algorithm::tree:
      for (std::uint32_t c = 0; c < channels; ++c) {
        const TreeOfChannel which = tree_of_channel(c, channels);
        const TreeLinks links =
            tree_links(layout, position, which.chain, which.tree, cluster.tree_pattern, same);
        peers.push_back(links.up);
        peers.insert(peers.end(), links.down.begin(), links.down.end());
      }
      return;
    case Algorithm::pat:
      for (std::uint32_t d = 0; d < pat_dimensions(layout.ranks()); ++d) {
        const PatStep step = pat_step(layout.ranks(), layout.index_of(position), d, true);
        peers.insert(peers.end(), {layout.at(step.send_to), layout.at(step.receive_from)});
      }
      return;
    case Algorithm::p2p:
      if (op.kind != OpKind::all_to_all && op.peer != position) {
        peers.push_back(op.peer);  // gather, scatter: the root alone
        return;
      }
      for (std::uint32_t p = 0; p < layout.ranks(); ++p) peers.push_back(p);
      return;
    case Algorithm::nvls_tree:
      add_heads(layout, position, peers);
      [[fallthrough]];
    case Algorithm::nvls:
    case Algorithm::collnet_direct:
    case Algorithm::collnet_chain:
      add_node(layout, position, peers);
      return;
  }
}

}  // namespace

std::vector<std::uint32_t> exchanging_peers(const Op& op, std::span<const std::uint32_t> members,
                                            std::uint32_t position, const ClusterProfile& cluster) {
  Positions peers;
  const auto size = static_cast<std::uint32_t>(members.size());
  if (is_point_to_point(op.kind)) {
    peers.push_back(static_cast<std::uint32_t>((std::uint64_t{position} + op.peer) % size));
  } else if (size > 1) {
    add_collective(op, NodeLayout(members, cluster), position, cluster, peers);
  }
  std::erase_if(peers, [&](std::uint32_t p) { return p >= size || p == position; });
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

Materialised materialised(const Graph& graph, std::span<const std::uint32_t> sandbox,
                          const ClusterProfile& cluster) {
  const auto is_sandbox = [&](std::uint32_t rank) {
    return std::find(sandbox.begin(), sandbox.end(), rank) != sandbox.end();
  };
  Materialised found;
  std::vector<Op> ops;
  for (const std::uint32_t rank : sandbox) {
    const RankView view = graph.rank(rank);
    std::map<std::uint32_t, std::uint64_t> times;  // by block
    for (const std::uint32_t block : graph.program(view.program).blocks) ++times[block];
    using Key =
        std::tuple<std::uint32_t, OpKind, std::int64_t, DataType, std::uint8_t, std::uint32_t>;
    std::map<Key, Positions> known;  // ghosts by what an op exchanges
    for (const auto& [block, count] : times) {
      ops.clear();
      graph.read_block(block, ops);
      for (const Op& op : ops) {
        if (!is_communication(op.kind)) continue;
        const Binding binding = view.bindings[op.ref];
        const auto [at, added] =
            known.try_emplace({op.ref, op.kind, op.bytes, op.dtype, op.detail, op.peer});
        if (added) {
          const auto members = graph.communicator(binding.communicator).members;
          for (const std::uint32_t p : exchanging_peers(op, members, binding.position, cluster)) {
            if (!is_sandbox(members[p])) at->second.push_back(members[p]);
          }
          found.ghosts.insert(found.ghosts.end(), at->second.begin(), at->second.end());
        }
        found.messages += count * at->second.size();
      }
    }
  }
  std::sort(found.ghosts.begin(), found.ghosts.end());
  found.ghosts.erase(std::unique(found.ghosts.begin(), found.ghosts.end()), found.ghosts.end());
  return found;
}

}  // namespace prism
