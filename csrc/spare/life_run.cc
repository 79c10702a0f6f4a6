#include "spare/life_run.h"

#include <algorithm>

#include "base/check.h"

namespace prism::spare {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

}  // namespace

LifeRun::LifeRun(const LifeOptions& options, const Placement* placement, std::uint64_t seed,
                 const std::atomic<bool>& stopped)
    : options_(options),
      stopped_(stopped),
      limit_ns_(options.time_limit_ns()),
      policy_(make_policy(options, placement)),
      clock_(options, seed),
      step_time_(options, policy_->parts(), seed),
      pool_(options),
      down_(at(options.groups), 0),
      ready_ns_(at(options.groups), 0) {
  trial_.seed = seed;
  trial_.ideal_ns = options.ideal_ns();
  due_.reserve(at(options.groups));
  failed_.reserve(at(options.groups));
  joining_.reserve(at(options.groups));
}

LifeTrial LifeRun::run() {
  while (step_ < options_.steps && !out_of_bounds()) {
    if (pool_.used()) rejoin();
    if (step() == End::kWipedOut) {
      restart();
      continue;
    }
    policy_->commit();
    trial_.compute_sum += static_cast<double>(step_parts_) / policy_->parts();
    ++trial_.compute_count;
    note(EventKind::kStep, step_);
    ++step_;
    if (options_.checkpoint_steps > 0 && step_ % options_.checkpoint_steps == 0) checkpoint();
  }
  keep_pending();
  trial_.finished = step_ >= options_.steps;
  trial_.steps_done = step_;
  trial_.total_ns = now_ns_;
  PRISM_CHECK(trial_.split.total_ns() == now_ns_);
  trial_.availability = availability();
  return std::move(trial_);
}

LifeRun::End LifeRun::step() {
  step_parts_ = 0;
  bool through = phase(policy_->work(), false);
  while (!through) {
    const Reaction reaction = react();
    if (reaction.kind == Reaction::Kind::kWipeOut) return End::kWipedOut;
    charge_reaction(reaction.kind);
    if (reaction.kind == Reaction::Kind::kCovered && options_.quirks.free_commit_when_covered) {
      break;
    }
    if (out_of_bounds()) break;
    through = phase(policy_->patch(), true);
  }
  return End::kCommitted;
}

bool LifeRun::phase(Workload& work, bool patch) {
  const std::int64_t start_ns = now_ns_;
  const std::int32_t fullest = compute(work);
  charge_compute(now_ns_ - start_ns, fullest, patch);
  if (!options_.quirks.allreduce_cannot_fail) add_failures_in_allreduce();
  if (failed_.empty()) {
    now_ns_ += options_.allreduce_ns;
    charge(TimePart::kAllreduce, options_.allreduce_ns);
    return true;
  }
  if (static_cast<std::int32_t>(failed_.size()) < work.in_service()) {
    const std::int64_t lost_ns = options_.quirks.half_price_failed_allreduce
                                     ? options_.allreduce_ns / 2
                                     : options_.allreduce_ns;
    now_ns_ += lost_ns;
    charge(TimePart::kFailedAllreduce, lost_ns);
  }
  // The replication scan of the published simulator stops at the first dead rank; the others are
  // found in the steps that follow. Somebody must be left to scan.
  if (options_.policy == Policy::kReplication && options_.quirks.replication_one_failure_per_step &&
      static_cast<std::int32_t>(failed_.size()) < work.in_service()) {
    failed_.front() = *std::min_element(failed_.begin(), failed_.end());
    failed_.resize(1);
  }
  return false;
}

