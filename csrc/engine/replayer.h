// The event engine: runs each rank until it must wait for another, wakes it when that one arrives.
// Max-plus results do not depend on the order, so there is no queue by time: the ranks woken last
// run first, because what they touch is still in the cache (ranks of one small communicator go
// many steps together before the others come).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/deferred.h"
#include "engine/diagnosis.h"
#include "engine/durations.h"
#include "engine/factor_curve.h"
#include "engine/mailbox.h"
#include "engine/meeting.h"
#include "engine/outside.h"
#include "engine/program_facts.h"
#include "engine/rank_state.h"
#include "engine/replay.h"
#include "engine/slow_links.h"
#include "engine/steps.h"
#include "engine/wait_list.h"

namespace prism::engine {

class Replayer {
 public:
  Replayer(const Graph& graph, const ReplayOptions& options, OutsideRanks* outside = nullptr,
           OnDivergence on_divergence = OnDivergence::stop);
  ReplayResult run();
  // How often an op was looked at that its host had run ahead of: a bounded number of times each.
  std::uint64_t looks() const noexcept { return looks_; }

 private:
  // setup.cc
  void check_options() const;
  void check_sizes() const;
  void check_partners() const;
  void fold_blocks();
  void lay_out();
  void set_up_ranks();
  void set_up_slow_kernels();

  // replayer.cc
  bool next_block(RankState& r);
  void run_rank(RankState& r);
  bool run_step(RankState& r, const Step& step);  // false: blocked
  void segment(RankState& r, const Step& step, bool in_order);
  void perturbed_kernel(RankState& r, const Step& step);
  std::int64_t stretch(std::int64_t duration, double factor);
  void callback(RankState& r, const Step& step);
  void close_iteration(RankState& r, std::int64_t end);
  bool ends_iteration(RankState& r, std::int64_t end) noexcept;
  void prefetch() const noexcept;
  void trim(RankState& r);
  void show_host(const RankState& r, const Step& step, std::int64_t before);
  void show(const RankState& r, std::uint16_t stream, std::uint32_t block, std::uint32_t op,
            std::int64_t arrive, Span span);

  // launch.cc
  bool launch(RankState& r, const Step& step);
  void enrol(RankState& r, const Step& step, Launch& launch);
  Handle enrol(RankState& r, const Part& part);
  void arrive(RankState& r, Launch& launch);
  void arrive(RankState& r, const Part& part, const Handle& handle, const Launch& launch);
  bool met(Launch& launch) const noexcept;
  void count_costed(std::int64_t duration);
  void settle(RankState& r, Launch& launch);
  bool resolve(RankState& r, std::uint16_t stream);
  bool resolve_all(RankState& r, std::uint16_t& stuck);
  bool block(RankState& r, std::uint16_t stream);
  WaitList& waiters(const Handle& handle) noexcept;
  const Part* leading(const Message& m) const noexcept;
  static std::span<const Part> parts(const Step& step) noexcept { return {step.parts, step.count}; }

  // listen.cc
  static constexpr std::uint32_t for_answer = no_node;  // tag of a wait: an outside rank asks
  void set_up_outside();
  bool listen();  // true: something can go on
  bool hear(bool& running);
  void go_on_first(RankState& r);
  bool next_outside_block(RankState& r);
  void check_end(const RankState& r) const;
  // Ghosts take what it communicates as it is.
  bool leads(const RankState& r) const noexcept {
    return r.outside != nullptr && on_divergence_ == OnDivergence::follow;
  }
  bool tell(RankState& r);  // false: what it asks is not known yet
  void tell(RankState& r, std::int64_t value);
  bool tell_not_ready();
  void tell_not_ready(RankState& r);
  void note_record(RankState& r, std::uint16_t stream, std::int64_t host) noexcept;

  // wall.cc
  void stamp(RankState& r);
  void hold_to_wall(RankState& r);
  void catch_up(RankState& r) {
    if (timed_ != nullptr && r.outside != nullptr && !r.outside->earliest.empty()) catch_up_late(r);
  }
  void catch_up_late(RankState& r) noexcept;
  void pass(RankState& r, std::uint32_t op);
  bool has_started() const noexcept { return origin_ != not_started; }
  void start_clock();
  bool start_held();
  void answer_timed(RankState& r, std::int64_t value);
  bool wait_timed();  // true: something can go on
  void look_up();

  // run_ahead.cc
  bool run_hosts_ahead();
  void add_candidate(RankState& r) {
    if (!std::exchange(r.is_candidate, true)) candidates_.push_back(r.index);
  }
  bool run_ahead(RankState& r);
  bool enter_ahead(RankState& r);
  bool issue(RankState& r, const Step& step);
  std::uint32_t defer(RankState& r, StepKind kind, const Step* step);
  std::uint32_t enqueue(RankState& r, const Step& step);
  void hold_iteration(RankState& r, const Step& step);
  bool wake(RankState& r, std::uint32_t op);
  void settle_or_wait(RankState& r, std::uint32_t op);
  void finish(RankState& r, std::uint32_t op);
  void add_due(RankState& r, std::uint16_t stream);
  void run_due(RankState& r);
  bool take_effect(RankState& r, std::uint16_t s, std::uint32_t op);
  void record_known(RankState& r, std::uint16_t s, const Deferred& record);

