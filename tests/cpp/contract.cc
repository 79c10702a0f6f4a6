#include "intercept/contract.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "intercept/number.h"

using namespace prism::intercept;
using prism::DataType;
using prism::Reduction;

namespace {

constexpr DataType integers[] = {DataType::int8,   DataType::uint8, DataType::int32,
                                 DataType::uint32, DataType::int64, DataType::uint64};
constexpr DataType reals[] = {DataType::float16,  DataType::float32,    DataType::float64,
                              DataType::bfloat16, DataType::float8e4m3, DataType::float8e5m2};

std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Element i of a buffer, as a number of `bits` bits (unsigned).
std::uint64_t element(const std::vector<std::byte>& data, std::size_t i, std::size_t size) {
  std::uint64_t value = 0;
  std::memcpy(&value, data.data() + i * size, size);
  return value;
}

const NumberFormat* format_of(DataType dtype) {
  switch (dtype) {
    case DataType::float16:
      return &float16_format;
    case DataType::bfloat16:
      return &bfloat16_format;
    case DataType::float8e4m3:
      return &float8e4m3_format;
    case DataType::float8e5m2:
      return &float8e5m2_format;
    default:
      return nullptr;
  }
}

long double real(DataType dtype, std::uint64_t code) {
  if (const NumberFormat* format = format_of(dtype)) {
    return decode(*format, static_cast<std::uint32_t>(code));
  }
  if (dtype == DataType::float32) {
    float value;
    std::memcpy(&value, &code, sizeof value);
    return value;
  }
  double value;
  std::memcpy(&value, &code, sizeof value);
  return value;
}

// A number of the type, rounded from long double.
long double rounded(DataType dtype, long double value) {
  if (const NumberFormat* format = format_of(dtype)) {
    return decode(*format, encode(*format, static_cast<double>(value)));
  }
  if (dtype == DataType::float32) return static_cast<float>(value);
  return static_cast<double>(value);
}

// Distance to the next number of the type, for a tolerance of one unit in the last place.
long double unit(DataType dtype, long double value) {
  int mantissa = dtype == DataType::float32 ? 23 : 52;
  if (const NumberFormat* format = format_of(dtype)) mantissa = format->mantissa_bits;
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0L, exponent - 1 - mantissa);
}

}  // namespace

TEST_CASE("integers wrap: n equal members, added and multiplied one by one") {
  for (const DataType dtype : integers) {
    const std::size_t size = prism::size_of(dtype);
    const std::uint64_t mask = size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * size) - 1;
    for (const std::uint32_t ranks : {1U, 2U, 3U, 7U, 64U, 1000U}) {
      const auto data = random_bytes(64 * size, ranks);
      UniformReduction reduction{dtype, Reduction::sum, ranks, {}};
      const std::uint64_t scalar = 5;
      std::memcpy(reduction.scalar.data(), &scalar, size);
      for (const Reduction op : {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min,
                                 Reduction::avg, Reduction::premul_sum}) {
        reduction.op = op;
        std::vector<std::byte> out(data.size());
        reduce_uniform(reduction, data.data(), out.data(), 64);
        for (std::size_t i = 0; i < 64; ++i) {
          const std::uint64_t x = element(data, i, size);
          std::uint64_t expected = x;
          if (op == Reduction::sum || op == Reduction::prod) {
            for (std::uint32_t other = 1; other < ranks; ++other) {
              expected = op == Reduction::sum ? expected + x : expected * x;
            }
          } else if (op == Reduction::premul_sum) {
            expected = 0;
            for (std::uint32_t member = 0; member < ranks; ++member) expected += scalar * x;
          }
          CHECK(element(out, i, size) == (expected & mask));
        }
      }
    }
  }
}

TEST_CASE("reals: sums are exact multiples rounded once, products within one unit") {
  for (const DataType dtype : reals) {
    const std::size_t size = prism::size_of(dtype);
    for (const std::uint32_t ranks : {1U, 2U, 3U, 128U, 5000U}) {
      const auto data = random_bytes(256 * size, ranks + 17);
      for (const Reduction op :
           {Reduction::sum, Reduction::prod, Reduction::max, Reduction::min, Reduction::avg}) {
        const UniformReduction reduction{dtype, op, ranks, {}};
        std::vector<std::byte> out(data.size());
        reduce_uniform(reduction, data.data(), out.data(), 256);
        for (std::size_t i = 0; i < 256; ++i) {
          const long double x = real(dtype, element(data, i, size));
          const long double y = real(dtype, element(out, i, size));
          if (std::isnan(x)) {
            CHECK(std::isnan(y));
            continue;
          }
          if (op == Reduction::sum) {
            CHECK(y == rounded(dtype, x * ranks));
          } else if (op == Reduction::prod && ranks <= 3) {
            const long double expected = rounded(dtype, std::pow(x, static_cast<int>(ranks)));
            if (std::isinf(expected)) {
              CHECK(y == expected);
            } else {
              CHECK(std::fabs(y - expected) <= unit(dtype, expected));
            }
          } else if (op == Reduction::max || op == Reduction::min || op == Reduction::avg) {
            CHECK(element(out, i, size) == element(data, i, size));  // to the bit
          }
        }
      }
    }
  }
}

