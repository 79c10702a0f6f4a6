#include "engine/replayer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace prism::engine {

ReplayResult Replayer::run() {
  for (std::uint32_t i = 0; i < ranks_.size(); ++i) lists_.append(runnable_, i);
  for (;;) {
    while (!runnable_.empty()) {
      const std::uint32_t node = lists_.pop(runnable_);
      const std::uint32_t i = lists_.rank_of(node);
      RankState& r = ranks_[i];
      if (lists_.is_extra(node)) {
        lists_.give_back(node);
        if (r.ahead == nullptr) continue;  // it went on already
      } else {
        r.waits = false;
      }
      if (!runnable_.empty()) __builtin_prefetch(&ranks_[lists_.rank_of(runnable_.head)]);
      run_rank(i);
    }
    if (finished_ == ranks_.size()) break;
    // Every rank waits. Hosts run ahead of their devices: let them, as far as they can.
    bool moved = false;
    for (std::uint32_t i = 0; i < ranks_.size(); ++i) {
      if (!ranks_[i].finished) moved |= run_ahead(i);
    }
    if (!moved && runnable_.empty()) deadlock();
  }
  return result();
}

bool Replayer::next_block(RankState& r) noexcept {
  if (r.position + 1 >= r.num_blocks) return false;
  ++r.position;
  const auto steps = r.table->of(r.blocks[r.position]);
  r.step = steps.data();
  r.steps_end = r.step + steps.size();
  return true;
}

void Replayer::run_rank(std::uint32_t i) {
  RankState& r = ranks_[i];
  if (r.finished) return;
  if (r.ahead != nullptr && !look_again(i, r)) return;
  for (;;) {
    for (; r.step != r.steps_end; ++r.step) {
      const std::int64_t host = r.clock.host();
      if (!run_step(i, r, *r.step)) return;
      if (r.shown) show_host(r, *r.step, host);
    }
    if (r.ledger.full()) trim(r);
    if (next_block(r)) continue;
    std::uint16_t stuck = no_stream;
    if (!resolve_all(r, stuck)) {
      block(i, r, stuck);
      return;
    }
    if (whole_is_one_) close_iteration(r, r.clock.latest());
    r.finished = true;
    ++finished_;
    return;
  }
}

bool Replayer::run_step(std::uint32_t i, RankState& r, const Step& step) {
  switch (step.kind) {
    case StepKind::segment:
      if (r.pending != 0) {
        if (!resolve(r, step.stream)) return block(i, r, step.stream);
        segment(r, step, r.pending == 0);
      } else {
        segment(r, step, true);
      }
      return true;
    case StepKind::host:
      r.clock.spend(step.time.host_ns);
      return true;
    case StepKind::record: {
      r.clock.spend(step.time.host_ns);
      EventRing& ring = r.rings[step.stream];
      if (ring.times == nullptr) return true;  // no op looks at this stream's records
      if (r.pending != 0 && !resolve(r, step.stream)) {
        ring.push(EventRing::unknown);
        ++ring.open;
      } else {
        ring.push(r.clock.record(step.stream));
      }
      return true;
    }
    case StepKind::wait:
    case StepKind::sync_event: {
      EventRing& ring = r.rings[step.event_stream];
      if (r.pending != 0) {
        if (step.kind == StepKind::wait && !resolve(r, step.stream)) {
          return block(i, r, step.stream);
        }
        if (step.count <= ring.open && !resolve(r, step.event_stream)) {
          return block(i, r, step.event_stream);
        }
      }
      r.clock.spend(step.time.host_ns);
      if (step.count > ring.count) return true;  // no such record: no effect
      const std::int64_t time = ring.at(ring.count - step.count);
      if (step.kind == StepKind::wait) {
        r.clock.wait(step.stream, time);
      } else {
        r.clock.sync_event(time);
      }
      return true;
    }
    case StepKind::sync_stream:
      if (r.pending != 0 && !resolve(r, step.stream)) return block(i, r, step.stream);
      r.clock.spend(step.time.host_ns);
      r.clock.sync_stream(step.stream);
      return true;
    case StepKind::sync_device:
    case StepKind::iteration: {
      std::uint16_t stuck = no_stream;
      if (!resolve_all(r, stuck)) return block(i, r, stuck);
      r.clock.spend(step.time.host_ns);
      if (step.kind == StepKind::sync_device) {
        r.clock.sync_device();
      } else {
        close_iteration(r, r.clock.latest());
      }
      return true;
    }
    case StepKind::callback:
      if (r.pending != 0 && !resolve(r, step.stream)) return block(i, r, step.stream);
      callback(r, step);
      return true;
    case StepKind::launch:
      return launch(i, r, step);
  }
  return true;
}

