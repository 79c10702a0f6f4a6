// A set of disjoint address ranges.
#pragma once

#include <cstdint>
#include <functional>
#include <map>

namespace prism::vgpu {

struct Range {
  std::uintptr_t begin = 0, end = 0;
  std::uintptr_t size() const noexcept { return end - begin; }
  bool empty() const noexcept { return begin >= end; }
  bool overlaps(const Range& other) const noexcept {
    return begin < other.end && other.begin < end;
  }
};

inline Range range_of(const void* address, std::int64_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  return {begin, begin + static_cast<std::uintptr_t>(bytes)};
}

class RangeSet {
 public:
  void add(Range range);     // joins what it touches
  void remove(Range range);  // cuts
  bool overlaps(Range range) const noexcept;
  // The parts inside `range`, ascending.
  template <class F>
  void for_each(Range range, F&& visit) const {
    auto it = parts_.upper_bound(range.begin);
    if (it != parts_.begin()) --it;
    for (; it != parts_.end() && it->first < range.end; ++it) {
      const Range part{it->first > range.begin ? it->first : range.begin,
                       it->second < range.end ? it->second : range.end};
      if (!part.empty()) visit(part);
    }
  }
  bool empty() const noexcept { return parts_.empty(); }
  std::size_t size() const noexcept { return parts_.size(); }

 private:
  std::map<std::uintptr_t, std::uintptr_t> parts_;  // begin -> end
};

}  // namespace prism::vgpu
