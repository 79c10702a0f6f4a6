#include "engine/interval_set.h"

#include <algorithm>

namespace prism::engine {

std::int64_t IntervalSet::add_behind(std::int64_t begin, std::int64_t end) {
  older_.push_back(last_);
  // [first, last) are the intervals that touch the new one; they become one with it.
  const auto first = std::lower_bound(older_.begin(), older_.end(), begin,
                                      [](const Span& s, std::int64_t t) { return s.end < t; });
  auto last = first;
  std::int64_t covered = 0;
  Span merged{begin, end};
  for (; last != older_.end() && last->begin <= end; ++last) {
    covered += std::max<std::int64_t>(0, std::min(last->end, end) - std::max(last->begin, begin));
    merged = {std::min(merged.begin, last->begin), std::max(merged.end, last->end)};
  }
  if (first == last) {
    older_.insert(first, merged);
  } else {
    *first = merged;
    older_.erase(first + 1, last);
  }
  last_ = older_.back();
  older_.pop_back();
  return end - begin - covered;
}

}  // namespace prism::engine