// in_order: whatever is added later starts at the host clock or after it.
void Replayer::segment(RankState& r, const Step& step, bool in_order) {
  if (r.scaled && step.kernel) return scaled_kernel(r, step);
  const std::int64_t host = r.clock.host(), stream = r.clock.stream(step.stream);
  const Span span = r.clock.run(step.stream, step.time);
  if (r.shown) show(r, step.stream, r.position, step.op, r.clock.host(), span);
  if (span.end - span.begin == step.time.busy_ns) {
    r.ledger.compute(span.begin, span.end);
    return;
  }
  if (in_order &&
      r.ledger.compute_with_gaps(span.begin, span.end, step.time.busy_ns, r.clock.host())) {
    return;
  }
  std::int64_t end = stream;
  for (std::uint32_t k = step.first; k != step.first + step.count; ++k) {
    const Kernel& kernel = r.table->kernels[k];
    const std::int64_t begin = std::max(end, host + kernel.host_ns);
    end = begin + kernel.duration_ns;
    r.ledger.compute(begin, end);
  }
  PRISM_CHECK(end == span.end);
}

void Replayer::scaled_kernel(RankState& r, const Step& step) {
  r.clock.spend(step.time.host_ns);
  const std::int64_t start = r.clock.ready(step.stream);
  double factor = 1.0;
  for (const SlowRank& slow : slow_[r.index]) {
    if (start >= slow.from_ns && start < slow.to_ns) factor *= slow.factor;
  }
  std::int64_t duration = step.time.busy_ns;
  if (factor != 1.0) {
    const double scaled = std::floor(static_cast<double>(duration) * factor + 0.5);
    duration = static_cast<std::int64_t>(std::min(scaled, too_much));
  }
  r.clock.run(step.stream, duration);
  if (r.shown) {
    show(r, step.stream, r.position, step.op, r.clock.host(), {start, start + duration});
  }
  r.ledger.compute(start, start + duration);
}

void Replayer::callback(RankState& r, const Step& step) {
  r.clock.spend(step.time.host_ns);
  const std::int64_t start = r.clock.run(step.stream, step.time.busy_ns);
  const std::int64_t end = start + step.time.busy_ns;
  if (r.shown) show(r, step.stream, r.position, step.op, r.clock.host(), {start, end});
  r.ledger.callback(start, end);
}

void Replayer::close_iteration(RankState& r, std::int64_t end) { r.ledger.close_iteration(end); }

bool Replayer::launch(std::uint32_t i, RankState& r, const Step& step) {
  if (r.pending != 0) {
    for (const Part& part : parts(r, step)) {
      if (!resolve(r, part.stream)) return block(i, r, part.stream);
    }
  }
  r.clock.spend(step.time.host_ns);
  Launch& l = r.launches[step.stream];
  enrol(i, r, step, l);
  arrive(i, r, l);
  if (met(l)) {
    settle(r, l);
    return true;
  }
  for (const Part& part : parts(r, step)) {
    r.homes[part.stream] = step.stream;
    r.clock.finish(part.stream, l.ready_ns);  // not earlier than that
  }
  ++r.pending;
  return true;
}