std::int32_t LifeRun::compute(Workload& work) {
  // A group is missed if it fails before it meets the others. Groups whose failure may be that near
  // are drawn one by one; of all others only the slowest matters.
  const std::int64_t start_ns = now_ns_;
  std::int64_t end_ns = start_ns;
  std::int64_t last_failure_ns = start_ns;
  std::int32_t fullest = 0;
  failed_.clear();
  clock_.due(start_ns + step_time_.longest_ns(work.largest()), due_);
  for (const std::int32_t group : due_) {
    const std::int32_t load = work.load(group);
    const std::int64_t meets_ns = start_ns + step_time_.draw_ns(load);
    work.take(load);
    if (clock_.next(group) <= meets_ns) {
      failed_.push_back(group);
      last_failure_ns = std::max(last_failure_ns, clock_.next(group));
    } else {
      end_ns = std::max(end_ns, meets_ns);
      fullest = std::max(fullest, load);
    }
  }
  end_ns = std::max(end_ns, start_ns + step_time_.slowest_ns(work));
  fullest = std::max(fullest, work.largest_counted());
  for (const std::int32_t group : due_) work.give(work.load(group));
  const bool none_left = static_cast<std::int32_t>(failed_.size()) == work.in_service();
  now_ns_ = none_left ? last_failure_ns : end_ns;
  return fullest;
}

void LifeRun::add_failures_in_allreduce() {
  clock_.due(now_ns_ + options_.allreduce_ns, due_);
  const std::size_t before = failed_.size();
  for (const std::int32_t group : due_) {
    const auto known = failed_.begin() + static_cast<std::ptrdiff_t>(before);
    if (std::find(failed_.begin(), known, group) == known) failed_.push_back(group);
  }
}

void LifeRun::charge_compute(std::int64_t elapsed_ns, std::int32_t fullest, bool patch) {
  const std::int64_t planned_ns = step_time_.planned_ns(fullest);
  step_parts_ += fullest;
  if (patch) {
    charge(TimePart::kPatch, planned_ns);
  } else {
    const std::int64_t first_ns = std::min(planned_ns, options_.layer_ns);
    charge(TimePart::kCompute, first_ns);
    charge(TimePart::kRedundant, planned_ns - first_ns);
  }
  charge(TimePart::kJitter, elapsed_ns - planned_ns);
}

Reaction LifeRun::react() {
  std::sort(failed_.begin(), failed_.end(), [this](std::int32_t a, std::int32_t b) {
    return clock_.next(a) != clock_.next(b) ? clock_.next(a) < clock_.next(b) : a < b;
  });
  for (const std::int32_t group : failed_) {
    note(EventKind::kFailure, group);
    pool_.fail(group, clock_.next(group));
    clock_.strike(group);
    down_[at(group)] = 1;
  }
  const auto count = static_cast<std::int64_t>(failed_.size());
  trial_.failures += count;
  const Reaction reaction = policy_->fail(failed_);
  endured_ += reaction.endured;
  if (reaction.kind != Reaction::Kind::kWipeOut) {
    trial_.depth_sum += static_cast<double>(count) * policy_->depth() / policy_->parts();
    trial_.depth_count += count;
    ++(reaction.kind == Reaction::Kind::kCovered ? trial_.covered : trial_.reorders);
  }
  return reaction;
}

void LifeRun::charge_reaction(Reaction::Kind kind) {
  std::int64_t cost_ns = options_.reorder_ns + options_.shrink_ns;
  if (options_.quirks.one_charge_per_failure) {
    cost_ns = kind == Reaction::Kind::kCovered ? options_.shrink_ns : options_.reorder_ns;
  }
  now_ns_ += cost_ns;
  trial_.recovery_ns += cost_ns;
  charge(TimePart::kRecovery, cost_ns);
}

std::int32_t LifeRun::leader() {
  std::int32_t group = 0;
  while (group < options_.groups && down_[at(group)] != 0) ++group;
  return group;
}

void LifeRun::checkpoint() {
  const std::int64_t writer_fails_ns = clock_.next(leader());
  if (options_.quirks.skip_checkpoint_when_leader_due && writer_fails_ns <= now_ns_) return;
  now_ns_ += options_.checkpoint_ns;
  trial_.split[TimePart::kCheckpoint] += options_.checkpoint_ns;
  if (!options_.quirks.skip_checkpoint_when_leader_due && writer_fails_ns <= now_ns_) return;
  ++trial_.checkpoints;
  keep_pending();
  counted_steps_ = step_;
  saved_step_ = options_.quirks.restart_redoes_a_step ? step_ - 1 : step_;
  note(EventKind::kCheckpoint, saved_step_);
}

