#include "vgpu/device/kernels.h"

#include <utility>

namespace prism::vgpu {

FunctionNames& FunctionNames::get() {
  static auto* names = new FunctionNames;  // outlives every library that registers
  return *names;
}

void FunctionNames::add(const void* function, std::string_view name) {
  const std::lock_guard lock(mutex_);
  names_.insert_or_assign(function, std::string(name));
}

std::string_view FunctionNames::find(const void* function) const {
  const std::lock_guard lock(mutex_);
  const auto it = names_.find(function);
  return it == names_.end() ? std::string_view() : std::string_view(it->second);
}

std::size_t KernelTable::hash(const void* function, const LaunchShape& shape) noexcept {
  // Odd constants of 64 random bits; every word is mixed before the next is added.
  std::uint64_t h = reinterpret_cast<std::uintptr_t>(function);
  const auto mix = [&h](std::uint64_t word) {
    h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
    h ^= h >> 29;
  };
  mix(std::uint64_t{shape.grid[0]} << 32 | shape.grid[1]);
  mix(std::uint64_t{shape.grid[2]} << 32 | shape.shared_bytes);
  mix(std::uint64_t{shape.block[0]} << 40 ^ std::uint64_t{shape.block[1]} << 20 ^ shape.block[2]);
  return static_cast<std::size_t>(h ^ h >> 32);
}

std::uint32_t KernelTable::find(const void* function, const LaunchShape& shape) const noexcept {
  if (slots_.empty()) return missing;
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = hash(function, shape) & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.kernel == missing) return missing;
    if (slot.function == function && slot.shape == shape) return slot.kernel;
  }
}

void KernelTable::insert(const void* function, const LaunchShape& shape, std::uint32_t kernel) {
  if (used_ * 2 >= slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash(function, shape) & mask;
  while (slots_[i].kernel != missing) i = (i + 1) & mask;
  slots_[i] = {function, shape, kernel};
  ++used_;
}

void KernelTable::grow() {
  std::vector<Slot> old = std::exchange(slots_, {});
  slots_.resize(old.empty() ? 1024 : old.size() * 2);
  used_ = 0;
  for (const Slot& slot : old) {
    if (slot.kernel != missing) insert(slot.function, slot.shape, slot.kernel);
  }
}

}  // namespace prism::vgpu
