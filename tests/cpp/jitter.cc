#include "engine/jitter.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

using prism::Jitter;
using prism::engine::jitter_factor;

namespace {

// The standard normal draw behind a factor.
double draw(std::uint64_t seed, std::uint32_t rank, std::uint64_t kernel) {
  return std::log(jitter_factor({seed, 1.0}, rank, kernel)) + 0.5;
}

}  // namespace

TEST_CASE("factors are the same bits everywhere") {
  CHECK(jitter_factor({0, 0.0}, 5, 9) == 1.0);
  CHECK(jitter_factor({0, 0.1}, 0, 0) == 0x1.cdd44af068278p-1);
  CHECK(jitter_factor({42, 0.05}, 8191, 123456789) == 0x1.04b4ed81355cbp+0);
  CHECK(jitter_factor({UINT64_MAX, 2.0}, UINT32_MAX, UINT64_MAX) == 0x1.7a5f9859b6b84p-7);
}

TEST_CASE("a factor depends on seed, rank and kernel") {
  std::set<double> seen;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    for (std::uint32_t rank = 0; rank < 8; ++rank) {
      for (std::uint64_t kernel = 0; kernel < 8; ++kernel) {
        seen.insert(jitter_factor({seed, 0.1}, rank, kernel));
      }
    }
  }
  CHECK(seen.size() == 512);
}

TEST_CASE("draws are standard normal: moments, tails, and neighbours that have nothing in common") {
  constexpr std::size_t count = 200000;
  for (const bool along_ranks : {false, true}) {
    std::vector<double> z(count);
    for (std::size_t i = 0; i < count; ++i) {
      z[i] = along_ranks ? draw(3, static_cast<std::uint32_t>(i), 17) : draw(3, 17, i);
    }
    double sum = 0, squares = 0, cubes = 0, fourths = 0, products = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += z[i];
      squares += z[i] * z[i];
      cubes += std::pow(z[i], 3);
      fourths += std::pow(z[i], 4);
      products += z[i] * z[(i + 1) % count];
    }
    // Five standard errors each.
    const double n = count, root = 5 / std::sqrt(n);
    CHECK(std::abs(sum / n) < root);
    CHECK(std::abs(squares / n - 1) < root * std::sqrt(2.0));
    CHECK(std::abs(cubes / n) < root * std::sqrt(15.0));
    CHECK(std::abs(fourths / n - 3) < root * std::sqrt(96.0));
    CHECK(std::abs(products / n) < root);
    // Kolmogorov: the largest distance to the distribution function, at a level of 1e-6.
    std::sort(z.begin(), z.end());
    double distance = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const double want = 0.5 * std::erfc(-z[i] / std::sqrt(2.0));
      distance = std::max({distance, std::abs(want - static_cast<double>(i) / n),
                           std::abs(want - static_cast<double>(i + 1) / n)});
    }
    CHECK(distance < 2.7 / std::sqrt(n));
  }
}

TEST_CASE("factors have mean one") {
  for (const double sigma : {0.02, 0.3, 1.0}) {
    double sum = 0;
    constexpr std::uint64_t count = 100000;
    for (std::uint64_t k = 0; k < count; ++k) sum += jitter_factor({1, sigma}, 2, k);
    const double error = std::sqrt(std::expm1(sigma * sigma) / count);
    CHECK(std::abs(sum / count - 1) < 5 * error);
  }
}
