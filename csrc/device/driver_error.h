// A call of the CUDA driver failed, or the driver has no such call. Python's class of the same name
// is in prismcore.errors.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.h"

namespace prism {

struct DriverError : Error {
  DriverError(const std::string& text, std::string of_call, int number, std::int64_t of,
              std::int64_t at)
      : Error(text), call(std::move(of_call)), code(number), rank(of), op(at) {}
  std::string call;   // the driver's name of it
  int code;           // CUDA's; -1: the driver could not be loaded
  std::int64_t rank;  // in the world; -1: none
  std::int64_t op;    // number in its program; -1: none
};

}  // namespace prism
