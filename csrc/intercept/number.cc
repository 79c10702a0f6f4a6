#include "intercept/number.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace prism::intercept {

double decode(const NumberFormat& format, std::uint32_t code) noexcept {
  const std::uint32_t mantissa_mask = (1U << format.mantissa_bits) - 1;
  const std::uint32_t exponent_mask = (1U << format.exponent_bits) - 1;
  const std::uint32_t mantissa = code & mantissa_mask;
  const std::uint32_t exponent = (code >> format.mantissa_bits) & exponent_mask;
  const bool negative = (code >> (format.bits() - 1) & 1U) != 0;
  double value = 0;
  if (exponent == exponent_mask && format.has_infinity) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == exponent_mask && mantissa == mantissa_mask) {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(static_cast<double>(mantissa), 1 - format.bias() - format.mantissa_bits);
  } else {
    value = std::ldexp(static_cast<double>(mantissa | (1U << format.mantissa_bits)),
                       static_cast<int>(exponent) - format.bias() - format.mantissa_bits);
  }
  return negative ? -value : value;
}

std::uint32_t encode(const NumberFormat& format, double value) noexcept {
  const std::uint32_t sign = std::signbit(value) ? 1U << (format.bits() - 1) : 0U;
  const std::uint32_t top = ((1U << format.exponent_bits) - 1) << format.mantissa_bits;
  const std::uint32_t ones = (1U << format.mantissa_bits) - 1;
  if (std::isnan(value)) {
    const std::uint32_t quiet = format.has_infinity ? 1U << (format.mantissa_bits - 1) : ones;
    return sign | top | quiet;
  }
  const std::uint32_t largest = format.has_infinity ? top - 1 : (top | ones) - 1;
  const std::uint32_t overflow = format.saturates ? largest : top;
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return sign | overflow;
  if (magnitude == 0) return sign;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude = f * 2^exponent, f in [1/2, 1)
  exponent = std::max(exponent - 1, 1 - format.bias());
  if (exponent > format.bias() + 1) return sign | overflow;
  // In units of the last place: an integer after rounding. Adding it to the exponent field carries
  // by itself where rounding reaches the next power of two, or leaves the subnormal range.
  const double units = std::nearbyint(std::ldexp(magnitude, format.mantissa_bits - exponent));
  const auto field = static_cast<std::uint32_t>(exponent + format.bias() - 1);
  const std::uint32_t code = (field << format.mantissa_bits) + static_cast<std::uint32_t>(units);
  return sign | (code > largest ? overflow : code);
}

}  // namespace prism::intercept
