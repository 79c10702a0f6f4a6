#include "graph/bound_twice.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace prism {

std::optional<std::pair<std::size_t, std::size_t>> bound_twice(std::span<const Binding> bindings) {
  std::vector<std::size_t> slots(bindings.size());
  std::iota(slots.begin(), slots.end(), std::size_t{0});
  std::ranges::stable_sort(slots, {},
                           [&](std::size_t slot) { return bindings[slot].communicator; });
  const auto found = std::ranges::adjacent_find(
      slots, {}, [&](std::size_t slot) { return bindings[slot].communicator; });
  if (found == slots.end()) return std::nullopt;
  return std::pair{found[0], found[1]};
}

}  // namespace prism
