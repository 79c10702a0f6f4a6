// Where no rank can go on. The common path stops a rank at the first clock it cannot read; a real
// host stops only where it synchronises, and may first launch what a peer needs. Here the host goes
// on and its ops queue behind the streams that wait, with the host time of their issue.
#include <algorithm>

#include "base/check.h"
#include "engine/replayer.h"

namespace prism::engine {

void Replayer::enter_ahead(RankState& r) {
  r.ahead = std::make_unique<RunAhead>();
  r.ahead->open.assign(num_streams_, 0);
  for (std::uint16_t s = 0; s < num_streams_; ++s) {
    if (r.homes[s] != s) continue;
    Deferred d;
    d.launch = std::move(r.launches[s]);
    d.step = d.launch.step;
    d.block = d.launch.block;
    d.arrived = true;
    d.registered = r.waits && r.stuck_on == s;
    for (const Part& part : parts(*d.step)) ++r.ahead->open[part.stream];
    r.ahead->ops.push_back(std::move(d));
  }
  for (std::uint16_t s = 0; s < num_streams_; ++s) {
    EventRing& ring = r.rings[s];
    for (; ring.open != 0; --ring.open) {
      Deferred d;
      d.step = nullptr;  // a record of stream s
      d.stream = s;
      d.record = ring.count - ring.open;
      ++r.ahead->open[s];
      r.ahead->ops.push_back(std::move(d));
    }
    r.homes[s] = no_stream;
  }
  r.pending = 0;
}

// Evaluates what has become known. True: nothing is left, the rank is back on the common path.
bool Replayer::look_again(RankState& r) {
  RunAhead& ahead = *r.ahead;
  scratch_.assign(num_streams_, 0);  // streams whose earlier ops are not done
  for (Deferred& d : ahead.ops) {
    if (!d.done) try_deferred(r, d, scratch_);
  }
  while (!ahead.ops.empty() && ahead.ops.front().done) ahead.ops.pop_front();
  if (!ahead.ops.empty()) return false;
  r.ahead.reset();
  return true;
}

namespace {

StepKind kind_of(const Deferred& d) noexcept {
  return d.step == nullptr ? StepKind::record : d.step->kind;
}
std::uint16_t stream_of(const Deferred& d) noexcept {
  return d.step == nullptr ? d.stream : d.step->stream;
}

}  // namespace

// Evaluates one op if its inputs are known, else marks its streams as blocked.
void Replayer::try_deferred(RankState& r, Deferred& d, std::span<std::uint8_t> blocked) {
  RunAhead& ahead = *r.ahead;
  const StepKind kind = kind_of(d);
  const std::uint16_t s = stream_of(d);
  if (kind == StepKind::iteration) {
    std::erase_if(d.awaited, [&](std::uint16_t stream) {
      if (blocked[stream] != 0) return false;
      d.end_ns = std::max(d.end_ns, r.clock.stream(stream));
      return true;
    });
    if (!d.awaited.empty()) return;
    r.ledger.close_held_iteration(d.end_ns);
    d.done = true;
    return;
  }
  if (kind == StepKind::launch) {
    const std::span<const Part> all = parts(*d.step);
    const bool held =
        std::any_of(all.begin(), all.end(), [&](const Part& p) { return blocked[p.stream] != 0; });
    if (!held) {
      if (!d.arrived) {
        const std::int64_t host = r.clock.exchange_host(d.host_ns);
        r.clock.spend(d.step->time.host_ns);
        arrive(r, d.launch);
        r.clock.exchange_host(host);
        d.arrived = true;
        ++arrivals_;
      }
      const std::uint32_t before = d.launch.next;
      if (met(d.launch)) {
        settle(r, d.launch);
        d.done = true;
        for (const Part& part : all) --ahead.open[part.stream];
        return;
      }
      if (d.launch.next != before) d.registered = false;
      if (!d.registered) {
        lists_.append(waiters(d.launch.handle(d.launch.next)), lists_.take_extra(r.index));
        d.registered = true;
      }
    }
    for (const Part& part : all) blocked[part.stream] = 1;
    return;
  }
  if (blocked[s] != 0 || (kind == StepKind::wait && d.time_ns == EventRing::unknown)) {
    blocked[s] = 1;
    return;
  }
  const std::int64_t host = r.clock.exchange_host(d.host_ns);
  const std::uint32_t position = std::exchange(r.position, d.block);
  switch (kind) {
    case StepKind::segment:
      segment(r, *d.step, false);
      break;
    case StepKind::callback:
      callback(r, *d.step);
      break;
    case StepKind::wait:
      r.clock.wait(s, d.time_ns);
      break;
    case StepKind::record:
      record_known(r, d, r.clock.record(s));
      break;
    default:
      PRISM_CHECK(false);
  }
  r.clock.exchange_host(host);
  r.position = position;
  d.done = true;
  --ahead.open[s];
}

void Replayer::record_known(RankState& r, const Deferred& record, std::int64_t time) {
  const std::uint16_t s = stream_of(record);
  EventRing& ring = r.rings[s];
  if (ring.holds(record.record)) ring.at(record.record) = time;
  for (Deferred& d : r.ahead->ops) {
    if (d.step != nullptr && d.step->kind == StepKind::wait && d.step->event_stream == s &&
        d.record == record.record && d.time_ns == EventRing::unknown) {
      d.time_ns = time;
    }
  }
}

// Lets the host of a waiting rank go on until something of it has arrived somewhere. True: it has,
// or the rank has found its way back to the common path.
bool Replayer::run_ahead(std::uint32_t i) {
  RankState& r = ranks_[i];
  if (r.ahead == nullptr) enter_ahead(r);
  const std::uint64_t before = arrivals_;
  if (look_again(r)) {
    if (!r.waits) lists_.append(runnable_, i);
    r.waits = true;
    return true;
  }
  while (arrivals_ == before) {
    if (r.step == r.steps_end) {
      if (!next_block(r)) break;  // the program has ended, its device has not
      continue;
    }
    const std::int64_t host = r.clock.host();
    if (!issue(r, *r.step)) break;
    if (r.shown) show_host(r, *r.step, host);
    ++r.step;
    PRISM_CHECK(!r.ahead->ops.empty());  // only look_again finishes what waits
  }
  return arrivals_ != before;
}

// One op of a host that is ahead. False: the host itself must wait.
bool Replayer::issue(RankState& r, const Step& step) {
  RunAhead& ahead = *r.ahead;
  const auto known = [&](std::uint16_t s) { return ahead.open[s] == 0; };
  Deferred d;
  d.step = &step;
  d.block = r.position;
  d.host_ns = r.clock.host();
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
      if (exists && ring.at(ring.count - step.count) == EventRing::unknown) return false;
      r.clock.spend(step.time.host_ns);
      if (exists) r.clock.sync_event(ring.at(ring.count - step.count));
      return true;
    }
    case StepKind::record: {
      r.clock.spend(step.time.host_ns);
      EventRing& ring = r.rings[step.stream];
      if (ring.times == nullptr) return true;
      if (r.outside != nullptr) note_record(r, step.stream, r.clock.host());
      d.record = ring.count;
      ring.push(known(step.stream) ? r.clock.record(step.stream) : EventRing::unknown);
      if (known(step.stream)) return true;
      break;
    }
    case StepKind::wait: {
      r.clock.spend(step.time.host_ns);
      EventRing& ring = r.rings[step.event_stream];
      if (step.count > ring.count) return true;
      d.record = ring.count - step.count;
      d.time_ns = ring.at(d.record);
      if (d.time_ns != EventRing::unknown && known(step.stream)) {
        r.clock.wait(step.stream, d.time_ns);
        return true;
      }
      break;
    }
    case StepKind::iteration:
      r.clock.spend(step.time.host_ns);
      d.end_ns = r.clock.host();
      for (std::uint16_t s = 0; s < num_streams_; ++s) {
        if (known(s)) {
          d.end_ns = std::max(d.end_ns, r.clock.stream(s));
        } else {
          d.awaited.push_back(s);
        }
      }
      PRISM_CHECK(!d.awaited.empty());
      r.ledger.hold();
      ahead.ops.push_back(std::move(d));
      return true;
    case StepKind::segment:
      if (step.time.syncs()) {  // its kernels concern no one else: it may wait as a whole
        if (!known(step.stream)) return false;
        segment(r, step, false);
        return true;
      }
      [[fallthrough]];
    case StepKind::callback:
    case StepKind::launch:
      r.clock.spend(step.time.host_ns);
      break;
  }
  if (step.kind == StepKind::launch) {
    enrol(r, step, d.launch);
    for (const Part& part : parts(step)) ++ahead.open[part.stream];
  } else {
    ++ahead.open[step.stream];
  }
  ahead.ops.push_back(std::move(d));
  // Streams that wait for earlier ops. If this one's does not, it takes effect at once.
  scratch_.resize(num_streams_);
  Deferred& last = ahead.ops.back();
  for (std::uint16_t s = 0; s < num_streams_; ++s) scratch_[s] = known(s) ? 0 : 1;
  const auto own = [&](std::uint16_t s, std::uint32_t count) {
    if (ahead.open[s] == count) scratch_[s] = 0;
  };
  if (step.kind == StepKind::launch) {
    for (const Part& part : parts(step)) {
      std::uint32_t mine = 0;
      for (const Part& other : parts(step)) mine += other.stream == part.stream ? 1U : 0U;
      own(part.stream, mine);
    }
  } else {
    own(step.stream, 1);
  }
  try_deferred(r, last, scratch_);
  while (!ahead.ops.empty() && ahead.ops.front().done) ahead.ops.pop_front();
  return true;
}

}  // namespace prism::engine
