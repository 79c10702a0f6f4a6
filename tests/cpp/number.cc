#include "intercept/number.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

using namespace prism::intercept;

namespace {

constexpr NumberFormat formats[] = {float16_format, bfloat16_format, float8e4m3_format,
                                    float8e5m2_format};

std::uint32_t codes(const NumberFormat& format) { return 1U << format.bits(); }

// The nearest finite code by search, ties to the even one: what encode() must find by arithmetic.
// Positive codes ascend with their value.
std::uint32_t nearest(const NumberFormat& format, double value) {
  const std::uint32_t sign = std::signbit(value) ? codes(format) / 2 : 0;
  const double magnitude = std::fabs(value);
  std::uint32_t low = 0;
  while (low + 1 < codes(format) / 2 && std::isfinite(decode(format, low + 1)) &&
         decode(format, low + 1) <= magnitude) {
    ++low;
  }
  const double below = decode(format, low);
  const double above = decode(format, low + 1);
  if (!std::isfinite(above)) {
    // Past the largest: as if one more finite number followed it.
    const double step = below - decode(format, low - 1);
    const bool over =
        magnitude >= below + step / 2 && (magnitude > below + step / 2 || low % 2 == 1);
    return sign | (over && !format.saturates ? low + 1 : low);
  }
  if (magnitude - below < above - magnitude) return sign | low;
  if (magnitude - below > above - magnitude) return sign | (low + 1);
  return sign | (low % 2 == 0 ? low : low + 1);
}

}  // namespace

TEST_CASE("every number is the code it came from") {
  for (const NumberFormat& format : formats) {
    for (std::uint32_t code = 0; code < codes(format); ++code) {
      const double value = decode(format, code);
      if (std::isnan(value)) {
        CHECK(std::isnan(decode(format, encode(format, value))));
      } else if (!(std::isinf(value) && format.saturates)) {
        CHECK(encode(format, value) == code);
      }
    }
  }
}

TEST_CASE("known codes") {
  CHECK(decode(float8e4m3_format, 0x7E) == 448);
  CHECK(decode(float8e4m3_format, 0x01) == std::ldexp(1.0, -9));
  CHECK(decode(float8e4m3_format, 0x38) == 1);
  CHECK(std::isnan(decode(float8e4m3_format, 0x7F)));
  CHECK(decode(float8e5m2_format, 0x7B) == 57344);
  CHECK(decode(float8e5m2_format, 0xBC) == -1);
  CHECK(decode(float16_format, 0x7BFF) == 65504);
  CHECK(decode(float16_format, 0x0001) == std::ldexp(1.0, -24));
  CHECK(encode(float16_format, 1e9) == 0x7C00);
  CHECK(encode(float8e4m3_format, -1e9) == 0xFE);
  CHECK(encode(float8e5m2_format, std::numeric_limits<double>::infinity()) == 0x7B);
}

TEST_CASE("bfloat16 is the upper half of float32") {
  for (std::uint32_t code = 0; code < 0x10000; ++code) {
    const auto value = std::bit_cast<float>(code << 16);
    if (std::isnan(value)) continue;
    CHECK(decode(bfloat16_format, code) == static_cast<double>(value));
  }
}

TEST_CASE("rounding finds the nearest, ties to even") {
  std::mt19937_64 random(1);
  for (const NumberFormat& format : {float16_format, float8e4m3_format, float8e5m2_format}) {
    const double largest =
        format.has_infinity ? decode(format, codes(format) / 2 - 1 - (1U << format.mantissa_bits))
                            : 448;
    std::uniform_real_distribution<double> exponent(-30, std::log2(largest) + 1);
    for (int i = 0; i < 500; ++i) {
      const double value = std::exp2(exponent(random)) * (i % 2 == 0 ? 1 : -1);
      CHECK(encode(format, value) == nearest(format, value));
    }
    for (std::uint32_t code = 0; code + 1 < codes(format) / 2; code += 37) {
      const double middle = (decode(format, code) + decode(format, code + 1)) / 2;
      if (std::isfinite(middle)) CHECK(encode(format, middle) == nearest(format, middle));
    }
  }
}
