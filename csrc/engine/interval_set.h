// The union of time intervals, measured while they are added. Adding in any order gives the same
// lengths; adding in nearly ascending order costs a few comparisons.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/rank_clock.h"

namespace prism::engine {

class IntervalSet {
 public:
  // Adds [begin, end) and returns how much of it was not covered before. in_order: the caller
  // promises that no later one begins before this one.
  std::int64_t add(std::int64_t begin, std::int64_t end, bool in_order) {
    if (begin >= end) return 0;
    if (begin > last_.end) {
      if (!in_order && last_.begin < last_.end) older_.push_back(last_);
      last_ = {begin, end};
      return end - begin;
    }
    if (begin < last_.begin) return add_behind(begin, end);
    if (end <= last_.end) return 0;
    const std::int64_t fresh = end - last_.end;
    last_.end = end;
    return fresh;
  }

  // Where the latest interval ends; nothing is covered from there on.
  std::int64_t end() const noexcept { return last_.end; }
  std::size_t size() const noexcept { return older_.size(); }

  // Drops what ends by `frontier`. The caller promises that nothing before it is added any more.
  void forget(std::int64_t frontier) noexcept {
    std::size_t kept = 0;
    while (kept < older_.size() && older_[kept].end <= frontier) ++kept;
    older_.erase(older_.begin(), older_.begin() + static_cast<std::ptrdiff_t>(kept));
  }

 private:
  std::int64_t add_behind(std::int64_t begin, std::int64_t end);

  static constexpr std::int64_t before_all = std::numeric_limits<std::int64_t>::min();
  Span last_{before_all, before_all};
  std::vector<Span> older_;  // ascending, disjoint, none touches another
};

}  // namespace prism::engine
