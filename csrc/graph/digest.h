// Names of a graph's content. Two graphs of one job have equal digests however their strings,
// kernels, communicator slots, blocks and programs are numbered, and whichever ranks ran.
#pragma once

#include "base/hash.h"
#include "graph/graph.h"

namespace prism {

// Over the ranks in order, of their expanded programs: communicators by member list, kernels by
// name and shape, no call sites, no provenance.
Hash128 digest(const Graph& graph);

// The same of communication ops alone: kind, type, reduction, peer or root, tag, bytes, grouping,
// members and position; no times, no streams.
Hash128 communication_digest(const Graph& graph);

// One hash a rank, in the order of graph.ranks(): where two graphs differ.
enum class DigestScope : std::uint8_t { everything = 0, communication = 1 };
std::vector<Hash128> rank_digests(const Graph& graph, DigestScope scope);

}  // namespace prism
