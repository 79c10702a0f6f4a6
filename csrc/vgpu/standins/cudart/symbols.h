// Device variables that libraries register: each gets device memory when first asked for.
#pragma once

#include <cstddef>

namespace prism::standins {

struct Symbol {
  void* address = nullptr;  // nullptr: not registered
  std::size_t bytes = 0;
};

void add_symbol(const void* symbol, std::size_t bytes);
Symbol find_symbol(const void* symbol);

}  // namespace prism::standins
