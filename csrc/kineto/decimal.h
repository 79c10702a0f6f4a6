// Numbers of a trace as its text holds them, exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace prism {

// A JSON number of microseconds in whole nanoseconds, the nearest (halves away from zero). None: it
// is no number, or beyond 64 bits.
std::optional<std::int64_t> nanoseconds(std::string_view microseconds) noexcept;

// A whole number, also as a text of digits or as 7.0. None: anything else.
std::optional<std::int64_t> whole_number(std::string_view text) noexcept;

}  // namespace prism
