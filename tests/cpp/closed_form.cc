#include "spare/closed_form.h"

#include <doctest/doctest.h>

#include "base/error.h"

using namespace prism;
using namespace prism::spare;

TEST_CASE("check values of the published setting") {
  CHECK(endured_failures(200, 9) == doctest::Approx(105.1).epsilon(0.0005));
  CHECK(endured_failures(600, 20) == doctest::Approx(424.2).epsilon(0.0005));
  CHECK(endured_failures(1000, 26) == doctest::Approx(750.7).epsilon(0.0005));
  CHECK(mean_depth_bound(600, 424.2, 1) == doctest::Approx(2.34).epsilon(0.002));
  CHECK(best_checkpoint_interval(60.0, 300.0 * endured_failures(600, 8), 3600.0) ==
        doctest::Approx(3155.0).epsilon(0.0002));
  CHECK(best_redundancy(200) == 8);
  CHECK(best_redundancy(600) == 10);
  CHECK(best_redundancy(1) == 1);
}

TEST_CASE("ends are exact") {
  CHECK(endured_failures_finite(40, 1) == 0.0);
  CHECK(endured_failures_finite(40, 40) == 39.0);
  CHECK(replication_endured_failures(40, 1) == doctest::Approx(1.0));
  CHECK(mean_depth_bound(4, 4.0, 1) == doctest::Approx((1.0 + 2.0 + 2.0 + 4.0) / 4.0));
  CHECK(mean_depth_bound(4, 4.0, 3) == doctest::Approx((3.0 + 4.0 + 6.0 + 12.0) / 12.0));
  CHECK(mean_depth_finite(9, 1, 4) == 1.0);
}

TEST_CASE("the interval is where availability is largest") {
  const double best = best_checkpoint_interval(60.0, 31'530.0, 3600.0);
  const double most = availability(best, 60.0, 31'530.0, 3600.0);
  CHECK(availability(best * 0.99, 60.0, 31'530.0, 3600.0) < most);
  CHECK(availability(best * 1.01, 60.0, 31'530.0, 3600.0) < most);
}

TEST_CASE("values that cannot be are refused") {
  CHECK_THROWS_AS(endured_failures(0, 1), SpareError);
  CHECK_THROWS_AS(endured_failures(3, 4), SpareError);
  CHECK_THROWS_AS(mean_depth_bound(3, 4.0, 1), SpareError);
  CHECK_THROWS_AS(availability(1.0, 2.0, 3.0, 4.0), SpareError);
  CHECK_THROWS_AS(best_checkpoint_interval(-1.0, 2.0, 3.0), SpareError);
}
