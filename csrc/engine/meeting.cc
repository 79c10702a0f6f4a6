#include "engine/meeting.h"

namespace prism::engine {

void Meetings::grow(std::uint64_t number) {
  std::size_t size = std::max<std::size_t>(ring_.size(), 1);
  while (number - oldest_ >= size) size *= 2;
  std::vector<Meeting> larger(size);
  for (std::uint64_t n = oldest_; n < oldest_ + ring_.size(); ++n) larger[n & (size - 1)] = at(n);
  ring_ = std::move(larger);
}

}  // namespace prism::engine
