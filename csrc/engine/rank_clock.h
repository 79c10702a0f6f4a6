// What an op does to the clocks of one rank (docs/architecture.md, "Clocks"). Used while a rank is
// recorded on the virtual GPU and when it is replayed: these rules stand nowhere else.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace prism {

// Host clock, one clock a stream, and the times of past event records a stream. Times in ns.
class RankClock {
 public:
  std::int64_t host() const noexcept { return host_; }
  std::int64_t stream(std::uint16_t s) const noexcept {
    return s < streams_.size() ? streams_[s] : 0;
  }

  void spend(std::int64_t ns) noexcept { host_ += ns; }
  void host_at_least(std::int64_t t) noexcept { host_ = std::max(host_, t); }
  // Makes room for stream s; the only call that may allocate.
  void ensure(std::uint16_t s) {
    if (s >= streams_.size()) streams_.resize(std::size_t{s} + 1, 0);
  }

  // A kernel, copy or set of `duration` on s; returns its start.
  std::int64_t run(std::uint16_t s, std::int64_t duration) noexcept {
    const std::int64_t start = std::max(host_, streams_[s]);
    streams_[s] = start + duration;
    return start;
  }
  // When a communication op on s is ready on this rank.
  std::int64_t ready(std::uint16_t s) const noexcept { return std::max(host_, streams_[s]); }
  void finish(std::uint16_t s, std::int64_t end) noexcept {
    streams_[s] = std::max(streams_[s], end);
  }

  std::int64_t record(std::uint16_t s) const noexcept { return streams_[s]; }
  void wait(std::uint16_t s, std::int64_t event_time) noexcept {
    streams_[s] = std::max(streams_[s], event_time);
  }
  void sync_stream(std::uint16_t s) noexcept { host_at_least(stream(s)); }
  void sync_event(std::int64_t event_time) noexcept { host_at_least(event_time); }
  void sync_device() noexcept {
    for (const std::int64_t t : streams_) host_at_least(t);
  }
  bool is_done(std::int64_t t) const noexcept { return t <= host_; }  // query, after its call cost

 private:
  std::int64_t host_ = 0;
  std::vector<std::int64_t> streams_{0};
};

}  // namespace prism
