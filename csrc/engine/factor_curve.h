// A factor that changes at given times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace prism::engine {

class FactorCurve {
 public:
  struct Window {
    double factor = 1.0;
    std::int64_t from_ns = 0, to_ns = INT64_MAX;
  };

  FactorCurve() = default;  // 1 at all times
  // At each time the product, in their order, of the windows that hold it.
  explicit FactorCurve(std::span<const Window> windows);

  double at(std::int64_t t) const noexcept {
    const auto after = std::upper_bound(starts_.begin(), starts_.end(), t);
    return after == starts_.begin()
               ? 1.0
               : factors_[static_cast<std::size_t>(after - starts_.begin()) - 1];
  }

 private:
  std::vector<std::int64_t> starts_;  // rising; before the first the factor is 1
  std::vector<double> factors_;       // from each start to the next
};

}  // namespace prism::engine
