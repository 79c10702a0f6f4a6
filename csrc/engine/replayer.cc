#include "engine/replayer.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "engine/jitter.h"

namespace prism::engine {

ReplayResult Replayer::run() {
  for (std::uint32_t i = 0; i < ranks_.size(); ++i) lists_.append(runnable_, i);
  for (;;) {
    while (!runnable_.empty()) {
      if (timed_ != nullptr) look_up();
      const std::uint32_t node = lists_.pop(runnable_);
      RankState& r = ranks_[lists_.rank_of(node)];
      std::uint32_t op = r.stuck_op;
      if (lists_.is_extra(node)) {
        op = lists_.tag_of(node);
        lists_.give_back(node);
      } else {
        r.waits = false;
      }
      prefetch();
      if (op == for_answer ? r.outside->asks && r.deferred == 0 : r.deferred == 0 || wake(r, op)) {
        run_rank(r);
      } else if (r.outside != nullptr && r.outside->asks) {
        tell(r);
      }
    }
    if (finished_ == ranks_.size()) break;
    if (outside_ != nullptr && listen()) continue;
    // Every rank waits. Hosts run ahead of their devices: let them, as far as they can.
    if (run_hosts_ahead() || !runnable_.empty()) continue;
    if (outside_ != nullptr && may_poll_on() && tell_not_ready()) continue;
    if (!failing_.empty() || options_.keep_stuck) break;
    std::uint32_t first = 0;
    while (ranks_[first].finished) ++first;
    deadlock(first);
  }
  return result();
}

// The order of the runnable is known: fetch what the next ones will touch, in three rounds, as
// each names the addresses of the one after it.
void Replayer::prefetch() const noexcept {
  constexpr std::size_t line = 64;
  const auto fetch = [](const void* at, std::size_t size) {
    for (std::size_t k = 0; k < size; k += line)
      __builtin_prefetch(static_cast<const char*>(at) + k);
  };
  std::uint32_t node = runnable_.head;
  for (int distance = 1; node != no_node && distance <= 4; ++distance, node = lists_.after(node)) {
    const RankState& r = ranks_[lists_.rank_of(node)];
    if (distance == 4) {
      fetch(&r, sizeof(RankState));
    } else if (distance == 2) {
      fetch(r.step, sizeof(Step) * 2);
      fetch(r.launches, sizeof(Launch));
      fetch(r.slots, 1);
      fetch(r.clock.data(), 1);
      if (r.position + 1 < r.num_blocks) fetch(&r.blocks[r.position + 1], 1);
      r.ledger.prefetch();
    } else if (distance == 1) {
      if (r.pending != 0) {
        const Launch& launch = r.launches[r.stuck_on];
        for (const Handle& handle : launch.few) {
          if (handle.message) fetch(&mailbox_.at(handle.id), sizeof(Message));
        }
      }
      if (r.outside == nullptr && r.position + 1 < r.num_blocks)
        fetch(r.table->of(r.blocks[r.position + 1]).data(), 1);
    }
  }
}

bool Replayer::next_block(RankState& r) {
  if (r.outside != nullptr) return next_outside_block(r);
  if (r.position + 1 >= r.num_blocks) return false;
  ++r.position;
  const auto steps = r.table->of(r.blocks[r.position]);
  r.step = steps.data();
  r.steps_end = r.step + steps.size();
  return true;
}

void Replayer::run_rank(RankState& r) {
  for (;;) {
    for (; r.step != r.steps_end; ++r.step) {
      catch_up(r);
      if (r.fails && stops(r)) break;
      const std::int64_t host = r.clock.host();
      if (!run_step(r, *r.step)) return;
      if (r.shown) show_host(r, *r.step, host);
    }
    if (r.ledger.full()) trim(r);
    if (next_block(r)) continue;
    if (r.outside != nullptr && !r.outside->feed.ended() && !r.stopped) {
      r.outside->hungry = !r.outside->asks;
      return;
    }
    std::uint16_t stuck = no_stream;
    if (!resolve_all(r, stuck)) {
      block(r, stuck);
      return;
    }
    if (whole_is_one_ && !r.stopped) close_iteration(r, r.clock.latest());
    r.failed |= r.clock.latest() > r.fails_ns;
    if (r.outside != nullptr && !r.stopped) check_end(r);
    r.finished = true;
    ++finished_;
    return;
  }
}

bool Replayer::run_step(RankState& r, const Step& step) {
  switch (step.kind) {
    case StepKind::segment:
      if (r.pending != 0) {
        if (!resolve(r, step.stream)) return block(r, step.stream);
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
      if (r.outside != nullptr) note_record(r, step.stream, r.clock.host());
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
          return block(r, step.stream);
        }
        if (step.count <= ring.open && !resolve(r, step.event_stream)) {
          return block(r, step.event_stream);
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
      if (r.pending != 0 && !resolve(r, step.stream)) return block(r, step.stream);
      r.clock.spend(step.time.host_ns);
      r.clock.sync_stream(step.stream);
      return true;
    case StepKind::sync_device:
    case StepKind::iteration: {
      std::uint16_t stuck = no_stream;
      if (!resolve_all(r, stuck)) return block(r, stuck);
      r.clock.spend(step.time.host_ns);
      if (step.kind == StepKind::sync_device) {
        r.clock.sync_device();
      } else {
        close_iteration(r, r.clock.latest());
        pass(r, step.op);
      }
      return true;
    }
    case StepKind::callback:
      if (r.pending != 0 && !resolve(r, step.stream)) return block(r, step.stream);
      callback(r, step);
      return true;
    case StepKind::launch:
      return launch(r, step);
  }
  return true;
}

// in_order: whatever is added later starts at the host clock or after it.
void Replayer::segment(RankState& r, const Step& step, bool in_order) {
  if (r.perturbed && step.kernel) return perturbed_kernel(r, step);
  std::int64_t host = r.clock.host(), end = r.clock.stream(step.stream);
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
  for (const Kernel& kernel : std::span(step.kernels, step.count)) {
    host += kernel.host_ns;
    if (kernel.duration_ns == Kernel::sync) {
      host = std::max(host, end);
      continue;
    }
    const std::int64_t begin = std::max(end, host);
    end = begin + kernel.duration_ns;
    r.ledger.compute(begin, end);
  }
  PRISM_CHECK(end == span.end && host == r.clock.host());
}

void Replayer::perturbed_kernel(RankState& r, const Step& step) {
  r.clock.spend(step.time.host_ns);
  const std::int64_t start = r.clock.ready(step.stream);
  double factor = slow_.empty() ? 1.0 : slow_[r.index].at(start);
  const Jitter& jitter = options_.perturbation.jitter;
  if (jitter.sigma != 0) factor *= jitter_factor(jitter, r.rank, r.kernels);
  ++r.kernels;
  const std::int64_t duration = stretch(step.time.busy_ns, factor);
  r.clock.run(step.stream, duration);
  if (r.shown) {
    show(r, step.stream, r.position, step.op, r.clock.host(), {start, start + duration});
  }
  r.ledger.compute(start, start + duration);
}

// Perturbed durations come in as the replay goes: none may overflow a clock.
std::int64_t Replayer::stretch(std::int64_t duration, double factor) {
  if (factor == 1.0 || duration == 0) return duration;
  const double exact = static_cast<double>(duration);
  const double stretched = std::floor(exact * factor + 0.5);
  stretched_ns_ += std::max(stretched - exact, 0.0);
  if (stretched_ns_ + costed_transfers_ns_ >= too_much) {
    throw GraphError(
        "the times of slowed ops add up past 64 bits of ns; the factors cannot be right");
  }
  return static_cast<std::int64_t>(stretched);
}

void Replayer::callback(RankState& r, const Step& step) {
  r.clock.spend(step.time.host_ns);
  const std::int64_t start = r.clock.run(step.stream, step.time.busy_ns);
  const std::int64_t end = start + step.time.busy_ns;
  if (r.shown) show(r, step.stream, r.position, step.op, r.clock.host(), {start, end});
  r.ledger.callback(start, end);
}

void Replayer::close_iteration(RankState& r, std::int64_t end) {
  if (ends_iteration(r, end)) r.ledger.close_iteration(end);
}

// False: the rank fails before.
bool Replayer::ends_iteration(RankState& r, std::int64_t end) noexcept {
  r.failed |= end > r.fails_ns;
  return end <= r.fails_ns;
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
  if (span.begin >= r.fails_ns) return;
  span.end = std::min(span.end, r.fails_ns);
  const std::uint64_t first = graph_.block_offsets()[r.blocks[block]];
  timeline_.push_back({r.rank, stream, first + op, block, arrive, span.begin, span.end});
}

}  // namespace prism::engine
