#include "vgpu/device/kernels.h"

#include <utility>

namespace prism::vgpu {

FunctionNames& FunctionNames::get() {
  static auto* names = new FunctionNames;  // outlives every library that registers
  return *names;
}

void FunctionNames::add(const void* function, std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto [it, added] = names_.try_emplace(function);
  if (added || it->second != name) it->second = texts_.emplace_back(name);
}

std::string_view FunctionNames::find(const void* function) const {
  const std::lock_guard lock(mutex_);
  const auto it = names_.find(function);
  return it == names_.end() ? std::string_view() : it->second;
}

namespace {

std::size_t hash(const void* address) noexcept {
  const std::uint64_t h = reinterpret_cast<std::uintptr_t>(address) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::size_t>(h ^ h >> 32);
}

std::uint64_t hash(const void* address, const KernelShape& shape) noexcept {
  std::uint64_t h = reinterpret_cast<std::uintptr_t>(address);
  const auto mix = [&h](std::uint64_t word) {
    h = (h ^ word) * 0x9e3779b97f4a7c15ULL;
    h ^= h >> 29;
  };
  mix(std::uint64_t{shape.grid[0]} << 32 | shape.grid[1]);
  mix(std::uint64_t{shape.grid[2]} << 32 | shape.shared_bytes);
  mix(std::uint64_t{shape.block[0]} << 40 ^ std::uint64_t{shape.block[1]} << 20 ^ shape.block[2]);
  mix(static_cast<std::uint64_t>(shape.gemm.n) << 20 ^ static_cast<std::uint64_t>(shape.gemm.k));
  return h ^ h >> 32;
}

}  // namespace

KernelTable::FunctionSlot& KernelTable::function_slot(const void* address) noexcept {
  const std::size_t mask = functions_.size() - 1;
  std::size_t i = hash(address) & mask;
  while (functions_[i].address != nullptr && functions_[i].address != address) i = (i + 1) & mask;
  return functions_[i];
}

const KernelTable::Function* KernelTable::function(const void* address) {
  if (used_functions_ * 2 >= functions_.size()) grow_functions();
  FunctionSlot& slot = function_slot(address);
  if (slot.address == nullptr) {
    const std::string_view name = FunctionNames::get().find(address);
    if (name.empty()) return nullptr;
    slot.address = address;
    slot.function = {name, LaunchCounts(name)};
    ++used_functions_;
  }
  return &slot.function;
}

KernelInfo* KernelTable::find(const void* address, const KernelShape& shape) noexcept {
  if (slots_.empty()) return nullptr;
  const std::uint64_t h = hash(address, shape);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = h & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.kernel == missing) return nullptr;
    if (slot.tag != static_cast<std::uint32_t>(h >> 32)) continue;
    KernelInfo& kernel = kernels_[slot.kernel];
    if (kernel.address == address && kernel.shape == shape) return &kernel;
  }
}

KernelInfo& KernelTable::insert(const KernelInfo& kernel, std::string_view name) {
  if (used_ * 2 >= slots_.size()) grow();
  place(hash(kernel.address, kernel.shape), static_cast<std::uint32_t>(kernels_.size()));
  ++used_;
  names_.emplace_back(name);
  return kernels_.emplace_back(kernel);
}

void KernelTable::place(std::uint64_t hash, std::uint32_t kernel) noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash & mask;
  while (slots_[i].kernel != missing) i = (i + 1) & mask;
  slots_[i] = {static_cast<std::uint32_t>(hash >> 32), kernel};
}

void KernelTable::grow() {
  const std::vector<Slot> old = std::exchange(slots_, {});
  slots_.resize(old.empty() ? 1024 : old.size() * 2);
  for (const Slot& slot : old) {
    if (slot.kernel == missing) continue;
    const KernelInfo& kernel = kernels_[slot.kernel];
    place(hash(kernel.address, kernel.shape), slot.kernel);
  }
}

void KernelTable::grow_functions() {
  std::vector<FunctionSlot> old = std::exchange(functions_, {});
  functions_.resize(old.empty() ? 1024 : old.size() * 2);
  for (const FunctionSlot& slot : old) {
    if (slot.address != nullptr) function_slot(slot.address) = slot;
  }
}

}  // namespace prism::vgpu
