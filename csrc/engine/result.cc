#include <algorithm>
#include <tuple>

#include "engine/replayer.h"
#include "engine/text.h"

namespace prism::engine {

ReplayResult Replayer::result() {
  ReplayResult out;
  if (!failing_.empty() || finished_ != ranks_.size()) {
    out.failure = failure_report();
    for (const RankState& r : ranks_) {
      num_iterations_ = std::min(num_iterations_, r.ledger.iterations());
    }
  }
  out.iterations = num_iterations_;
  out.iteration_time_ns.assign(num_iterations_, 0);
  out.ranks.assign(graph_.ranks().begin(), graph_.ranks().end());
  out.splits.reserve(ranks_.size() * num_iterations_);
  out.iteration_end_ns.reserve(ranks_.size() * num_iterations_);
  out.peak_allocated_bytes.reserve(ranks_.size());
  for (const RankState& r : ranks_) {
    std::int64_t begin = 0;
    for (std::uint32_t k = 0; k < num_iterations_; ++k) {
      const Unions& row = rows_[row_begin_[r.index] + k];
      out.splits.push_back(r.ledger.split(row, begin));
      out.iteration_end_ns.push_back(row.end_ns);
      out.iteration_time_ns[k] = std::max(out.iteration_time_ns[k], row.end_ns);
      begin = row.end_ns;
    }
    const bool left = r.outside != nullptr && !r.outside->recorded.left().empty();
    ProgramFacts program;
    if (!r.finished || r.stopped) {
      program = so_far(r);
    } else if (left) {  // what it did, not what it recorded
      for (const Steps* block : r.outside->blocks) program.add(block->facts.front());
    } else {
      program = programs_[r.program];
    }
    out.peak_allocated_bytes.push_back(program.peak_bytes);
    out.events += program.ops;
    for (std::size_t p = 0; p < out.device_time_ns.size(); ++p) {
      out.device_time_ns[p] += program.compute_ns[p];
      if (options_.cluster == nullptr) out.device_time_ns[p] += program.transfer_ns[p];
    }
  }
  out.device_time_ns[static_cast<std::size_t>(Provenance::model)] += costed_transfers_ns_;
  // From the last ends to how long each took.
  for (std::uint32_t k = num_iterations_; k-- > 1;) {
    out.iteration_time_ns[k] -= out.iteration_time_ns[k - 1];
  }
  std::stable_sort(timeline_.begin(), timeline_.end(), [](const Interval& a, const Interval& b) {
    return std::tie(a.rank, a.start_ns, a.stream) < std::tie(b.rank, b.start_ns, b.stream);
  });
  out.timeline = std::move(timeline_);
  if (differing_durations_ != 0) {
    warnings_.push_back(cat(differing_durations_,
                            " communication ops have durations that differ between their ranks; "
                            "the longest counts"));
  }
  const bool any_failed = out.failure && !out.failure->failed.empty();
  if (const std::uint64_t lost = mailbox_.unreceived(); lost != 0 && !any_failed) {
    const Message& m = mailbox_.at(mailbox_.any_unreceived());
    warnings_.push_back(cat(lost, " eager messages are sent and never received; one of them: ",
                            describe(place_of(m.send.rank, m.send.block, m.send.part->op))));
  }
  for (const std::uint32_t i : outside_ranks_) {
    const Recorded& recorded = ranks_[i].outside->recorded;
    if (timed_ != nullptr) out.late_ns.push_back(ranks_[i].outside->late_ns);
    if (!recorded.left().empty()) {
      out.diverged.push_back(ranks_[i].rank);
      warnings_.push_back(cat(recorded.left(), "; ghosts followed it from there"));
      continue;
    }
    if (const auto odd = recorded.odd_polls()) out.odd_polls.push_back(*odd);
  }
  out.warnings = std::move(warnings_);
  return out;
}

}  // namespace prism::engine
