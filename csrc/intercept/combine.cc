#include "intercept/combine.h"

#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/check.h"
#include "intercept/number.h"

namespace prism::intercept {
namespace {

template <class T>
T element(const std::byte* data, std::int64_t i) noexcept {
  T value;
  std::memcpy(&value, data + i * std::int64_t{sizeof(T)}, sizeof(T));
  return value;
}

double power(double x, std::uint32_t n) noexcept {
  double result = 1;
  for (; n != 0; n >>= 1, x *= x) {
    if ((n & 1U) != 0) result *= x;
  }
  return result;
}

std::uint64_t power(std::uint64_t x, std::uint32_t n) noexcept {
  std::uint64_t result = 1;
  for (; n != 0; n >>= 1, x *= x) {
    if ((n & 1U) != 0) result *= x;
  }
  return result;
}

struct Inputs {
  Reduction op;
  std::uint32_t ranks;
  std::span<const std::byte* const> data;
  std::span<const std::uint32_t> weights;
};

// decode(input, i): the i'th number of an input; encode(i, x) stores one.
template <class Decode, class Encode>
void combine_reals(const Inputs& in, std::int64_t count, Decode&& decode, Encode&& encode) {
  const auto first = static_cast<double>(in.weights[0]);
  for (std::int64_t i = 0; i < count; ++i) {
    double x = decode(in.data[0], i);
    switch (in.op) {
      case Reduction::sum:
      case Reduction::premul_sum:
      case Reduction::avg:
        x *= first;
        for (std::size_t k = 1; k < in.data.size(); ++k) {
          x += decode(in.data[k], i) * static_cast<double>(in.weights[k]);
        }
        if (in.op == Reduction::avg) x /= static_cast<double>(in.ranks);
        break;
      case Reduction::prod:
        x = power(x, in.weights[0]);
        for (std::size_t k = 1; k < in.data.size(); ++k) {
          x *= power(decode(in.data[k], i), in.weights[k]);
        }
        break;
      case Reduction::max:
      case Reduction::min:
        for (std::size_t k = 1; k < in.data.size(); ++k) {
          const double y = decode(in.data[k], i);
          const bool better = in.op == Reduction::max ? y > x : y < x;
          if (better || std::isnan(x)) x = y;
        }
        break;
    }
    encode(i, x);
  }
}

template <class T>
T combine_integers(const Inputs& in, std::int64_t i) noexcept {
  T best = element<T>(in.data[0], i);
  const auto wide = [&](std::size_t k) {
    return static_cast<std::uint64_t>(element<T>(in.data[k], i));
  };
  std::uint64_t x = wide(0);
  switch (in.op) {
    case Reduction::sum:
    case Reduction::premul_sum:
    case Reduction::avg:
      x *= in.weights[0];
      for (std::size_t k = 1; k < in.data.size(); ++k) x += wide(k) * in.weights[k];
      if (in.op != Reduction::avg) return static_cast<T>(x);
      if constexpr (std::is_signed_v<T>) {
        return static_cast<T>(static_cast<std::int64_t>(static_cast<T>(x)) /
                              std::int64_t{in.ranks});
      } else {
        return static_cast<T>(std::uint64_t{static_cast<T>(x)} / in.ranks);
      }
    case Reduction::prod:
      x = power(x, in.weights[0]);
      for (std::size_t k = 1; k < in.data.size(); ++k) x *= power(wide(k), in.weights[k]);
      return static_cast<T>(x);
    case Reduction::max:
    case Reduction::min:
      break;
  }
  for (std::size_t k = 1; k < in.data.size(); ++k) {
    const T y = element<T>(in.data[k], i);
    if (in.op == Reduction::max ? y > best : y < best) best = y;
  }
  return best;
}

template <class T>
void store(std::byte* to, std::int64_t i, T value) noexcept {
  std::memcpy(to + i * std::int64_t{sizeof(T)}, &value, sizeof(T));
}

template <class T>
void integers(const Inputs& in, std::byte* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) store(to, i, combine_integers<T>(in, i));
}

template <class T>
void floats(const Inputs& in, std::byte* to, std::int64_t count) {
  combine_reals(
      in, count,
      [](const std::byte* data, std::int64_t i) {
        return static_cast<double>(element<T>(data, i));
      },
      [to](std::int64_t i, double x) { store(to, i, static_cast<T>(x)); });
}

template <class Code>
void coded(const NumberFormat& format, const Inputs& in, std::byte* to, std::int64_t count) {
  combine_reals(
      in, count,
      [&format](const std::byte* data, std::int64_t i) {
        return decode(format, element<Code>(data, i));
      },
      [&format, to](std::int64_t i, double x) {
        store(to, i, static_cast<Code>(encode(format, x)));
      });
}

}  // namespace

void combine(const UniformReduction& r, std::span<const std::byte* const> inputs,
             std::span<const std::uint32_t> weights, std::byte* to, std::int64_t count) {
  PRISM_CHECK(!inputs.empty() && inputs.size() == weights.size());
  if (inputs.size() == 1) {
    UniformReduction alone = r;  // multiplied already
    if (r.op == Reduction::premul_sum) alone.op = Reduction::sum;
    reduce_uniform(alone, inputs[0], to, count);
    return;
  }
  const Inputs in{r.op, r.ranks, inputs, weights};
  switch (r.dtype) {
    case DataType::int8:
      return integers<std::int8_t>(in, to, count);
    case DataType::uint8:
      return integers<std::uint8_t>(in, to, count);
    case DataType::int32:
      return integers<std::int32_t>(in, to, count);
    case DataType::uint32:
      return integers<std::uint32_t>(in, to, count);
    case DataType::int64:
      return integers<std::int64_t>(in, to, count);
    case DataType::uint64:
      return integers<std::uint64_t>(in, to, count);
    case DataType::float32:
      return floats<float>(in, to, count);
    case DataType::float64:
      return floats<double>(in, to, count);
    case DataType::float16:
      return coded<std::uint16_t>(float16_format, in, to, count);
    case DataType::bfloat16:
      return coded<std::uint16_t>(bfloat16_format, in, to, count);
    case DataType::float8e4m3:
      return coded<std::uint8_t>(float8e4m3_format, in, to, count);
    case DataType::float8e5m2:
      return coded<std::uint8_t>(float8e5m2_format, in, to, count);
    case DataType::none:
      break;
  }
  PRISM_CHECK(false);
}

void premultiply(const UniformReduction& r, std::byte* data, std::int64_t count) {
  if (r.op != Reduction::premul_sum) return;
  UniformReduction own = r;
  own.ranks = 1;
  reduce_uniform(own, data, data, count);
}

}  // namespace prism::intercept
