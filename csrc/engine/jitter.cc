// Compiled without contraction to fused multiply-add (CMakeLists.txt), which would round otherwise.
#include "engine/jitter.h"

#include <cmath>
#include <numbers>

namespace prism::engine {
namespace {

// ln 2 in two parts; small multiples of the first are exact.
constexpr double ln2_high = 0x1.62e42fefa38p-1, ln2_rest = 0x1.ef35793c7673p-45;

std::uint64_t mix(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// In (0, 1), never an end of it.
double unit(std::uint64_t bits) noexcept {
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

// log x = 2 artanh((x - 1) / (x + 1)), of x between sqrt(1/2) and sqrt(2).
double logarithm(double x) noexcept {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < std::numbers::sqrt2 / 2) {
    m *= 2;
    --exponent;
  }
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int k = 23; k >= 3; k -= 2) sum = (sum + 1.0 / k) * square;
  return exponent * ln2_high + (2 * s + 2 * s * sum + exponent * ln2_rest);
}

// cos(2 pi turn), of the eighth of a turn next to a quarter.
double cosine(double turn) noexcept {
  const double quarters = 4 * turn, nearest = std::floor(quarters + 0.5);
  const double x = (quarters - nearest) * (std::numbers::pi / 2), square = x * x;
  const bool sine = (static_cast<int>(nearest) & 1) != 0;
  double sum = 0;
  for (int k = sine ? 19 : 18; k >= 2; k -= 2) sum = (1 - sum) * square / (k * (k - 1));
  const double value = sine ? x * (1 - sum) : 1 - sum;
  const int quarter = static_cast<int>(nearest) & 3;
  return quarter == 1 || quarter == 2 ? -value : value;
}

double exponential(double x) noexcept {
  const double twos = std::floor(x / std::numbers::ln2 + 0.5);
  const double rest = (x - twos * ln2_high) - twos * ln2_rest;
  double sum = 1;
  for (int k = 15; k >= 1; --k) sum = 1 + sum * rest / k;
  return std::ldexp(sum, static_cast<int>(twos));
}

}  // namespace

double jitter_factor(const Jitter& jitter, std::uint32_t rank, std::uint64_t kernel) noexcept {
  constexpr std::uint64_t step = 0x9e3779b97f4a7c15ULL;
  const std::uint64_t stream = mix(mix(jitter.seed + step) ^ rank);
  const std::uint64_t at = mix(stream + step * (kernel + 1));
  const double radius = std::sqrt(-2 * logarithm(unit(at)));
  const double z = radius * cosine(unit(mix(at + step)));
  return exponential(jitter.sigma * z - jitter.sigma * jitter.sigma / 2);
}

}  // namespace prism::engine
