// Messages put together from texts and numbers.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace prism::engine {

inline void append_to(std::string& text, std::string_view part) { text.append(part); }
template <std::integral T>
void append_to(std::string& text, T number) {
  text.append(std::to_string(number));
}

template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string text;
  (append_to(text, parts), ...);
  return text;
}

}  // namespace prism::engine
