#include "spare/difference_set.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"

namespace prism::spare {
namespace {

using Cubic = std::array<std::int64_t, 3>;  // c0 + c1 t + c2 t^2 over GF(q)
using Pair = std::array<std::int64_t, 2>;   // c0 + c1 t over GF(q)

// The residues i < modulus with t^i in span(1, t), t a root of t^3 = f; empty where the powers of t
// meet a constant before t^modulus, so that t does not generate.
std::vector<std::int32_t> singer_powers(const Cubic& f, std::int32_t q, std::int32_t modulus) {
  std::vector<std::int32_t> found;
  Cubic power = {1, 0, 0};
  for (std::int32_t i = 0; i < modulus; ++i) {
    if (i > 0 && power[1] == 0 && power[2] == 0) return {};
    if (power[2] == 0) found.push_back(i);
    power = {power[2] * f[0] % q, (power[0] + power[2] * f[1]) % q,
             (power[1] + power[2] * f[2]) % q};
  }
  return found;
}

bool has_root(const Cubic& f, std::int32_t q) {
  for (std::int64_t t = 0; t < q; ++t) {
    if ((t * t % q * t - f[0] - f[1] * t - f[2] * t % q * t) % q == 0) return true;
  }
  return false;
}

// The i < q^2 - 1 with t^i - t constant, t a root of t^2 = f; empty where t does not generate.
std::vector<std::int32_t> bose_powers(const Pair& f, std::int32_t q) {
  std::vector<std::int32_t> found;
  Pair power = {1, 0};
  const std::int32_t modulus = q * q - 1;
  for (std::int32_t i = 0; i < modulus; ++i) {
    if (i > 0 && power == Pair{1, 0}) return {};
    if (power[1] == 1) found.push_back(i);
    power = {power[1] * f[0] % q, (power[0] + power[1] * f[1]) % q};
  }
  return found;
}

std::int32_t primitive_root(std::int32_t q) {
  for (std::int32_t g = 1; g < q; ++g) {
    std::int64_t power = g;
    std::int32_t order = 1;
    while (power != 1) {
      power = power * g % q;
      ++order;
    }
    if (order == q - 1) return g;
  }
  PRISM_CHECK(false);
  return 0;
}

}  // namespace

bool is_prime(std::int32_t number) {
  if (number < 2) return false;
  for (std::int32_t i = 2; std::int64_t{i} * i <= number; ++i) {
    if (number % i == 0) return false;
  }
  return true;
}

bool coprime(std::int32_t a, std::int32_t b) { return std::gcd(a, b) == 1; }

DifferenceSet singer(std::int32_t q) {
  const std::int32_t modulus = q * q + q + 1;
  for (std::int32_t c2 = 0; c2 < q; ++c2) {
    for (std::int32_t c1 = 0; c1 < q; ++c1) {
      for (std::int32_t c0 = 1; c0 < q; ++c0) {
        const Cubic f = {c0, c1, c2};
        if (has_root(f, q)) continue;
        std::vector<std::int32_t> found = singer_powers(f, q, modulus);
        if (!found.empty()) return {modulus, std::move(found)};
      }
    }
  }
  PRISM_CHECK(false);
  return {};
}

DifferenceSet bose_chowla(std::int32_t q) {
  for (std::int32_t c1 = 0; c1 < q; ++c1) {
    for (std::int32_t c0 = 1; c0 < q; ++c0) {
      std::vector<std::int32_t> found = bose_powers({c0, c1}, q);
      if (found.size() == static_cast<std::size_t>(q)) return {q * q - 1, std::move(found)};
    }
  }
  PRISM_CHECK(false);
  return {};
}

DifferenceSet ruzsa(std::int32_t q) {
  const std::int32_t modulus = q * (q - 1);
  const std::int32_t g = primitive_root(q);
  std::vector<std::int32_t> found;
  std::int64_t power = 1;
  for (std::int32_t i = 1; i < q; ++i) {
    power = power * g % q;
    // i modulo q - 1 and g^i modulo q: q i - (q - 1) g^i by the Chinese remainder theorem.
    const std::int64_t value = (std::int64_t{q} * i - (q - 1) * power) % modulus;
    found.push_back(static_cast<std::int32_t>(value < 0 ? value + modulus : value));
  }
  std::sort(found.begin(), found.end());
  return {modulus, std::move(found)};
}

}  // namespace prism::spare