  // failure.cc
  void set_up_failures();
  bool stops(RankState& r) noexcept;
  void suppress(RankState& r, Launch& launch);
  void lose(const Handle& collective);
  void lose_if_failed(Message& m);
  bool may_poll_on() noexcept;
  FailureReport failure_report();
  std::int64_t duration_of(const MessageSide& side);
  ProgramFacts so_far(const RankState& r) const;

  // diagnosis.cc
  static std::uint32_t num_blocks(const RankState& r) noexcept;  // that it has come to
  static std::span<const Step> steps_at(const RankState& r, std::uint32_t position) noexcept;
  std::uint32_t recorded_block(const RankState& r, std::uint32_t block) const;
  Place place_of(std::uint32_t i, std::uint32_t block, std::uint32_t op) const;
  Place place_of_collective(std::uint32_t i, std::uint32_t communicator,
                            std::uint64_t number) const;
  // Throws unless the two parts, not equal, may be of one collective.
  void check_meeting(std::uint32_t communicator, std::uint64_t number, const Meeting& m,
                     std::uint32_t i, const Part& part, std::uint32_t block) const;
  [[noreturn]] void message_mismatch(const Message& m) const;
  bool is_deferred(std::uint32_t i, const Handle& handle) const;
  std::uint32_t first_stuck(const RankState& r) const;
  Stuck stuck(std::uint32_t i) const;
  Stuck stuck_in(std::uint32_t i, std::uint32_t op) const;
  bool has_arrived(std::uint32_t i, std::uint32_t communicator, std::uint64_t number) const;
  void check_membership(const Stuck& s) const;
  [[noreturn]] void deadlock(std::uint32_t first) const;
  std::string those_that_left() const;
  std::uint32_t dense(std::uint32_t rank) const noexcept;  // no_node if absent

  // result.cc
  ReplayResult result();

  const Graph& graph_;
  const ReplayOptions& options_;
  OutsideRanks* outside_;
  OnDivergence on_divergence_;
  static constexpr std::int64_t not_started = INT64_MIN;
  TimedRanks* timed_ = nullptr;                               // null: the virtual clock
  std::int64_t origin_ = not_started, latest_ = not_started;  // wall time of the job's time 0
  std::uint32_t passed_ = 0, turn_ = 0;
  Contents contents_;
  Durations durations_;
  Steps folded_, single_;  // single: one step an op
  std::vector<ProgramFacts> programs_;
  std::uint32_t num_streams_ = 1;
  std::uint32_t num_iterations_ = 0;
  bool whole_is_one_ = false;  // no iteration marks: the program's end ends the iteration

  std::vector<RankState> ranks_;
  std::vector<FactorCurve> slow_;  // by dense index, where ranks are slow
  SlowLinks slow_links_;
  std::vector<Slot> slots_;
  std::vector<std::int64_t> clocks_, ring_times_;
  std::vector<std::uint16_t> homes_;
  std::vector<Launch> launches_;
  std::vector<EventRing> rings_;
  std::vector<Unions> rows_;
  std::vector<std::uint64_t> row_begin_;

  std::vector<Meetings> meetings_;  // by communicator
  Mailbox mailbox_;
  WaitLists lists_;
  WaitList runnable_;
  std::uint64_t finished_ = 0;
  // Hosts that run ahead of their devices.
  DeferredOps deferred_;
  std::vector<StreamQueue> queues_;        // by rank and stream, once one has
  std::vector<std::uint32_t> candidates_;  // ranks that blocked or moved since they were asked
  std::vector<std::uint32_t> round_;       // those being asked
  std::vector<std::uint32_t> arrived_;
  std::vector<std::uint16_t> due_;           // streams of one rank
  std::uint64_t arrivals_ = 0;               // of launches
  std::uint64_t polls_ = 0, polled_at_ = 0;  // polls told no since that many arrivals
  std::uint64_t looks_ = 0;                  // at deferred ops
  double costed_transfers_ns_ = 0;           // with a cluster: over all ranks
  double stretched_ns_ = 0;                  // by perturbations, over all ranks
  std::uint64_t differing_durations_ = 0;
  std::vector<std::uint32_t> outside_ranks_;  // dense indices
  std::vector<std::uint64_t> kernel_identities_;
  std::vector<Post> posts_;
  std::vector<Interval> timeline_;
  std::vector<std::string> warnings_;
  std::vector<Span> transfers_;
  std::vector<std::uint32_t> failing_;  // dense indices, ascending
};

}  // namespace prism::engine
