// Checked asserts for internal faults: on in every build, because a wrong answer costs more
// than a branch that is never taken.
#pragma once

namespace prism {
[[noreturn]] void check_failed(const char* condition, const char* file, int line) noexcept;
}  // namespace prism

#define PRISM_CHECK(condition) \
  (static_cast<bool>(condition) ? void(0) : ::prism::check_failed(#condition, __FILE__, __LINE__))
