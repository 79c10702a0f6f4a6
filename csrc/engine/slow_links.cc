#include "engine/slow_links.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "comm/host.h"
#include "engine/materialised.h"
#include "engine/text.h"

namespace prism::engine {

SlowLinks::SlowLinks(const Graph& graph, const std::vector<SlowLink>& links,
                     const ClusterProfile* wiring)
    : graph_(graph), links_(links), wiring_(wiring) {
  if (links.empty()) return;
  std::unordered_map<std::uint32_t, Entries> of_rank;
  for (std::uint32_t i = 0; i < links.size(); ++i) {
    of_rank[links[i].rank].push_back(i);
    if (links[i].other != SlowLink::every) of_rank[links[i].other].push_back(i);
  }
  touched_at_.assign(graph.num_communicators(), none);
  Entries ends;
  for (std::uint32_t c = 0; c < graph.num_communicators(); ++c) {
    const CommunicatorView communicator = graph.communicator(c);
    if (communicator.members.size() < 2 || is_host_group(communicator.name)) continue;
    ends.clear();
    for (const std::uint32_t rank : communicator.members) {
      const auto found = of_rank.find(rank);
      if (found != of_rank.end())
        ends.insert(ends.end(), found->second.begin(), found->second.end());
    }
    std::sort(ends.begin(), ends.end());
    Entries entries;
    for (std::size_t k = 0; k < ends.size(); ++k) {
      const bool whole = links[ends[k]].other == SlowLink::every;
      if (whole || (k > 0 && ends[k - 1] == ends[k])) entries.push_back(ends[k]);
    }
    if (entries.empty()) continue;
    touched_at_[c] = static_cast<std::uint32_t>(touched_.size());
    touched_.push_back({std::move(entries), {}});
  }
}

bool SlowLinks::is(const SlowLink& link, std::uint32_t a, std::uint32_t b) noexcept {
  if (link.other == SlowLink::every) return link.rank == a || link.rank == b;
  return (link.rank == a && link.other == b) || (link.rank == b && link.other == a);
}

double SlowLinks::of_message(std::uint32_t communicator, std::uint32_t position, std::uint32_t peer,
                             std::int64_t start) const noexcept {
  const std::uint32_t at = touched_at_[communicator];
  if (at == none || position == peer) return 1.0;
  const auto members = graph_.communicator(communicator).members;
  double factor = 1.0;
  for (const std::uint32_t entry : touched_[at].entries) {
    const SlowLink& link = links_[entry];
    if (start < link.from_ns || start >= link.to_ns) continue;
    if (is(link, members[position], members[peer])) factor *= link.factor;
  }
  return factor;
}

double SlowLinks::of_collective(std::uint32_t communicator, const Part& part, std::int64_t start) {
  const std::uint32_t at = touched_at_[communicator];
  if (at == none) return 1.0;
  Touched& touched = touched_[at];
  if (part.content >= touched.kept.size()) touched.kept.resize(part.content + std::size_t{1}, none);
  std::uint32_t& kept = touched.kept[part.content];
  if (kept == none) kept = find(communicator, touched.entries, part);
  double slowest = 1.0;
  for (const FactorCurve& edge : found_[kept]) slowest = std::max(slowest, edge.at(start));
  return slowest;
}

// The slow edges of a collective: by which entries each is slow, equal ones once.
std::uint32_t SlowLinks::find(std::uint32_t communicator, const Entries& entries,
                              const Part& part) {
  const CommunicatorView view = graph_.communicator(communicator);
  if (wiring_ == nullptr) {
    throw GraphError(cat("a slow link between ranks of communicator '", view.name,
                         "' needs to know how its ranks are wired, and the graph does not name the "
                         "cluster that it was collected on; give a cluster profile (--cluster)"));
  }
  Op op;
  op.kind = part.kind;
  op.bytes = part.bytes;
  op.dtype = part.dtype;
  op.detail = part.detail;
  op.peer = part.peer;
  std::set<std::uint32_t> ends;  // positions
  const auto position_of = [&](std::uint32_t rank) {
    const auto found = std::find(view.members.begin(), view.members.end(), rank);
    return static_cast<std::uint32_t>(found - view.members.begin());
  };
  for (const std::uint32_t entry : entries) ends.insert(position_of(links_[entry].rank));
  std::set<Entries> edges;
  for (const std::uint32_t position : ends) {
    for (const std::uint32_t peer : exchanging_peers(op, view.members, position, *wiring_)) {
      Entries slow;
      for (const std::uint32_t entry : entries) {
        if (is(links_[entry], view.members[position], view.members[peer])) slow.push_back(entry);
      }
      if (!slow.empty()) edges.insert(std::move(slow));
    }
  }
  const auto [known, added] = known_.try_emplace(std::vector<Entries>(edges.begin(), edges.end()),
                                                 static_cast<std::uint32_t>(found_.size()));
  if (added) {
    std::vector<FactorCurve>& curves = found_.emplace_back();
    for (const Entries& edge : known->first) {
      std::vector<FactorCurve::Window> windows;
      for (const std::uint32_t i : edge) {
        windows.push_back({links_[i].factor, links_[i].from_ns, links_[i].to_ns});
      }
      curves.emplace_back(windows);
    }
  }
  return known->second;
}

}  // namespace prism::engine
