#include "engine/factor_curve.h"

#include <doctest/doctest.h>

#include <random>
#include <vector>

using prism::engine::FactorCurve;
using Windows = std::vector<FactorCurve::Window>;

TEST_CASE("no window is a factor of one at all times") {
  CHECK(FactorCurve().at(0) == 1.0);
  CHECK(FactorCurve(Windows{}).at(INT64_MAX) == 1.0);
  CHECK(FactorCurve(Windows{{3.0, 7, 7}}).at(7) == 1.0);
}

TEST_CASE("a window holds its begin and not its end") {
  const FactorCurve curve(Windows{{2.0, 10, 20}});
  CHECK(curve.at(9) == 1.0);
  CHECK(curve.at(10) == 2.0);
  CHECK(curve.at(19) == 2.0);
  CHECK(curve.at(20) == 1.0);
  CHECK(FactorCurve(Windows{{2.0, 0, INT64_MAX}}).at(INT64_MAX - 1) == 2.0);
}

TEST_CASE("at each time the product of the windows that hold it, in their order") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Windows windows(random() % 9);
    for (FactorCurve::Window& w : windows) {
      w.factor = 0.1 + static_cast<double>(random() % 100);
      w.from_ns = static_cast<std::int64_t>(random() % 30);
      w.to_ns = static_cast<std::int64_t>(random() % 30);
    }
    const FactorCurve curve(windows);
    for (std::int64_t t = 0; t < 31; ++t) {
      double want = 1.0;
      for (const FactorCurve::Window& w : windows) {
        if (w.from_ns <= t && t < w.to_ns) want *= w.factor;
      }
      CHECK(curve.at(t) == want);
    }
  }
}