// Gives the parts of a launch their place in the order of their communicators and channels, which
// is that of issue.
void Replayer::enrol(std::uint32_t i, RankState& r, const Step& step, Launch& l) {
  const std::span<const Part> all = parts(r, step);
  l.step = &step;
  l.block = r.position;
  l.next = 0;
  l.more.clear();
  l.first = enrol(i, r, all[0]);
  for (const Part& part : all.subspan(1)) l.more.push_back(enrol(i, r, part));
}

Handle Replayer::enrol(std::uint32_t i, RankState& r, const Part& part) {
  Slot& slot = r.slots[part.slot];
  const std::uint32_t c = slot.communicator;
  if (!is_point_to_point(part.kind)) return {slot.next++, c, false, false};
  const bool sends = part.kind == OpKind::send;
  const std::uint32_t size = meetings_[c].size();
  const auto peer = static_cast<std::uint32_t>((std::uint64_t{slot.position} + part.peer) % size);
  const Channel channel{c, sends ? slot.position : peer, sends ? peer : slot.position, part.tag};
  const MessageSide side{MessageSide::not_ready, &part, i, r.position};
  const std::uint32_t id = mailbox_.enrol(channel, sends, side, durations_.eager(part));
  const Message& m = mailbox_.at(id);
  if (m.matched() && m.send.part->content != m.receive.part->content) message_mismatch(m);
  return {0, id, true, sends};
}

// The parts of a launch become ready together, when the host and all of its streams are.
void Replayer::arrive(std::uint32_t i, RankState& r, Launch& l) {
  const std::span<const Part> all = parts(r, *l.step);
  std::int64_t ready = r.clock.ready(l.step->stream);
  for (const Part& part : all.subspan(1)) ready = std::max(ready, r.clock.ready(part.stream));
  l.ready_ns = ready;
  for (std::uint32_t k = 0; k < l.size(); ++k) arrive(i, r, all[k], l.handle(k), l);
}

void Replayer::arrive(std::uint32_t i, RankState& r, const Part& part, const Handle& handle,
                      const Launch& l) {
  if (handle.message) {
    Message& m = mailbox_.at(handle.id);
    (handle.sends ? m.send : m.receive).ready_ns = l.ready_ns;
    // Of an eager message the receive waits for the send, never the other way.
    if (m.both_ready()) lists_.splice(m.waiters, runnable_);
    return;
  }
  Meetings& meetings = meetings_[handle.id];
  Meeting& m = meetings.open(handle.number);
  const std::int64_t duration = durations_.of(part, handle.id, r.slots[part.slot].position);
  if (m.arrived++ == 0) {
    m.part = &part;
    m.first_rank = i;
    m.first_block = l.block;
    m.ready_ns = l.ready_ns;
    m.duration_ns = duration;
  } else {
    if (m.part->content != part.content) {
      check_meeting(handle.id, handle.number, m, i, part, l.block);
    }
    m.ready_ns = std::max(m.ready_ns, l.ready_ns);
    if (m.duration_ns != duration) {
      m.durations_differ = true;
      m.duration_ns = std::max(m.duration_ns, duration);
    }
  }
  if (m.arrived == meetings.size()) {
    differing_durations_ += m.durations_differ ? 1 : 0;
    lists_.splice(m.waiters, runnable_);
  }
}

bool Replayer::met(Launch& l) const noexcept {
  for (; l.next < l.size(); ++l.next) {
    const Handle& h = l.handle(l.next);
    if (h.message) {
      const Message& m = mailbox_.at(h.id);
      if (!m.both_ready() && !(h.sends && m.eager)) return false;
    } else if (!meetings_[h.id].complete(h.number)) {
      return false;
    }
  }
  return true;
}