TEST_CASE("a product of many members: ones stay, twos become a power") {
  for (const DataType dtype : {DataType::float32, DataType::float64}) {
    const std::size_t size = prism::size_of(dtype);
    for (const double x : {1.0, -1.0, 2.0, 0.5}) {
      std::vector<std::byte> data(size);
      if (size == 4) {
        const auto narrow = static_cast<float>(x);
        std::memcpy(data.data(), &narrow, 4);
      } else {
        std::memcpy(data.data(), &x, 8);
      }
      reduce_uniform({dtype, Reduction::prod, 101, {}}, data.data(), data.data(), 1);
      CHECK(real(dtype, element(data, 0, size)) == std::pow(static_cast<long double>(x), 101));
    }
  }
}

TEST_CASE("premul_sum rounds the scaled number, then sums") {
  for (const DataType dtype : reals) {
    const std::size_t size = prism::size_of(dtype);
    const auto data = random_bytes(64 * size, 3);
    UniformReduction reduction{dtype, Reduction::premul_sum, 24, {}};
    long double scalar = 0.3L;
    if (const NumberFormat* format = format_of(dtype)) {
      const std::uint32_t code = encode(*format, 0.3);
      std::memcpy(reduction.scalar.data(), &code, size);
      scalar = decode(*format, code);
    } else if (dtype == DataType::float32) {
      const float value = 0.3F;
      std::memcpy(reduction.scalar.data(), &value, 4);
      scalar = value;
    } else {
      const double value = 0.3;
      std::memcpy(reduction.scalar.data(), &value, 8);
      scalar = value;
    }
    std::vector<std::byte> out(data.size());
    reduce_uniform(reduction, data.data(), out.data(), 64);
    for (std::size_t i = 0; i < 64; ++i) {
      const long double x = real(dtype, element(data, i, size));
      if (!std::isfinite(x)) continue;
      const long double expected = rounded(dtype, rounded(dtype, scalar * x) * 24);
      const long double y = real(dtype, element(out, i, size));
      if (std::isinf(expected)) {
        CHECK(y == expected);
      } else {
        CHECK(std::fabs(y - expected) <= unit(dtype, expected));
      }
    }
  }
}

TEST_CASE("a long buffer of narrow numbers takes the tabulated path to the same answer") {
  for (const DataType dtype : {DataType::bfloat16, DataType::float8e4m3}) {
    const std::size_t size = prism::size_of(dtype);
    const std::int64_t count = 70000;
    const auto data = random_bytes(static_cast<std::size_t>(count) * size, 5);
    const UniformReduction reduction{dtype, Reduction::sum, 12, {}};
    std::vector<std::byte> whole(data.size());
    std::vector<std::byte> pieces(data.size());
    reduce_uniform(reduction, data.data(), whole.data(), count);
    for (std::int64_t at = 0; at < count; at += 200) {
      const std::size_t byte = static_cast<std::size_t>(at) * size;
      reduce_uniform(reduction, data.data() + byte, pieces.data() + byte,
                     std::min<std::int64_t>(200, count - at));
    }
    CHECK(whole == pieces);
  }
}

TEST_CASE("spread repeats, cuts, and reads zero where there is nothing") {
  const auto source = random_bytes(12, 9);
  std::vector<std::byte> out(40, std::byte{0xEE});
  spread(source.data(), 12, out.data(), 40);
  for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i] == source[i % 12]);
  spread(nullptr, 0, out.data(), 40);
  CHECK(is_zero(out.data(), 40));

  // An all-gather in place: the own chunk lies inside the result.
  std::vector<std::byte> whole = random_bytes(30, 10);
  const std::vector<std::byte> before = whole;
  spread(whole.data() + 20, 10, whole.data(), 30);
  for (std::size_t i = 0; i < 30; ++i) CHECK(whole[i] == before[20 + i % 10]);
}

TEST_CASE("zeros are told from anything else") {
  std::vector<std::byte> data(100);
  CHECK(is_zero(data.data(), 100));
  CHECK(is_zero(data.data(), 0));
  for (const std::size_t at : {std::size_t{0}, std::size_t{50}, std::size_t{99}}) {
    data[at] = std::byte{1};
    CHECK_FALSE(is_zero(data.data(), 100));
    data[at] = std::byte{0};
  }
}

TEST_CASE("legality: 8-bit floats are reduced from compute capability 9.0 on") {
  for (const DataType dtype : integers) CHECK(why_illegal(dtype, 80) == nullptr);
  for (const DataType dtype : reals) {
    const bool narrow = dtype == DataType::float8e4m3 || dtype == DataType::float8e5m2;
    CHECK((why_illegal(dtype, 80) != nullptr) == narrow);
    CHECK(why_illegal(dtype, 90) == nullptr);
  }
}
