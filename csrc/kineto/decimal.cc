#include "kineto/decimal.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace prism {
namespace {

// digits x 10^exponent, of a JSON number; digits beyond 18 are looked at for rounding only.
struct Decimal {
  bool negative = false;
  std::uint64_t digits = 0;
  int exponent = 0;
  int dropped = -1;  // the first digit that did not fit
};

constexpr std::uint64_t most_digits = 1'000'000'000'000'000'000;

std::optional<Decimal> parse(std::string_view text) noexcept {
  Decimal value;
  std::size_t i = 0;
  if (i < text.size() && text[i] == '-') {
    value.negative = true;
    ++i;
  }
  bool any = false;
  bool fraction = false;
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '.' && !fraction) {
      fraction = true;
      continue;
    }
    if (c < '0' || c > '9') break;
    any = true;
    const auto digit = static_cast<unsigned>(c - '0');
    if (value.digits < most_digits && value.dropped < 0) {
      value.digits = value.digits * 10 + digit;
      value.exponent -= fraction ? 1 : 0;
    } else {
      if (value.dropped < 0) value.dropped = static_cast<int>(digit);
      value.exponent += fraction ? 0 : 1;
    }
  }
  if (!any) return std::nullopt;
  if (i < text.size()) {
    if (text[i] != 'e' && text[i] != 'E') return std::nullopt;
    ++i;
    if (i < text.size() && text[i] == '+') ++i;
    int exponent = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + text.size(), exponent);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    value.exponent += std::clamp(exponent, -10'000, 10'000);
  }
  return value;
}

// The whole number nearest to the value.
std::optional<std::int64_t> round(Decimal value) noexcept {
  if (value.digits == 0) return 0;
  std::uint64_t digits = value.digits;
  int next = value.dropped;
  for (; value.exponent > 0; --value.exponent) {
    if (digits > std::numeric_limits<std::int64_t>::max() / 10) return std::nullopt;
    const auto digit = static_cast<std::uint64_t>(next > 0 ? next : 0);
    next = 0;
    digits = digits * 10 + digit;
  }
  for (; value.exponent < 0 && digits > 0; ++value.exponent) {
    next = static_cast<int>(digits % 10);
    digits /= 10;
  }
  if (value.exponent < 0) next = 0;  // far below one half
  digits += next >= 5 ? 1U : 0U;
  if (digits > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return std::nullopt;
  }
  const auto whole = static_cast<std::int64_t>(digits);
  return value.negative ? -whole : whole;
}

}  // namespace

std::optional<std::int64_t> nanoseconds(std::string_view microseconds) noexcept {
  auto value = parse(microseconds);
  if (!value) return std::nullopt;
  value->exponent += 3;
  return round(*value);
}

std::optional<std::int64_t> whole_number(std::string_view text) noexcept {
  const auto value = parse(text);
  if (!value) return std::nullopt;
  const auto whole = round(*value);
  if (!whole || value->exponent >= 0) return whole;
  std::uint64_t digits = value->digits;  // nothing behind the point but zeros
  for (int i = value->exponent; i < 0 && digits > 0; ++i) {
    if (digits % 10 != 0) return std::nullopt;
    digits /= 10;
  }
  return whole;
}

}  // namespace prism
