#include "intercept/contract.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "intercept/number.h"

namespace prism::intercept {

namespace {

// x^n by squaring: the same result on every machine, which std::pow does not promise.
template <class T>
T power(T x, std::uint32_t n) noexcept {
  T result = 1;
  for (;; x = static_cast<T>(x * x)) {
    if ((n & 1U) != 0) result = static_cast<T>(result * x);
    n >>= 1;
    if (n == 0) return result;
  }
}

// Integers wrap as the device's do: the arithmetic is that of the unsigned type of the same width,
// done in 64 bits so that nothing is promoted to a signed type.
std::uint64_t reduce_integer(std::uint64_t x, std::uint64_t scalar, Reduction op,
                             std::uint32_t ranks) noexcept {
  switch (op) {
    case Reduction::sum:
      return x * ranks;
    case Reduction::prod:
      return power<std::uint64_t>(x, ranks);
    case Reduction::premul_sum:
      return x * scalar * ranks;
    case Reduction::max:
    case Reduction::min:
    case Reduction::avg:
      break;
  }
  return x;
}

// In double, whose products of a narrow number and a rank count are exact, then rounded once by
// the caller. premul_sum rounds the scaled number to the type first, as the device does.
template <class Round>
double reduce_real(double x, double scalar, Reduction op, std::uint32_t ranks,
                   Round&& round) noexcept {
  switch (op) {
    case Reduction::sum:
      return x * ranks;
    case Reduction::prod:
      return power<double>(x, ranks);
    case Reduction::premul_sum:
      return round(x * scalar) * ranks;
    case Reduction::max:
    case Reduction::min:
    case Reduction::avg:
      break;
  }
  return x;
}

template <class T, class F>
void each(const void* from, void* to, std::int64_t count, F&& f) {
  const auto* in = static_cast<const std::byte*>(from);
  auto* out = static_cast<std::byte*>(to);
  for (std::int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, in + i * std::int64_t{sizeof(T)}, sizeof(T));
    value = f(value);
    std::memcpy(out + i * std::int64_t{sizeof(T)}, &value, sizeof(T));
  }
}

template <class T>
T scalar_of(const UniformReduction& r) noexcept {
  T value;
  std::memcpy(&value, r.scalar.data(), sizeof(T));
  return value;
}

template <class T>
void reduce_integers(const UniformReduction& r, const void* from, void* to, std::int64_t count) {
  const auto scalar = static_cast<std::uint64_t>(scalar_of<T>(r));
  each<T>(from, to, count, [&](T x) {
    return static_cast<T>(reduce_integer(static_cast<std::uint64_t>(x), scalar, r.op, r.ranks));
  });
}

template <class T>
void reduce_floats(const UniformReduction& r, const void* from, void* to, std::int64_t count) {
  const auto scalar = static_cast<double>(scalar_of<T>(r));
  const auto round = [](double x) { return static_cast<double>(static_cast<T>(x)); };
  each<T>(from, to, count, [&](T x) {
    return static_cast<T>(reduce_real(static_cast<double>(x), scalar, r.op, r.ranks, round));
  });
}

template <class Code>
void reduce_coded(const NumberFormat& format, const UniformReduction& r, const void* from, void* to,
                  std::int64_t count) {
  const double scalar = decode(format, scalar_of<Code>(r));
  const auto one = [&](Code code) {
    const auto round = [&](double x) { return decode(format, encode(format, x)); };
    const double y = reduce_real(decode(format, code), scalar, r.op, r.ranks, round);
    return static_cast<Code>(encode(format, y));
  };
  const std::size_t codes = std::size_t{1} << format.bits();
  if (count <= static_cast<std::int64_t>(codes)) {
    each<Code>(from, to, count, one);
    return;
  }
  std::vector<Code> table(codes);  // more numbers than there are different ones
  for (std::size_t code = 0; code < codes; ++code) table[code] = one(static_cast<Code>(code));
  each<Code>(from, to, count, [&](Code code) { return table[code]; });
}

}  // namespace

const char* why_illegal(DataType dtype, std::int32_t compute_capability) noexcept {
  const bool narrow = dtype == DataType::float8e4m3 || dtype == DataType::float8e5m2;
  if (narrow && compute_capability < 90) {
    return "8-bit floats are reduced from compute capability 9.0 on";
  }
  return nullptr;
}

void reduce_uniform(const UniformReduction& r, const void* from, void* to, std::int64_t count) {
  if (r.op == Reduction::max || r.op == Reduction::min || r.op == Reduction::avg) {
    std::memmove(to, from, static_cast<std::size_t>(count) * size_of(r.dtype));
    return;
  }
  switch (r.dtype) {
    case DataType::int8:
      return reduce_integers<std::int8_t>(r, from, to, count);
    case DataType::uint8:
      return reduce_integers<std::uint8_t>(r, from, to, count);
    case DataType::int32:
      return reduce_integers<std::int32_t>(r, from, to, count);
    case DataType::uint32:
      return reduce_integers<std::uint32_t>(r, from, to, count);
    case DataType::int64:
      return reduce_integers<std::int64_t>(r, from, to, count);
    case DataType::uint64:
      return reduce_integers<std::uint64_t>(r, from, to, count);
    case DataType::float32:
      return reduce_floats<float>(r, from, to, count);
    case DataType::float64:
      return reduce_floats<double>(r, from, to, count);
    case DataType::float16:
      return reduce_coded<std::uint16_t>(float16_format, r, from, to, count);
    case DataType::bfloat16:
      return reduce_coded<std::uint16_t>(bfloat16_format, r, from, to, count);
    case DataType::float8e4m3:
      return reduce_coded<std::uint8_t>(float8e4m3_format, r, from, to, count);
    case DataType::float8e5m2:
      return reduce_coded<std::uint8_t>(float8e5m2_format, r, from, to, count);
    case DataType::none:
      break;
  }
  PRISM_CHECK(false);
}

void spread(const void* from, std::int64_t from_bytes, void* to, std::int64_t to_bytes) {
  auto* out = static_cast<std::byte*>(to);
  if (from_bytes <= 0) {
    std::memset(out, 0, static_cast<std::size_t>(to_bytes));
    return;
  }
  for (std::int64_t at = 0; at < to_bytes; at += from_bytes) {
    const std::int64_t bytes = std::min(from_bytes, to_bytes - at);
    if (out + at != from) std::memmove(out + at, from, static_cast<std::size_t>(bytes));
  }
}

bool is_zero(const void* data, std::int64_t bytes) noexcept {
  const auto* at = static_cast<const unsigned char*>(data);
  if (bytes <= 0) return true;
  return at[0] == 0 && std::memcmp(at, at + 1, static_cast<std::size_t>(bytes - 1)) == 0;
}

}  // namespace prism::intercept