// All parts have met their partners: the launch ends when its last part does.
void Replayer::settle(RankState& r, Launch& l) {
  const std::span<const Part> all = parts(r, *l.step);
  std::int64_t launch_end = l.ready_ns;
  for (std::uint32_t k = 0; k < l.size(); ++k) {
    const Handle& h = l.handle(k);
    std::int64_t start = 0, duration = 0;
    if (!h.message) {
      const Meeting& m = meetings_[h.id].at(h.number);
      start = m.ready_ns;
      duration = m.duration_ns;
      meetings_[h.id].leave(h.number);
    } else {
      const Message& m = mailbox_.at(h.id);
      const std::uint32_t position = r.slots[all[k].slot].position;
      const std::uint32_t c = m.channel.communicator;
      duration = durations_.of(all[k], c, position);
      if (h.sends && m.eager) {
        start = m.send.ready_ns;
      } else {
        start = std::max(m.send.ready_ns, m.receive.ready_ns);
        if (!m.eager) {
          const Part& other = h.sends ? *m.receive.part : *m.send.part;
          const std::int64_t theirs =
              durations_.of(other, c, h.sends ? m.channel.destination : m.channel.source);
          if (theirs != duration && h.sends) ++differing_durations_;
          duration = std::max(duration, theirs);
        }
      }
      mailbox_.leave(h.id);
    }
    const std::int64_t end = start + duration;
    r.ledger.communication(l.ready_ns, start, end);
    if (r.shown) show(r, all[k].stream, l.block, all[k].op, l.ready_ns, {start, end});
    launch_end = std::max(launch_end, end);
  }
  for (const Part& part : all) r.clock.finish(part.stream, launch_end);
}

// False while the stream waits for a launch whose partners have not all come.
bool Replayer::resolve(RankState& r, std::uint16_t stream) {
  const std::uint16_t home = r.homes[stream];
  if (home == no_stream) return true;
  Launch& l = r.launches[home];
  if (!met(l)) return false;
  settle(r, l);
  for (const Part& part : parts(r, *l.step)) {
    if (r.homes[part.stream] == no_stream) continue;
    r.homes[part.stream] = no_stream;
    EventRing& ring = r.rings[part.stream];
    const std::int64_t time = r.clock.record(part.stream);
    for (; ring.open != 0; --ring.open) {
      if (ring.open <= ring.mask + 1) ring.at(ring.count - ring.open) = time;
    }
  }
  --r.pending;
  return true;
}

bool Replayer::resolve_all(RankState& r, std::uint16_t& stuck) {
  if (r.pending == 0) return true;
  for (std::uint16_t s = 0; s < num_streams_; ++s) {
    if (!resolve(r, s)) {
      stuck = s;
      return false;
    }
  }
  return true;
}

bool Replayer::block(std::uint32_t i, RankState& r, std::uint16_t stream) {
  const Launch& l = r.launches[r.homes[stream]];
  r.stuck_on = r.homes[stream];
  r.waits = true;
  lists_.append(waiters(l.handle(l.next)), i);
  return false;
}

WaitList& Replayer::waiters(const Handle& h) noexcept {
  return h.message ? mailbox_.at(h.id).waiters : meetings_[h.id].at(h.number).waiters;
}

// Forgets intervals before which nothing can be added any more.
void Replayer::trim(RankState& r) {
  std::int64_t frontier = INT64_MAX;
  for (std::uint16_t s = 0; s < num_streams_; ++s) {
    if ((r.lanes >> std::min<unsigned>(s, 63) & 1) == 0) continue;
    const bool waits = r.homes[s] != no_stream;  // its clock says when it was ready
    frontier = std::min(frontier, waits ? r.clock.stream(s) : r.clock.ready(s));
  }
  r.ledger.forget(frontier);
}

// The host's own time in a step, and its wait for the device there.
void Replayer::show_host(const RankState& r, const Step& step, std::int64_t before) {
  if (before == r.clock.host()) return;
  show(r, no_stream, r.position, step.op, before, {before, r.clock.host()});
}

void Replayer::show(const RankState& r, std::uint16_t stream, std::uint32_t block, std::uint32_t op,
                    std::int64_t arrive, Span span) {
  const std::uint64_t first = graph_.block_offsets()[r.blocks[block]];
  timeline_.push_back({r.rank, stream, first + op, block, arrive, span.begin, span.end});
}

}  // namespace prism::engine
