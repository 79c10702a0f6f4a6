#include "vgpu/standins/cudart/symbols.h"

#include <mutex>
#include <unordered_map>

#include "vgpu/device/runtime.h"

namespace prism::standins {
namespace {

struct Symbols {
  std::mutex mutex;
  std::unordered_map<const void*, Symbol> all;
};

Symbols& symbols() {
  static auto* all = new Symbols;  // libraries register before main()
  return *all;
}

}  // namespace

void add_symbol(const void* symbol, std::size_t bytes) {
  const std::lock_guard lock(symbols().mutex);
  symbols().all[symbol] = {nullptr, bytes};
}

Symbol find_symbol(const void* symbol) {
  const std::lock_guard lock(symbols().mutex);
  const auto it = symbols().all.find(symbol);
  if (it == symbols().all.end()) return {};
  if (it->second.address == nullptr) {
    // Part of the module's image, which the context already pays for: no memory of its own.
    it->second.address =
        vgpu::Runtime::get().reserve_addresses(static_cast<std::int64_t>(it->second.bytes), 0);
  }
  return it->second;
}

}  // namespace prism::standins
