// Communication: from the issue of a launch to its end.
#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "engine/replayer.h"
#include "engine/text.h"

namespace prism::engine {

namespace {

// A ghost that recorded one takes part in the other: only its sizes change.
bool may_adapt(const Part& a, const Part& b) noexcept {
  return a.kind == b.kind && (!has_root(a.kind) || a.peer == b.peer);
}

}  // namespace

// The side that a ghost on the other side adapts to; null: they have to agree.
const Part* Replayer::leading(const Message& m) const noexcept {
  const bool sends = leads(ranks_[m.send.rank]);
  if (sends == leads(ranks_[m.receive.rank])) return nullptr;
  return sends ? m.send.part : m.receive.part;
}

bool Replayer::launch(RankState& r, const Step& step) {
  if (r.pending != 0) {
    for (const Part& part : parts(step)) {
      if (!resolve(r, part.stream)) return block(r, part.stream);
    }
  }
  r.clock.spend(step.time.host_ns);
  Launch& l = r.launches[step.stream];
  enrol(r, step, l);
  arrive(r, l);
  if (met(l)) {
    settle(r, l);
    return true;
  }
  for (const Part& part : parts(step)) {
    r.homes[part.stream] = step.stream;
    r.clock.finish(part.stream, l.ready_ns);  // not earlier than that
  }
  ++r.pending;
  return true;
}

// Gives the parts of a launch their place in the order of their communicators and channels, which
// is that of issue.
void Replayer::enrol(RankState& r, const Step& step, Launch& l) {
  const std::span<const Part> all = parts(step);
  l.step = &step;
  l.block = r.position;
  l.next = 0;
  l.more.clear();
  for (std::uint32_t k = 0; k < all.size(); ++k) {
    const Handle handle = enrol(r, all[k]);
    if (k < 2) {
      l.few[k] = handle;
    } else {
      l.more.push_back(handle);
    }
  }
}

Handle Replayer::enrol(RankState& r, const Part& part) {
  Slot& slot = r.slots[part.slot];
  const std::uint32_t c = slot.communicator;
  if (!is_point_to_point(part.kind)) return {slot.next++, c, false, false};
  const bool sends = part.kind == OpKind::send;
  const std::uint32_t size = meetings_[c].size();
  const auto peer = static_cast<std::uint32_t>((std::uint64_t{slot.position} + part.peer) % size);
  const Channel channel{c, sends ? slot.position : peer, sends ? peer : slot.position, part.tag};
  const MessageSide side{MessageSide::not_ready, &part, r.index, r.position};
  const std::uint32_t id = mailbox_.enrol(channel, sends, side, durations_.eager(part));
  const Message& m = mailbox_.at(id);
  if (m.matched() && m.send.part->content != m.receive.part->content && leading(m) == nullptr) {
    if (!options_.keep_stuck) message_mismatch(m);
    mailbox_.at(id).lost = true;
  }
  return {0, id, true, sends};
}

// The parts of a launch become ready together, when the host and all of its streams are.
void Replayer::arrive(RankState& r, Launch& l) {
  const std::span<const Part> all = parts(*l.step);
  std::int64_t ready = r.clock.ready(l.step->stream);
  for (const Part& part : all.subspan(1)) ready = std::max(ready, r.clock.ready(part.stream));
  l.ready_ns = ready;
  if (ready >= r.fails_ns) return suppress(r, l);
  ++arrivals_;
  for (std::uint32_t k = 0; k < l.size(); ++k) arrive(r, all[k], l.handle(k), l);
}

void Replayer::arrive(RankState& r, const Part& part, const Handle& handle, const Launch& l) {
  if (handle.message) {
    Message& m = mailbox_.at(handle.id);
    (handle.sends ? m.send : m.receive).ready_ns = l.ready_ns;
    if (!failing_.empty()) lose_if_failed(m);
    // Of an eager message the receive waits for the send, never the other way.
    if (m.both_ready()) lists_.splice(m.waiters, runnable_);
    return;
  }
  Meetings& meetings = meetings_[handle.id];
  Meeting& m = meetings.open(handle.number);
  if (m.arrived == Meetings::lost) return;
  const std::int64_t duration = durations_.of(part, handle.id, r.slots[part.slot].position);
  m.fails_ns = std::min(m.fails_ns, r.fails_ns);
  const bool first = m.arrived++ == 0, led = leads(r);
  if (!first) {
    if (m.part->content != part.content && !(led != m.leads && may_adapt(*m.part, part))) {
      try {
        check_meeting(handle.id, handle.number, m, r.index, part, l.block);
      } catch (const MismatchError&) {
        if (!options_.keep_stuck) throw;
        m.arrived = Meetings::lost;
        return;
      }
    }
    m.ready_ns = std::max(m.ready_ns, l.ready_ns);
  } else {
    m.ready_ns = l.ready_ns;
  }
  if (first || (led && !m.leads)) {
    m.part = &part;
    m.first_rank = r.index;
    m.first_block = l.block;
    m.duration_ns = duration;
    m.durations_differ = false;
    m.leads = led;
  } else if (led == m.leads && m.duration_ns != duration) {
    m.durations_differ = true;
    m.duration_ns = std::max(m.duration_ns, duration);
  }
  if (m.arrived == meetings.size()) {
    differing_durations_ += m.durations_differ ? 1 : 0;
    if (slow_links_.any()) {
      m.duration_ns =
          stretch(m.duration_ns, slow_links_.of_collective(handle.id, *m.part, m.ready_ns));
    }
    if (m.ready_ns >= m.fails_ns || m.ready_ns + m.duration_ns > m.fails_ns) {
      return lose(handle);
    }
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

// The durations of a cluster come in as the replay goes: none may overflow a clock.
void Replayer::count_costed(std::int64_t duration) {
  costed_transfers_ns_ += static_cast<double>(duration);
  if (costed_transfers_ns_ + stretched_ns_ > too_much) {
    throw ProfileError(cat("communication on cluster '", options_.cluster->name,
                           "' adds up past 64 bits of ns; its bandwidths cannot be right"));
  }
}

// All parts have met their partners: the launch ends when its last part does.
void Replayer::settle(RankState& r, Launch& l) {
  const std::span<const Part> all = parts(*l.step);
  std::int64_t launch_end = l.ready_ns;
  Span one;
  if (all.size() > transfers_.size()) transfers_.resize(all.size());
  const std::span<Span> spans =
      all.size() == 1 ? std::span(&one, 1) : std::span(transfers_).first(all.size());
  for (std::uint32_t k = 0; k < all.size(); ++k) {
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
      const std::uint32_t c = r.slots[all[k].slot].communicator;
      duration = durations_.of(all[k], c, position);
      if (h.sends && m.eager) {
        start = m.send.ready_ns;
      } else {
        start = std::max(m.send.ready_ns, m.receive.ready_ns);
        const Part* led = leading(m);
        if (led != nullptr || !m.eager) {
          const Part& other = h.sends ? *m.receive.part : *m.send.part;
          const std::uint32_t peer = (h.sends ? m.receive : m.send).rank;
          const std::int64_t theirs =
              durations_.of(other, c, ranks_[peer].slots[other.slot].position);
          if (led != nullptr) {
            if (led == &other) duration = theirs;
          } else {
            if (theirs != duration && h.sends) ++differing_durations_;
            duration = std::max(duration, theirs);
          }
        }
      }
      if (slow_links_.any()) {
        const auto size = std::uint64_t{meetings_[c].size()};
        const auto peer =
            static_cast<std::uint32_t>((position + std::uint64_t{all[k].peer}) % size);
        duration = stretch(duration, slow_links_.of_message(c, position, peer, start));
      }
      mailbox_.leave(h.id);
    }
    if (options_.cluster != nullptr) count_costed(duration);
    const std::int64_t end = start + duration;
    spans[k] = {start, end};
    if (r.shown) show(r, all[k].stream, l.block, all[k].op, l.ready_ns, {start, end});
    launch_end = std::max(launch_end, end);
  }
  for (const Part& part : all) r.clock.finish(part.stream, launch_end);
  const auto earlier = [](const Span& a, const Span& b) { return a.begin < b.begin; };
  if (spans.size() == 2) {
    if (earlier(spans[1], spans[0])) std::swap(spans[0], spans[1]);
  } else if (spans.size() > 2) {
    std::sort(spans.begin(), spans.end(), earlier);
  }
  r.ledger.communication(l.ready_ns, spans, launch_end);
}

// False while the stream waits for a launch whose partners have not all come.
bool Replayer::resolve(RankState& r, std::uint16_t stream) {
  const std::uint16_t home = r.homes[stream];
  if (home == no_stream) return true;
  Launch& l = r.launches[home];
  if (!met(l)) return false;
  settle(r, l);
  for (const Part& part : parts(*l.step)) {
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

bool Replayer::block(RankState& r, std::uint16_t stream) {
  const Launch& l = r.launches[r.homes[stream]];
  r.stuck_on = r.homes[stream];
  PRISM_CHECK(!r.waits);  // a node in two lists would tie them into a knot
  r.waits = true;
  lists_.append(waiters(l.handle(l.next)), r.index);
  add_candidate(r);
  return false;
}

WaitList& Replayer::waiters(const Handle& h) noexcept {
  return h.message ? mailbox_.at(h.id).waiters : meetings_[h.id].at(h.number).waiters;
}

}  // namespace prism::engine
