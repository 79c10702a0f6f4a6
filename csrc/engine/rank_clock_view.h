// The clock rules over rows of a table that replay keeps for all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "engine/rank_clock.h"

namespace prism::engine {

class RankClockView : public ClockRules<RankClockView> {
 public:
  RankClockView() = default;
  explicit RankClockView(std::span<std::int64_t> streams) noexcept : streams_(streams) {}

  const std::int64_t* data() const noexcept { return streams_.data(); }
  // To evaluate an op later than the host issued it: at the time it did. Returns the clock's time.
  std::int64_t exchange_host(std::int64_t t) noexcept { return std::exchange(host_, t); }

 private:
  friend ClockRules<RankClockView>;
  std::int64_t& host_clock() noexcept { return host_; }
  std::int64_t host_clock() const noexcept { return host_; }
  std::span<std::int64_t> stream_clocks() noexcept { return streams_; }
  std::span<const std::int64_t> stream_clocks() const noexcept { return streams_; }

  std::int64_t host_ = 0;
  std::span<std::int64_t> streams_;
};

}  // namespace prism::engine
