// Number formats narrower than float, as training uses them. Encoding rounds to nearest, ties to
// even. float16 and bfloat16 overflow to infinity; the 8-bit formats saturate, as conversions on
// the device do (OCP 8-bit floating point specification, revision 1.0, saturating mode).
#pragma once

#include <cstdint>

namespace prism::intercept {

struct NumberFormat {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;  // false (e4m3): the top exponent holds numbers, all ones is NaN
  bool saturates;

  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
};

inline constexpr NumberFormat float16_format{5, 10, true, false};
inline constexpr NumberFormat bfloat16_format{8, 7, true, false};
inline constexpr NumberFormat float8e4m3_format{4, 3, false, true};
inline constexpr NumberFormat float8e5m2_format{5, 2, true, true};

double decode(const NumberFormat& format, std::uint32_t code) noexcept;
std::uint32_t encode(const NumberFormat& format, double value) noexcept;

}  // namespace prism::intercept
