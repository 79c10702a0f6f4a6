#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace prism {

void check_failed(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "prismcore: internal fault: %s does not hold (%s:%d); please report it\n",
               condition, file, line);
  std::abort();
}

}  // namespace prism
