// Where no rank can go on. The common path stops a rank at the first clock it cannot read; a real
// host stops only where it synchronises, and may first launch what a peer needs. Here the host goes
// on and its ops queue behind the streams that wait, with the host time of their issue.
//
// An op is looked at when it becomes the first of its stream, and again only when what it waits for
// has come: a launch when its partner wakes it, a wait when its record takes effect. So a run-ahead
// costs the same for each op, however long it is.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/replayer.h"

namespace prism::engine {

// Lets the hosts of waiting ranks go on, each until something of it has arrived somewhere.
// False: none has.
bool Replayer::run_hosts_ahead() {
  for (const std::uint32_t i : outside_ranks_) {
    if (!ranks_[i].outside->hungry) add_candidate(ranks_[i]);
  }
  std::swap(candidates_, round_);
  bool moved = false;
  for (const std::uint32_t i : round_) {
    RankState& r = ranks_[i];
    r.is_candidate = false;
    if (r.finished || !run_ahead(r)) continue;
    add_candidate(r);
    moved = true;
  }
  round_.clear();
  return moved;
}

bool Replayer::run_ahead(RankState& r) {
  const std::uint64_t before = arrivals_;
  if (r.deferred == 0) {
    // One that was woken in this round goes on by itself.
    if (r.waits && met(r.launches[r.stuck_on])) return false;
    if (!enter_ahead(r)) return true;
  }
  while (arrivals_ == before) {
    if (r.step == r.steps_end) {
      if (!next_block(r)) break;  // the program has ended, its device has not
      continue;
    }
    catch_up(r);
    if (r.fails && stops(r)) continue;
    const std::int64_t host = r.clock.host();
    if (!issue(r, *r.step)) break;
    if (r.shown) show_host(r, *r.step, host);
    ++r.step;
  }
  return arrivals_ != before;
}

// What the common path left open becomes the first ops of their streams. False: nothing was, the
// rank goes on where it is.
bool Replayer::enter_ahead(RankState& r) {
  if (queues_.empty()) queues_.resize(ranks_.size() * num_streams_);
  r.queues = queues_.data() + std::size_t{r.index} * num_streams_;
  for (std::uint16_t s = 0; s < num_streams_; ++s) {
    if (r.homes[s] != s) continue;
    const std::uint32_t op = defer(r, StepKind::launch, r.launches[s].step);
    Launch& l = deferred_.take_launch(op);
    std::swap(l, r.launches[s]);
    deferred_[op].block = l.block;
    for (const Part& part : parts(*l.step)) deferred_.append(r.queues[part.stream], op);
    if (r.waits && r.stuck_on == s) {
      r.stuck_op = op;  // the rank's own node stands for it
    } else {
      arrived_.push_back(op);
    }
  }
  for (std::uint16_t s = 0; s < num_streams_; ++s) {
    r.homes[s] = no_stream;
    EventRing& ring = r.rings[s];
    for (; ring.open != 0; --ring.open) {
      const std::uint64_t number = ring.count - ring.open;
      if (!ring.holds(number)) continue;
      const std::uint32_t op = defer(r, StepKind::record, nullptr);
      deferred_[op].stream = s;
      deferred_[op].number = number;
      deferred_.append(r.queues[s], op);
      ring.at(number) = EventRing::behind(op);
    }
  }
  r.pending = 0;
  for (const std::uint32_t op : arrived_) settle_or_wait(r, op);
  arrived_.clear();
  run_due(r);
  if (r.deferred != 0) return true;
  PRISM_CHECK(!r.waits);  // its own launch would have been left
  r.waits = true;
  lists_.append(runnable_, r.index);
  return false;
}

std::uint32_t Replayer::defer(RankState& r, StepKind kind, const Step* step) {
  const std::uint32_t op = deferred_.take();
  Deferred& d = deferred_[op];
  d.kind = kind;
  d.step = step;
  d.stream = step == nullptr ? std::uint16_t{0} : step->stream;
  d.block = r.position;
  d.host_ns = r.clock.host();
  ++r.deferred;
  return op;
}

// A partner of a deferred launch has come. True: nothing is left, the rank is back on the common
// path.
bool Replayer::wake(RankState& r, std::uint32_t op) {
  settle_or_wait(r, op);
  run_due(r);
  if (r.deferred != 0) add_candidate(r);  // its host may have waited for what has ended now
  return r.deferred == 0;
}

// A launch that has arrived ends once all its partners have; until then it waits for one of them.
void Replayer::settle_or_wait(RankState& r, std::uint32_t op) {
  ++looks_;
  Launch& l = deferred_.launch(op);
  if (!met(l)) {
    lists_.append(waiters(l.handle(l.next)), lists_.take_extra(r.index, op));
    return;
  }
  settle(r, l);
  for (const Part& part : parts(*l.step)) {
    StreamQueue& queue = r.queues[part.stream];
    if (!deferred_.is_first(queue, op)) continue;  // an earlier part has left it
    deferred_.pop(queue);
    add_due(r, part.stream);
  }
  finish(r, op);
}

void Replayer::finish(RankState& r, std::uint32_t op) {
  deferred_.give_back(op);
  --r.deferred;
}

void Replayer::add_due(RankState& r, std::uint16_t stream) {
  if (std::exchange(r.queues[stream].due, true)) return;
  due_.push_back(stream);
}

void Replayer::run_due(RankState& r) {
  while (!due_.empty()) {
    const std::uint16_t s = due_.back();
    due_.pop_back();
    StreamQueue& queue = r.queues[s];
    queue.due = false;
    while (!queue.empty() && take_effect(r, s, deferred_.first(queue))) deferred_.pop(queue);
  }
}

// The first op of stream s. True: it has left the stream.
bool Replayer::take_effect(RankState& r, std::uint16_t s, std::uint32_t op) {
  ++looks_;
  Deferred& d = deferred_[op];
  if (d.kind == StepKind::iteration) {
    d.time_ns = std::max(d.time_ns, r.clock.stream(s));
    if (--d.held != 0) return true;
    if (ends_iteration(r, d.time_ns)) {
      r.ledger.close_held_iteration(d.time_ns);
    } else {
      r.ledger.drop_held_iteration();
    }
    finish(r, op);
    return true;
  }
  if (d.kind == StepKind::launch) {
    if (--d.held != 0) return false;
    const std::int64_t host = r.clock.exchange_host(d.host_ns);
    r.clock.spend(d.step->time.host_ns);
    arrive(r, deferred_.launch(op));
    r.clock.exchange_host(host);
    settle_or_wait(r, op);
    return false;  // if it has ended, the stream is due again
  }
  if (d.kind == StepKind::wait && !EventRing::is_known(d.time_ns)) return false;
  const std::int64_t host = r.clock.exchange_host(d.host_ns);
  const std::uint32_t position = std::exchange(r.position, d.block);
  switch (d.kind) {
    case StepKind::segment: {
      const std::uint64_t issued = std::exchange(r.kernels, d.number);
      segment(r, *d.step, false);
      r.kernels = issued;
      break;
    }
    case StepKind::callback:
      callback(r, *d.step);
      break;
    case StepKind::wait:
      r.clock.wait(s, d.time_ns);
      break;
    case StepKind::record:
      record_known(r, s, d);
      break;
    default:
      PRISM_CHECK(false);
  }
  r.clock.exchange_host(host);
  r.position = position;
  finish(r, op);
  return true;
}

void Replayer::record_known(RankState& r, std::uint16_t s, const Deferred& d) {
  const std::int64_t time = r.clock.record(s);
  EventRing& ring = r.rings[s];
  if (ring.holds(d.number)) ring.at(d.number) = time;
  for (std::uint32_t at = d.waits; at != no_node;) {
    Deferred& wait = deferred_[at];
    wait.time_ns = time;
    if (deferred_.is_first(r.queues[wait.stream], at)) add_due(r, wait.stream);
    at = wait.waits;
  }
}

// One op of a host that is ahead. False: the host itself must wait.
bool Replayer::issue(RankState& r, const Step& step) {
  const auto known = [&](std::uint16_t s) { return r.queues[s].empty(); };
  switch (step.kind) {
    case StepKind::host:
      r.clock.spend(step.time.host_ns);
      return true;
    case StepKind::sync_stream:
      if (!known(step.stream)) return false;
      r.clock.spend(step.time.host_ns);
      r.clock.sync_stream(step.stream);
      return true;
    case StepKind::sync_device:
      return false;  // something is not done, or the rank would not be ahead
    case StepKind::sync_event: {
      EventRing& ring = r.rings[step.event_stream];
      const bool exists = step.count <= ring.count;
      const std::int64_t time = exists ? ring.at(ring.count - step.count) : 0;
      if (!EventRing::is_known(time)) return false;
      r.clock.spend(step.time.host_ns);
      r.clock.sync_event(time);
      return true;
    }
    case StepKind::record: {
      EventRing& ring = r.rings[step.stream];
      std::int64_t time = 0;
      if (ring.times == nullptr || known(step.stream)) {
        r.clock.spend(step.time.host_ns);
        time = r.clock.record(step.stream);
      } else {
        const std::uint32_t op = enqueue(r, step);
        deferred_[op].number = ring.count;
        time = EventRing::behind(op);
      }
      if (ring.times == nullptr) return true;  // no op looks at this stream's records
      if (r.outside != nullptr) note_record(r, step.stream, r.clock.host());
      ring.push(time);
      return true;
    }
    case StepKind::wait: {
      EventRing& ring = r.rings[step.event_stream];
      const bool exists = step.count <= ring.count;
      const std::int64_t time = exists ? ring.at(ring.count - step.count) : 0;
      if (!exists || (EventRing::is_known(time) && known(step.stream))) {
        r.clock.spend(step.time.host_ns);
        if (exists) r.clock.wait(step.stream, time);
        return true;
      }
      const std::uint32_t op = enqueue(r, step);
      Deferred& wait = deferred_[op];
      wait.time_ns = time;
      if (!EventRing::is_known(time)) {
        Deferred& record = deferred_[EventRing::op_of(time)];
        wait.waits = std::exchange(record.waits, op);
      }
      return true;
    }
    case StepKind::iteration:
      r.clock.spend(step.time.host_ns);
      hold_iteration(r, step);
      pass(r, step.op);
      return true;
    case StepKind::segment:
    case StepKind::callback:
      if (known(step.stream)) {
        step.kind == StepKind::segment ? segment(r, step, false) : callback(r, step);
        return true;
      }
      if (step.kind == StepKind::segment && step.time.syncs()) return false;
      deferred_[enqueue(r, step)].number = r.kernels;
      r.kernels += step.kernel ? 1 : 0;
      return true;
    case StepKind::launch: {
      const std::uint32_t op = defer(r, step.kind, &step);
      Launch& l = deferred_.take_launch(op);
      enrol(r, step, l);
      std::uint32_t held = 0;
      for (const Part& part : parts(step)) {
        StreamQueue& queue = r.queues[part.stream];
        const bool first = queue.empty();
        if (deferred_.append(queue, op) && !first) ++held;
      }
      deferred_[op].held = held;
      r.clock.spend(step.time.host_ns);
      if (held == 0) {
        arrive(r, l);
        settle_or_wait(r, op);
        run_due(r);
      }
      return true;
    }
  }
  return true;
}

// Puts an op behind those of its stream; the host does not wait for it.
std::uint32_t Replayer::enqueue(RankState& r, const Step& step) {
  const std::uint32_t op = defer(r, step.kind, &step);
  deferred_.append(r.queues[step.stream], op);
  r.clock.spend(step.time.host_ns);
  return op;
}

// The iteration ends when all streams have come to where they are now.
void Replayer::hold_iteration(RankState& r, const Step& step) {
  const std::uint32_t op = defer(r, step.kind, &step);
  std::int64_t end = r.clock.host();
  std::uint32_t held = 0;
  for (std::uint16_t s = 0; s < num_streams_; ++s) {
    if (r.queues[s].empty()) {
      end = std::max(end, r.clock.stream(s));
    } else {
      deferred_.append(r.queues[s], op);
      ++held;
    }
  }
  PRISM_CHECK(held != 0);  // else the rank would not be ahead
  deferred_[op].time_ns = end;
  deferred_[op].held = held;
  r.ledger.hold();
}

}  // namespace prism::engine