void LifeRun::keep_pending() {
  for (std::size_t part = 0; part < kTimeParts; ++part) {
    trial_.split.ns[part] += pending_.ns[part];
    pending_.ns[part] = 0;
  }
}

void LifeRun::restart() {
  note(EventKind::kWipeOut, step_);
  ++trial_.wipeouts;
  trial_.endured += endured_;
  endured_ = 0;
  trial_.split[TimePart::kRework] += pending_.total_ns();
  pending_ = {};
  const std::int64_t end_ns = restart_until_all_are_up();
  trial_.split[TimePart::kRestart] += end_ns - now_ns_;
  now_ns_ = end_ns;
  ++trial_.restarts;
  step_ = saved_step_;
  policy_->restart();
  pool_.restart();
  note(EventKind::kRestart, step_);
}

std::int64_t LifeRun::restart_until_all_are_up() {
  const std::int64_t window_ns = options_.restart_ns + options_.load_ns;
  for (std::int32_t group = 0; group < options_.groups; ++group) {
    if (down_[at(group)] == 0) continue;
    clock_.revive(group, now_ns_, !options_.quirks.clocks_run_while_down);
    down_[at(group)] = 0;
  }
  std::fill(ready_ns_.begin(), ready_ns_.end(), now_ns_ + window_ns);
  std::int64_t end_ns = now_ns_ + window_ns;
  joining_.clear();  // fail while they wait for others: the first step will find them gone
  while (!out_of_bounds() && end_ns < limit_ns_) {
    const std::int32_t group = clock_.earliest(end_ns - 1);
    if (group < 0) break;
    const std::int64_t fails_ns = clock_.next(group);
    if (fails_ns >= ready_ns_[at(group)]) {
      clock_.hide(group);
      joining_.push_back(group);
      continue;
    }
    ++trial_.restart_failures;
    ready_ns_[at(group)] = std::max(now_ns_, fails_ns) + window_ns;
    end_ns = std::max(end_ns, ready_ns_[at(group)]);
    clock_.strike(group);
    clock_.revive(group, fails_ns, false);
  }
  for (const std::int32_t group : joining_) clock_.show(group);
  return end_ns;
}

void LifeRun::rejoin() {
  joining_.clear();
  pool_.collect(now_ns_, joining_);
  if (joining_.empty()) return;
  std::sort(joining_.begin(), joining_.end());
  for (const std::int32_t group : joining_) {
    clock_.revive(group, now_ns_, true);
    down_[at(group)] = 0;
    note(EventKind::kRejoin, group);
  }
  policy_->rejoin(joining_);
  trial_.rejoined += static_cast<std::int64_t>(joining_.size());
  now_ns_ += options_.rejoin_ns;
  charge(TimePart::kRejoin, options_.rejoin_ns);
}

bool LifeRun::out_of_bounds() const {
  return now_ns_ > limit_ns_ || trial_.failures + trial_.restart_failures > kMostFailures ||
         stopped_.load(std::memory_order_relaxed);
}

double LifeRun::availability() const {
  if (now_ns_ == 0) return 1.0;
  const TimeSplit& split = trial_.split;
  std::int64_t available_ns = now_ns_ - split[TimePart::kRestart] - trial_.recovery_ns;
  if (!options_.quirks.availability_ignores_rework) {
    available_ns = split[TimePart::kCompute] + split[TimePart::kRedundant] +
                   split[TimePart::kJitter] + split[TimePart::kAllreduce];
  }
  return static_cast<double>(available_ns) / static_cast<double>(now_ns_);
}

void LifeRun::charge(TimePart part, std::int64_t ns) {
  if (step_ < counted_steps_) {
    trial_.split[TimePart::kRework] += ns;
  } else {
    pending_[part] += ns;
  }
}

void LifeRun::note(EventKind kind, std::int64_t value) {
  if (options_.record_events) trial_.events.push_back({now_ns_, kind, value});
}

}  // namespace prism::spare
