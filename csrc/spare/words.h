// Numbers in messages.
#pragma once

#include <cstdint>
#include <string>

namespace prism::spare {

// "1 group", "20 groups"; for nouns that take an s.
inline std::string counted(std::int64_t number, const char* noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

}  // namespace prism::spare
