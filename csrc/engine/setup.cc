#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "engine/replayer.h"
#include "engine/text.h"

namespace prism::engine {
namespace {

constexpr double max_jitter = 2.0;  // half of all kernels would take under 14 % of their time

}  // namespace

Replayer::Replayer(const Graph& graph, const ReplayOptions& options, OutsideRanks* outside,
                   OnDivergence on_divergence)
    : graph_(graph),
      options_(options),
      outside_(outside),
      on_divergence_(on_divergence),
      durations_(graph, options),
      slow_links_(graph, options.perturbation.slow_links,
                  options.wiring == nullptr ? options.cluster : options.wiring),
      lists_(static_cast<std::uint32_t>(graph.ranks().size())) {
  check_options();
  fold_blocks();
  programs_ = program_facts(graph_, folded_, options_.threads);
  check_sizes();
  lay_out();
  set_up_ranks();
  check_partners();
  if (outside_ != nullptr) set_up_outside();
}

std::uint32_t Replayer::dense(std::uint32_t rank) const noexcept {
  const auto ranks = graph_.ranks();
  const auto at = std::lower_bound(ranks.begin(), ranks.end(), rank);
  return at == ranks.end() || *at != rank ? no_node
                                          : static_cast<std::uint32_t>(at - ranks.begin());
}

void Replayer::check_options() const {
  if (graph_.ranks().empty()) throw GraphError("the graph holds no rank: nothing to replay");
  const auto check_rank = [&](std::uint32_t rank, const char* what) {
    if (dense(rank) == no_node) {
      throw GraphError(cat(what, " names rank ", rank, ", which the graph does not hold (",
                           graph_.ranks().size(), " of ", graph_.world_size(), " ranks held)"));
    }
  };
  for (const std::uint32_t rank : options_.timeline_ranks) check_rank(rank, "the timeline");
  const Perturbation& perturbation = options_.perturbation;
  for (const SlowRank& slow : perturbation.slow_ranks) {
    check_rank(slow.rank, "a slow rank");
    if (!std::isfinite(slow.factor) || slow.factor < 0) {
      throw GraphError(cat("rank ", slow.rank, " is to be slowed by a factor of ",
                           std::to_string(slow.factor), "; a number from 0 on is expected"));
    }
  }
  for (const SlowLink& slow : perturbation.slow_links) {
    check_rank(slow.rank, "a slow link");
    if (slow.other != SlowLink::every) check_rank(slow.other, "a slow link");
    if (slow.rank == slow.other) {
      throw GraphError(
          cat("a slow link from rank ", slow.rank, " to itself; two ranks are expected"));
    }
    if (!std::isfinite(slow.factor) || slow.factor < 1) {
      throw GraphError(cat("a link of rank ", slow.rank, " is to be slowed by a factor of ",
                           std::to_string(slow.factor), "; a number from 1 on is expected"));
    }
  }
  for (const RankFailure& failure : perturbation.failures) {
    check_rank(failure.rank, "a failure");
    if (failure.at_ns < 0) {
      throw GraphError(cat("rank ", failure.rank, " is to fail at ", failure.at_ns,
                           " ns; a time from 0 on is expected"));
    }
  }
  if (const double sigma = perturbation.jitter.sigma; !(sigma >= 0 && sigma <= max_jitter)) {
    throw GraphError(
        cat("a jitter of sigma ", std::to_string(sigma), "; a number from 0 to 2 is expected"));
  }
}

void Replayer::fold_blocks() {
  folded_ = fold(graph_, {}, true, contents_, durations_.kernel_times());
  std::vector<std::uint8_t> wanted;
  const auto want = [&](std::uint32_t rank) {
    wanted.resize(graph_.num_blocks());
    for (const std::uint32_t b : graph_.program(graph_.rank(rank).program).blocks) wanted[b] = 1;
  };
  for (const SlowRank& slow : options_.perturbation.slow_ranks) want(slow.rank);
  for (const std::uint32_t rank : options_.timeline_ranks) want(rank);
  for (const RankFailure& failure : options_.perturbation.failures) want(failure.rank);
  if (options_.perturbation.jitter.sigma != 0) wanted.assign(graph_.num_blocks(), 1);
  if (!wanted.empty()) {
    single_ = fold(graph_, wanted, false, contents_, durations_.kernel_times());
  }
}

// No clock can overflow, and no graph can ask for memory without end.
void Replayer::check_sizes() const {
  double total = 0;
  std::uint64_t iterations = 0;
  for (const std::uint32_t rank : graph_.ranks()) {
    const ProgramFacts& program = programs_[graph_.rank(rank).program];
    total += program.total_ns;
    iterations += program.iterations;
    if (!(total < too_much)) {
      throw GraphError(cat("the times of all ops add up past 64 bits of ns at rank ", rank,
                           "; the durations cannot be right"));
    }
    if (!(program.total_bytes < too_much)) {
      throw GraphError(
          cat("the sizes rank ", rank, " allocates and frees add up past 64 bits of bytes"));
    }
  }
  const auto check = [](const char* what, std::uint64_t found, std::uint64_t most) {
    if (found <= most) return;
    throw GraphError(cat("the graph has ", found, " ", what, ", a replay holds at most ", most,
                         "; replay fewer ranks or iterations"));
  };
  check("iteration marks over all ranks", iterations, std::uint64_t{1} << 27);
  check("streams over all ranks", graph_.ranks().size() * folded_.streams, std::uint64_t{1} << 26);
}

void Replayer::lay_out() {
  num_streams_ = folded_.streams;
  const std::size_t ranks = graph_.ranks().size(), cells = ranks * num_streams_;
  clocks_.assign(cells, 0);
  homes_.assign(cells, no_stream);
  launches_.resize(cells);
  rings_.resize(cells);
  // No program looks further back than it records.
  std::uint64_t records = 0;
  for (const ProgramFacts& program : programs_) records = std::max(records, program.records);
  std::vector<std::size_t> sizes;
  std::size_t ring_cells = 0;
  for (const std::uint32_t back : folded_.rings) {
    const std::uint64_t kept = std::min<std::uint64_t>(back, records);
    sizes.push_back(kept == 0 ? 0 : std::bit_ceil(kept));
    ring_cells += sizes.back();
  }
  if (constexpr std::size_t most = std::size_t{1} << 30; ring_cells > most / ranks) {
    throw GraphError(cat("event waits look back over ", ring_cells, " records in each of ", ranks,
                         " ranks, expected at most ", most, " in all"));
  }
  ring_times_.assign(ring_cells * ranks, 0);
  std::int64_t* times = ring_times_.data();
  for (std::size_t cell = 0; cell < cells; ++cell) {
    const std::size_t size = sizes[cell % num_streams_];
    if (size == 0) continue;
    rings_[cell].times = times;
    rings_[cell].mask = static_cast<std::uint32_t>(size - 1);
    times += size;
  }

  meetings_.resize(graph_.num_communicators());
  std::size_t slots = 0, rows = 0;
  std::uint32_t fewest = UINT32_MAX, most = 0;
  for (const std::uint32_t rank : graph_.ranks()) {
    const RankView view = graph_.rank(rank);
    slots += view.bindings.size();
    const std::uint32_t iterations = programs_[view.program].iterations;
    fewest = std::min(fewest, iterations);
    most = std::max(most, iterations);
    row_begin_.push_back(rows);
    rows += iterations + std::size_t{2};
  }
  slots_.reserve(slots);
  rows_.resize(rows);
  num_iterations_ = fewest;
  if (fewest != most) {
    warnings_.push_back(cat("ranks mark between ", fewest, " and ", most,
                            " iterations; only the first ", fewest, " are reported"));
  }
  if (fewest == 0) {
    whole_is_one_ = true;
    num_iterations_ = 1;
  }
  if (options_.cluster != nullptr && options_.cluster->overlap_slowdown != 1.0) {
    warnings_.emplace_back(
        "the cluster profile's overlap_slowdown is not modelled: kernels keep their time while "
        "communication runs beside them");
  }
}

void Replayer::set_up_ranks() {
  ranks_.reserve(graph_.ranks().size());
  for (const std::uint32_t rank : graph_.ranks()) {
    const auto i = static_cast<std::uint32_t>(ranks_.size());
    const std::size_t cell = std::size_t{i} * num_streams_;
    const RankView view = graph_.rank(rank);
    const ProgramFacts& program = programs_[view.program];
    const auto rows = std::span(rows_).subspan(row_begin_[i], program.iterations + std::size_t{2});
    RankState& r = ranks_.emplace_back(Ledger(program.needs(), rows));
    r.clock = RankClockView(std::span(clocks_).subspan(cell, num_streams_));
    r.rank = rank;
    r.index = i;
    r.program = view.program;
    r.lanes = program.compute_streams | program.transfer_streams;
    if (program.callbacks) r.lanes = ~std::uint64_t{0};
    r.homes = homes_.data() + cell;
    r.launches = launches_.data() + cell;
    r.rings = rings_.data() + cell;
    r.slots = slots_.data() + slots_.size();
    r.num_slots = static_cast<std::uint32_t>(view.bindings.size());
    for (const Binding& binding : view.bindings) {
      slots_.push_back({binding.communicator, binding.position, 0});
      meetings_[binding.communicator].set_size(
          static_cast<std::uint32_t>(graph_.communicator(binding.communicator).members.size()));
    }
    r.table = &folded_;
    // Of the class: ranks that differ in call sites alone read the same memory.
    const auto blocks = graph_.program(graph_.rank_class(view.program)).blocks;
    r.blocks = blocks.data();
    r.num_blocks = static_cast<std::uint32_t>(blocks.size());
    r.position = UINT32_MAX;  // one before the first
  }
  const auto single = [&](std::uint32_t rank) -> RankState& {
    RankState& r = ranks_[dense(rank)];
    r.table = &single_;
    return r;
  };
  for (const std::uint32_t rank : options_.timeline_ranks) single(rank).shown = true;
  set_up_slow_kernels();
  set_up_failures();
}

void Replayer::set_up_slow_kernels() {
  const auto perturb = [&](RankState& r) {
    r.table = &single_;
    r.perturbed = true;
  };
  std::map<std::uint32_t, std::vector<FactorCurve::Window>> windows;  // by dense index
  for (const SlowRank& slow : options_.perturbation.slow_ranks) {
    windows[dense(slow.rank)].push_back({slow.factor, slow.from_ns, slow.to_ns});
  }
  if (!windows.empty()) slow_.resize(ranks_.size());
  for (const auto& [i, of_rank] : windows) {
    slow_[i] = FactorCurve(of_rank);
    perturb(ranks_[i]);
  }
  if (options_.perturbation.jitter.sigma != 0) std::for_each(ranks_.begin(), ranks_.end(), perturb);
}

// A graph may lack ranks; those that meet others have to be there.
void Replayer::check_partners() const {
  if (ranks_.size() == graph_.world_size()) return;
  std::vector<std::uint8_t> collective(meetings_.size());
  std::vector<std::uint32_t> missing;
  std::string where;
  const auto miss = [&](std::uint32_t rank, std::uint32_t c, std::uint32_t needed_by) {
    if (dense(rank) != no_node) return;
    if (where.empty()) {
      where = cat("rank ", needed_by, " meets them on communicator '", graph_.communicator(c).name,
                  "'");
    }
    missing.push_back(rank);
  };
  std::vector<std::uint8_t> seen_block(graph_.num_blocks());
  for (const RankState& r : ranks_) {
    std::fill(seen_block.begin(), seen_block.end(), std::uint8_t{0});
    for (std::uint32_t p = 0; p < r.num_blocks; ++p) {
      if (std::exchange(seen_block[r.blocks[p]], std::uint8_t{1}) != 0) continue;
      for (const Step& step : r.table->of(r.blocks[p])) {
        if (step.kind != StepKind::launch) continue;
        for (const Part& part : parts(step)) {
          const Slot& slot = r.slots[part.slot];
          const auto members = graph_.communicator(slot.communicator).members;
          if (is_point_to_point(part.kind)) {
            miss(members[(std::size_t{slot.position} + part.peer) % members.size()],
                 slot.communicator, r.rank);
          } else if (std::exchange(collective[slot.communicator], std::uint8_t{1}) == 0) {
            for (const std::uint32_t m : members) miss(m, slot.communicator, r.rank);
          }
        }
      }
    }
  }
  if (missing.empty()) return;
  std::sort(missing.begin(), missing.end());
  missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
  throw GraphError(cat("the graph holds ", ranks_.size(), " of ", graph_.world_size(),
                       " ranks and lacks rank ", list_ranks(missing), "; ", where,
                       "; collect or infer these ranks before a replay"));
}

}  // namespace prism::engine
