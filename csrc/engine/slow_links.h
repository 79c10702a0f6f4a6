// Which transfers cross a slow link.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "comm/cluster.h"
#include "engine/factor_curve.h"
#include "engine/perturbation.h"
#include "engine/steps.h"
#include "graph/graph.h"

namespace prism::engine {

class SlowLinks {
 public:
  // wiring: by what the neighbours in a collective are found; null: not known.
  SlowLinks(const Graph& graph, const std::vector<SlowLink>& links, const ClusterProfile* wiring);

  bool any() const noexcept { return !links_.empty(); }
  // Of a message between two positions that starts at `start`.
  double of_message(std::uint32_t communicator, std::uint32_t position, std::uint32_t peer,
                    std::int64_t start) const noexcept;
  // Of a collective. Its edges are looked at the first time; from then on this costs the same for
  // communicators of any size. GraphError: a slow link may be in it and the wiring is not known.
  double of_collective(std::uint32_t communicator, const Part& part, std::int64_t start);

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  using Entries = std::vector<std::uint32_t>;  // of links_, ascending

  struct Touched {
    Entries entries;                  // whose ranks are members
    std::vector<std::uint32_t> kept;  // by content: into found_
  };

  static bool is(const SlowLink& link, std::uint32_t a, std::uint32_t b) noexcept;
  std::uint32_t find(std::uint32_t communicator, const Entries& entries, const Part& part);

  const Graph& graph_;
  const std::vector<SlowLink>& links_;
  const ClusterProfile* wiring_;
  std::vector<std::uint32_t> touched_at_;  // by communicator: into touched_
  std::vector<Touched> touched_;
  std::vector<std::vector<FactorCurve>> found_;  // curves of the slow edges of a collective
  std::map<std::vector<Entries>, std::uint32_t> known_;
};

}  // namespace prism::engine
