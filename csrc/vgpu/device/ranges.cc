#include "vgpu/device/ranges.h"

#include <algorithm>

namespace prism::vgpu {

void RangeSet::add(Range range) {
  if (range.empty()) return;
  auto it = parts_.upper_bound(range.begin);
  if (it != parts_.begin() && std::prev(it)->second >= range.begin) --it;
  if (it != parts_.end() && it->first <= range.begin && it->second >= range.end) return;
  while (it != parts_.end() && it->first <= range.end) {
    range.begin = std::min(range.begin, it->first);
    range.end = std::max(range.end, it->second);
    it = parts_.erase(it);
  }
  parts_.emplace_hint(it, range.begin, range.end);
}

void RangeSet::remove(Range range) {
  if (range.empty()) return;
  auto it = parts_.upper_bound(range.begin);
  if (it != parts_.begin()) --it;
  while (it != parts_.end() && it->first < range.end) {
    const auto [begin, end] = *it;
    if (end <= range.begin) {
      ++it;
      continue;
    }
    it = parts_.erase(it);
    if (begin < range.begin) parts_.emplace(begin, range.begin);
    if (end > range.end) {
      parts_.emplace(range.end, end);
      return;
    }
  }
}

bool RangeSet::overlaps(Range range) const noexcept {
  if (range.empty()) return false;
  auto it = parts_.upper_bound(range.begin);
  if (it != parts_.begin() && std::prev(it)->second > range.begin) return true;
  return it != parts_.end() && it->first < range.end;
}

}  // namespace prism::vgpu
