#include "engine/program_facts.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace prism::engine {

void ProgramFacts::add(const BlockFacts& f) noexcept {
  ops += f.ops;
  iterations += f.iterations;
  records += f.records;
  compute_streams |= f.compute_streams;
  transfer_streams |= f.transfer_streams;
  callbacks |= f.callbacks;
  grouped |= f.grouped;
  total_bytes += f.total_bytes;
  if (total_bytes < too_much) {  // else the caller refuses the program
    peak_bytes = std::max(peak_bytes, live_bytes + f.peak_bytes);
    live_bytes += f.live_bytes;
  }
  for (std::size_t i = 0; i < compute_ns.size(); ++i) {
    compute_ns[i] += f.compute_ns[i];
    transfer_ns[i] += f.transfer_ns[i];
  }
  total_ns += f.total_ns;
}

std::vector<ProgramFacts> program_facts(const Graph& graph, const Steps& folded,
                                        std::uint32_t threads) {
  std::vector<ProgramFacts> facts(graph.num_programs());
  std::atomic<std::size_t> next{0};
  constexpr std::size_t share = 64;  // programs taken at once
  const auto work = [&] {
    for (std::size_t at; (at = next.fetch_add(share)) < facts.size();) {
      const std::size_t end = std::min(at + share, facts.size());
      for (; at < end; ++at) {
        const auto program = static_cast<std::uint32_t>(at);
        if (graph.rank_class(program) != program) continue;
        for (const std::uint32_t b : graph.program(program).blocks) facts[at].add(folded.facts[b]);
      }
    }
  };
  const std::size_t shares = (facts.size() + share - 1) / share;
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < std::min<std::size_t>(threads, shares); ++i)
    helpers.emplace_back(work);
  work();
  helpers.clear();  // joins
  for (std::uint32_t program = 0; program < facts.size(); ++program) {
    const std::uint32_t rank_class = graph.rank_class(program);
    if (rank_class != program) facts[program] = facts[rank_class];
  }
  return facts;
}

}  // namespace prism::engine
