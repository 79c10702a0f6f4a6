// The wall clock: the job's time t is the wall's time origin + t. A process that comes to an op
// later than its host clock says is late, and so is everyone that depends on it; it is told things
// when the wall has come to their time.
#include <algorithm>

#include "engine/replayer.h"

namespace prism::engine {
namespace {

// What a rank waits for may need hosts of ghosts to run ahead of their devices. That is dear, and
// seldom needed while others still post: not before somebody has waited this long.
constexpr std::int64_t patience_ns = 1'000'000;
// Ranks that run are looked after between so many turns of ghosts.
constexpr std::uint32_t turns = 32;

bool is_query(Ask ask) noexcept { return ask == Ask::stream_done || ask == Ask::event_done; }

}  // namespace

// A block begins.
void Replayer::stamp(RankState& r) {
  Outside& o = *r.outside;
  o.earliest.clear();
  o.wall_from = 0;
  if (whole_is_one_ && !o.passed) pass(r, 0);
  if (has_started() && o.passed) hold_to_wall(r);
}

// The host comes to the end of an op no earlier than it was posted, and no earlier than to the end
// of the one before it and its own host time.
void Replayer::hold_to_wall(RankState& r) {
  Outside& o = *r.outside;
  o.earliest.clear();
  for (const Feed::Stamp& s : o.feed.stamps()) {
    if (o.earliest.size() >= o.wall_from) {
      o.earliest_ns = std::max(o.earliest_ns + s.host_ns, s.posted_ns - origin_);
    }
    o.earliest.push_back(o.earliest_ns);
  }
}

// Before a step: its host time is spent on top.
void Replayer::catch_up_late(RankState& r) noexcept {
  Outside& o = *r.outside;
  const Step& step = *r.step;
  const std::uint32_t last = step.kind == StepKind::launch ? step.op + step.count - 1 : step.op;
  const Segment& time = step.time;
  const std::int64_t own = step.kind == StepKind::segment ? time.lead_ns : time.host_ns;
  const std::int64_t late = o.earliest[last] - own - r.clock.host();
  if (late <= 0) return;
  o.late_ns += late;
  r.clock.spend(late);
}

// Until the end of its first iteration a rank sets itself up, in a time that no host clock knows.
// The clock starts when all have come there, so that none of them is late.
void Replayer::pass(RankState& r, std::uint32_t op) {
  if (timed_ == nullptr || r.outside == nullptr || r.outside->passed) return;
  Outside& o = *r.outside;
  o.passed = true;
  o.wall_from = op + 1;
  if (has_started()) return hold_to_wall(r);
  latest_ = std::max(latest_, o.feed.stamps()[op].posted_ns - r.clock.host());
  if (++passed_ == outside_ranks_.size()) start_clock();
}

void Replayer::start_clock() {
  const std::int64_t now = timed_->now();
  for (const std::uint32_t i : outside_ranks_) {
    const RankState& r = ranks_[i];
    // It waits to be told something: it cannot help going on from now only.
    if (r.outside->held || r.outside->asks) latest_ = std::max(latest_, now - r.clock.host());
  }
  origin_ = latest_;
  for (const std::uint32_t i : outside_ranks_) {
    Outside& o = *ranks_[i].outside;
    if (o.passed) hold_to_wall(ranks_[i]);
    if (o.held) timed_->answer_at(o.source, o.held_value, origin_ + o.held_at);
    o.held = false;
  }
}

// Nobody can go on without an answer that is held back.
bool Replayer::start_held() {
  const auto held = [&](std::uint32_t i) { return ranks_[i].outside->held; };
  if (std::none_of(outside_ranks_.begin(), outside_ranks_.end(), held)) return false;
  start_clock();
  return true;
}

void Replayer::answer_timed(RankState& r, std::int64_t value) {
  Outside& o = *r.outside;
  o.patient_until = 0;
  if (has_started()) {
    timed_->answer_at(o.source, value, origin_ + r.clock.host());
  } else if (!o.passed) {
    timed_->answer(o.source, value);
  } else {
    o.held = true;
    o.held_value = value;
    o.held_at = r.clock.host();
  }
}

// Once the wall has passed the host clock of a rank that queries, what is not known to be done is
// not done: whoever could still have done it has come later than that.
bool Replayer::wait_timed() {
  bool moved = false;
  for (const std::uint32_t i : outside_ranks_) {
    RankState& r = ranks_[i];
    if (!r.finished && !r.stopped && !r.outside->hungry && !r.outside->asks) moved |= run_ahead(r);
  }
  if (moved || !runnable_.empty()) return true;
  std::int64_t until = INT64_MAX;
  RankState* first = nullptr;
  for (const std::uint32_t i : outside_ranks_) {
    RankState& r = ranks_[i];
    const Outside& o = *r.outside;
    if (!o.asks || r.stopped || !has_started()) continue;
    const bool query = is_query(o.block.last.ask);
    const std::int64_t host = origin_ + r.clock.host();
    const std::int64_t due = query ? host : std::max(host + patience_ns, o.patient_until);
    if (due >= until) continue;
    until = due;
    first = &r;
  }
  const std::int64_t now = timed_->now();
  if (now < until) {
    timed_->wait_until(until);
    return false;
  }
  if (is_query(first->outside->block.last.ask)) {
    tell_not_ready(*first);
    return false;
  }
  first->outside->patient_until = now + patience_ns;
  return run_hosts_ahead();
}

// Between ghosts that go on: ranks that run must not wait for those that have nothing to do with
// them.
void Replayer::look_up() {
  if (++turn_ % turns != 0) return;
  bool running = false;
  hear(running);
  if (!has_started()) return;
  const std::int64_t now = timed_->now();
  for (const std::uint32_t i : outside_ranks_) {
    RankState& r = ranks_[i];
    if (!r.outside->asks || r.stopped || !is_query(r.outside->block.last.ask)) continue;
    if (now > origin_ + r.clock.host()) tell_not_ready(r);
  }
}

}  // namespace prism::engine
