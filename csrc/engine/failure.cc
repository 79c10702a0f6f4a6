// Ranks that fail: when they stop, what is lost with them, and who waits for them.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "engine/replayer.h"

namespace prism::engine {
namespace {

// A rank may poll for what nobody will do. Where nobody can go on, so many answers without a launch
// anywhere are taken for that: a rank in a loop that nothing ends.
constexpr std::uint64_t most_polls = 1'000'000;

}  // namespace

void Replayer::set_up_failures() {
  for (const RankFailure& failure : options_.perturbation.failures) {
    RankState& r = ranks_[dense(failure.rank)];
    r.table = &single_;
    r.fails = true;
    r.fails_ns = std::min(r.fails_ns, failure.at_ns);
    failing_.push_back(r.index);
  }
  std::sort(failing_.begin(), failing_.end());
  failing_.erase(std::unique(failing_.begin(), failing_.end()), failing_.end());
}

// Whether the host comes to its next step only when it has failed: its program ends there. What it
// has launched goes on as long as the device may.
bool Replayer::stops(RankState& r) noexcept {
  if (r.clock.host() + r.step->time.host_ns < r.fails_ns) return false;
  r.stopped = r.failed = true;
  r.steps_end = r.step;
  r.num_blocks = r.position + 1;
  return true;
}

// A launch that its device would come to after it failed: its partners wait for ever, and so does
// the receiver of a message that would not have waited.
void Replayer::suppress(RankState& r, Launch& l) {
  r.failed = true;
  for (std::uint32_t k = 0; k < l.size(); ++k) {
    const Handle& h = l.handle(k);
    if (!h.message) {
      meetings_[h.id].open(h.number);
    } else if (h.sends) {
      mailbox_.at(h.id).eager = false;
    }
  }
}

// A collective in which all have arrived and that a member fails in.
void Replayer::lose(const Handle& h) {
  Meeting& m = meetings_[h.id].at(h.number);
  m.arrived = Meetings::lost;
  for (const std::uint32_t i : failing_) {
    RankState& r = ranks_[i];
    const bool before = m.ready_ns >= r.fails_ns || m.ready_ns + m.duration_ns > r.fails_ns;
    const std::span slots(r.slots, r.num_slots);
    r.failed |= before && std::any_of(slots.begin(), slots.end(),
                                      [&](const Slot& slot) { return slot.communicator == h.id; });
  }
}

std::int64_t Replayer::duration_of(const MessageSide& side) {
  const Slot& slot = ranks_[side.rank].slots[side.part->slot];
  return durations_.of(*side.part, slot.communicator, slot.position);
}

// A message whose sender or receiver fails before it has moved. (A receive of an eager message that
// fails is of no matter to its sender.)
void Replayer::lose_if_failed(Message& m) {
  if (m.send.ready_ns == MessageSide::not_ready || (!m.eager && !m.both_ready())) return;
  std::int64_t start = m.send.ready_ns, duration = duration_of(m.send);
  if (!m.eager) {
    start = std::max(start, m.receive.ready_ns);
    const Part* led = leading(m);
    if (led != m.send.part) {
      const std::int64_t theirs = duration_of(m.receive);
      duration = led == nullptr ? std::max(duration, theirs) : theirs;
    }
  }
  RankState& sender = ranks_[m.send.rank];
  if (slow_links_.any()) {
    const Slot& slot = sender.slots[m.send.part->slot];
    const auto size = std::uint64_t{meetings_[slot.communicator].size()};
    const auto peer =
        static_cast<std::uint32_t>((slot.position + std::uint64_t{m.send.part->peer}) % size);
    duration =
        stretch(duration, slow_links_.of_message(slot.communicator, slot.position, peer, start));
  }
  const auto lose_at = [&](RankState& r) {
    if (start < r.fails_ns && start + duration <= r.fails_ns) return;
    m.lost = r.failed = true;
  };
  lose_at(sender);
  if (!m.eager) lose_at(ranks_[m.receive.rank]);
}

bool Replayer::may_poll_on() noexcept {
  if (std::exchange(polled_at_, arrivals_) != arrivals_) polls_ = 0;
  return ++polls_ <= most_polls && outside_->is_patient();
}

// All that a rank's host has issued; of a rank outside, whole blocks.
ProgramFacts Replayer::so_far(const RankState& r) const {
  ProgramFacts sum;
  const bool inside = r.stopped || r.step != r.steps_end;
  const std::uint32_t begun = r.position + 1;  // blocks
  for (std::uint32_t p = 0; p + (inside ? 1 : 0) < begun; ++p) {
    sum.add(r.outside == nullptr ? folded_.facts[r.blocks[p]]
                                 : r.outside->blocks[p]->facts.front());
  }
  if (!inside) return sum;
  if (r.outside != nullptr) return sum;
  std::vector<Op> ops;
  graph_.read_block(r.blocks[r.position], ops);
  std::size_t issued = r.step->op;
  if (r.stopped && r.clock.host() >= r.fails_ns) {  // nothing behind the step that took it there
    const Step* first = r.table->of(r.blocks[r.position]).data();
    issued = r.step == first ? 0 : (r.step - 1)->op + std::size_t{1};
  }
  // A host that waits does at a synchronisation; one folded into kernels comes behind them.
  const auto waits = [](const Op& op) { return is_host_sync(op.kind) || op.is_blocking(); };
  while (!r.stopped && issued < ops.size() && !waits(ops[issued])) ++issued;
  sum.ops += issued;
  for (const Op& op : std::span(ops).first(issued)) {
    if (op.kind == OpKind::allocate) sum.live_bytes += op.bytes;
    if (op.kind == OpKind::free) sum.live_bytes -= op.bytes;
    sum.peak_bytes = std::max(sum.peak_bytes, sum.live_bytes);
    const auto source = static_cast<std::size_t>(op.provenance());
    const bool computes =
        op.kind == OpKind::kernel || op.kind == OpKind::copy || op.kind == OpKind::set;
    if (computes) sum.compute_ns[source] += static_cast<double>(op.duration_ns);
    if (is_communication(op.kind)) sum.transfer_ns[source] += static_cast<double>(op.duration_ns);
  }
  return sum;
}

// DeadlockError if some rank waits and no failure is behind it, unless that is to be a result.
FailureReport Replayer::failure_report() {
  FailureReport report;
  for (RankState& r : ranks_) {
    r.ledger.drop_held_iterations();
    report.iterations.push_back(r.ledger.iterations());
  }
  std::vector<std::uint32_t> next;  // ranks whose failure explains others
  constexpr std::uint32_t none = no_node;
  std::vector<std::uint32_t> because(ranks_.size(), none);  // the failed rank nearest behind each
  for (const std::uint32_t i : failing_) {
    const RankState& r = ranks_[i];
    // One that waits for others until it fails is behind nothing.
    if (r.failed || !r.finished) report.failed.push_back({r.rank, r.fails_ns});
    if (!r.failed) continue;
    because[i] = i;
    next.push_back(i);
  }
  // What waits: a collective once for all of its members, and which ranks it waits for.
  using Key = std::tuple<bool, std::uint32_t, std::uint64_t, std::uint32_t>;
  struct Open {
    Stuck what;
    std::vector<std::uint32_t> waiting;  // all whose streams it holds
    std::vector<WaitingRank> first;      // those whose first it is
  };
  std::map<Key, Open> waits;
  const auto open = [&](std::uint32_t i, std::uint32_t op) -> Open& {
    const Launch& l = deferred_.launch(op);
    const Handle& h = l.handle(l.next);
    const Key key = h.message ? Key{true, h.id, 0, i} : Key{false, h.id, h.number, 0};
    const auto [at, added] = waits.try_emplace(key);
    if (added) at->second.what = stuck_in(i, op);
    return at->second;
  };
  for (std::uint32_t i = 0; i < ranks_.size(); ++i) {
    const RankState& r = ranks_[i];
    if (r.finished || because[i] != none) continue;
    for (std::uint16_t s = 0; s < num_streams_; ++s) {
      if (r.queues[s].empty()) continue;
      const std::uint32_t op = deferred_.first(r.queues[s]);
      if (deferred_[op].kind != StepKind::launch || deferred_[op].held != 0) continue;
      open(i, op).waiting.push_back(i);
    }
    const std::uint32_t op = first_stuck(r);
    const Launch& l = deferred_.launch(op);
    Open& first = open(i, op);
    const Place place = place_of(i, l.block, parts(*l.step)[l.next].op);
    first.first.push_back({r.rank, place.op, std::string(place.call_site), l.ready_ns});
  }
  std::map<std::uint32_t, std::vector<Open*>> waits_for;  // by rank that has not come
  for (auto& [key, wait] : waits) {
    for (const std::uint32_t i : wait.what.missing) waits_for[i].push_back(&wait);
  }
  for (std::size_t k = 0; k < next.size(); ++k) {
    const auto found = waits_for.find(next[k]);
    if (found == waits_for.end()) continue;
    for (Open* wait : found->second) {
      for (const std::uint32_t i : wait->waiting) {
        if (because[i] != none) continue;
        because[i] = because[next[k]];
        next.push_back(i);
      }
    }
  }
  for (const RankState& r : ranks_) {
    if (options_.keep_stuck) break;
    if (!r.finished && because[r.index] == none) deadlock(r.index);
  }
  for (auto& [key, wait] : waits) {
    if (wait.first.empty()) continue;
    const Stuck& what = wait.what;
    Wait& out = report.waits.emplace_back();
    out.communicator = graph_.communicator(what.communicator).name;
    out.op = describe(*what.place.part);
    out.number = what.message ? 0 : what.number;
    out.message = what.message;
    std::set<std::uint32_t> failed;
    for (const std::uint32_t i : what.missing) {
      out.missing.push_back(ranks_[i].rank);
      if (because[i] == i) failed.insert(ranks_[i].rank);
    }
    for (const WaitingRank& waiting : wait.first) {
      const std::uint32_t behind = because[dense(waiting.rank)];
      if (!failed.empty() || behind == none) break;
      failed.insert(ranks_[behind].rank);
    }
    out.failed.assign(failed.begin(), failed.end());
    out.ranks = std::move(wait.first);
  }
  // Those that have waited longest first: they stand nearest to the failure.
  const auto since = [](const Wait& wait) {
    return std::min_element(wait.ranks.begin(), wait.ranks.end(),
                            [](const auto& a, const auto& b) { return a.since_ns < b.since_ns; })
        ->since_ns;
  };
  std::stable_sort(report.waits.begin(), report.waits.end(),
                   [&](const Wait& a, const Wait& b) { return since(a) < since(b); });
  return report;
}

}  // namespace prism::engine
