// What an op does to the clocks of one rank (docs/architecture.md, "Clocks"). Used while a rank is
// recorded on the virtual GPU and when it is replayed: these rules stand nowhere else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace prism {

// Kernels of one stream, and synchronisations with it, with no op of another stream or rank between
// them, folded: the same ends as one by one, whatever the clocks are. A max-plus matrix: host and
// stream end at the later of what the host's begin and what the stream's begin bring about.
struct Segment {
  static constexpr std::int64_t never = INT64_MIN / 4;

  std::int64_t lead_ns = 0;      // host time up to the first launch of some length
  std::int64_t busy_ns = 0;      // sum of durations
  std::int64_t host_ns = 0;      // host's end after the host's begin
  std::int64_t tail_ns = 0;      // stream's end after the host's begin
  std::int64_t lag_ns = 0;       // stream's end after the stream's begin
  std::int64_t sync_ns = never;  // host's end after the stream's begin; never: no synchronisation

  bool syncs() const noexcept { return sync_ns > never / 2; }

  // The next kernel: `host` ns after the last op, `duration` on the stream.
  void append(std::int64_t host, std::int64_t duration) noexcept {
    spend(host);
    if (busy_ns == 0) lead_ns = host_ns;
    tail_ns = std::max(tail_ns, host_ns) + duration;
    lag_ns = std::max(lag_ns, sync_ns) + duration;
    busy_ns += duration;
  }
  // The host, `host` ns after the last op, waits for the stream. Only behind a kernel of some
  // length.
  void sync(std::int64_t host) noexcept {
    spend(host);
    host_ns = std::max(host_ns, tail_ns);
    sync_ns = std::max(sync_ns, lag_ns);
  }

 private:
  void spend(std::int64_t host) noexcept {
    host_ns += host;
    sync_ns += syncs() ? host : 0;
  }
};

struct Span {
  std::int64_t begin = 0, end = 0;
};

// The rules, over storage that `Self` keeps: host_clock() and stream_clocks().
template <class Self>
class ClockRules {
 public:
  std::int64_t host() const noexcept { return self().host_clock(); }
  std::int64_t stream(std::uint16_t s) const noexcept {
    const auto clocks = self().stream_clocks();
    return s < clocks.size() ? clocks[s] : 0;
  }

  void spend(std::int64_t ns) noexcept { self().host_clock() += ns; }
  void host_at_least(std::int64_t t) noexcept {
    self().host_clock() = std::max(self().host_clock(), t);
  }

  // A kernel, copy or set of `duration` on s; returns its start.
  std::int64_t run(std::uint16_t s, std::int64_t duration) noexcept {
    const std::int64_t start = ready(s);
    at(s) = start + duration;
    return start;
  }
  // Folded kernels on s; returns from the start of the first (that has a length) to the end of the
  // last. Between them lie gaps exactly if the span is longer than busy_ns.
  Span run(std::uint16_t s, const Segment& segment) noexcept {
    const std::int64_t h = host(), t = at(s);
    at(s) = std::max(t + segment.lag_ns, h + segment.tail_ns);
    spend(segment.host_ns);
    host_at_least(t + segment.sync_ns);
    return {std::max(t, h + segment.lead_ns), at(s)};
  }
  // When a communication op on s is ready on this rank.
  std::int64_t ready(std::uint16_t s) const noexcept { return std::max(host(), stream(s)); }
  void finish(std::uint16_t s, std::int64_t end) noexcept { at(s) = std::max(at(s), end); }

  std::int64_t record(std::uint16_t s) const noexcept { return stream(s); }
  void wait(std::uint16_t s, std::int64_t event_time) noexcept {
    at(s) = std::max(at(s), event_time);
  }
  void sync_stream(std::uint16_t s) noexcept { host_at_least(stream(s)); }
  void sync_event(std::int64_t event_time) noexcept { host_at_least(event_time); }
  void sync_device() noexcept { host_at_least(latest()); }
  bool is_done(std::int64_t t) const noexcept { return t <= host(); }  // query, after its call cost

  // The latest of host and streams: the end of an iteration.
  std::int64_t latest() const noexcept {
    std::int64_t t = host();
    for (const std::int64_t s : self().stream_clocks()) t = std::max(t, s);
    return t;
  }

 private:
  Self& self() noexcept { return static_cast<Self&>(*this); }
  const Self& self() const noexcept { return static_cast<const Self&>(*this); }
  std::int64_t& at(std::uint16_t s) noexcept { return self().stream_clocks()[s]; }
};

// Host clock and one clock a stream, in ns. A stream must be ensured before it is used.
class RankClock : public ClockRules<RankClock> {
 public:
  // Makes room for stream s; the only call that may allocate.
  void ensure(std::uint16_t s) {
    if (s >= streams_.size()) streams_.resize(std::size_t{s} + 1, 0);
  }

 private:
  friend ClockRules<RankClock>;
  std::int64_t& host_clock() noexcept { return host_; }
  std::int64_t host_clock() const noexcept { return host_; }
  std::span<std::int64_t> stream_clocks() noexcept { return streams_; }
  std::span<const std::int64_t> stream_clocks() const noexcept { return streams_; }

  std::int64_t host_ = 0;
  std::vector<std::int64_t> streams_{0};
};

}  // namespace prism
