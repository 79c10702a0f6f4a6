// Sums over the blocks of each program, made at load, once a rank class.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "engine/ledger.h"
#include "engine/steps.h"

namespace prism::engine {

struct ProgramFacts {
  std::uint64_t ops = 0;
  std::uint32_t iterations = 0;
  std::uint64_t records = 0;
  std::uint64_t compute_streams = 0;
  std::uint64_t transfer_streams = 0;
  bool callbacks = false;
  bool grouped = false;
  std::int64_t live_bytes = 0, peak_bytes = 0;
  std::array<double, 4> compute_ns{}, transfer_ns{};  // by Provenance
  double total_ns = 0, total_bytes = 0;

  void add(const BlockFacts& next) noexcept;
  Ledger::Needs needs() const noexcept {
    const auto several = [](std::uint64_t streams) {
      return (streams & (streams - 1)) != 0 || streams >> 63 != 0;
    };
    const bool one = !callbacks && !several(compute_streams | transfer_streams);
    return {several(compute_streams), grouped || several(transfer_streams), callbacks, one};
  }
};

std::vector<ProgramFacts> program_facts(const Graph& graph, const Steps& folded,
                                        std::uint32_t threads);

}  // namespace prism::engine
