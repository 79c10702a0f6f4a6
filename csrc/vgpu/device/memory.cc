#include "vgpu/device/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace prism::vgpu {
namespace {

constexpr std::uintptr_t round_up(std::uintptr_t value, std::uintptr_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

// Written ranges are kept at the framework allocator's rounding, so that the set stays small.
constexpr std::uintptr_t written_unit = 512;

void clear(Range range, std::uintptr_t page) noexcept {
  const std::uintptr_t first = round_up(range.begin, page);
  const std::uintptr_t last = range.end / page * page;
  if (first >= last || last - first < 8 * page) {
    std::memset(reinterpret_cast<void*>(range.begin), 0, range.size());
    return;
  }
  std::memset(reinterpret_cast<void*>(range.begin), 0, first - range.begin);
  PRISM_CHECK(madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) == 0);
  std::memset(reinterpret_cast<void*>(last), 0, range.end - last);
}

}  // namespace

DeviceMemory::~DeviceMemory() {
  if (arena_.begin != 0) munmap(reinterpret_cast<void*>(arena_.begin), arena_.size());
}

DeviceMemory::DeviceMemory() {
  // Less where so much is not to be had (a limit on address space, the thread sanitizer's map).
  for (std::uintptr_t size = address_space; size >= least_address_space; size /= 2) {
    void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) continue;
    arena_ = range_of(base, static_cast<std::int64_t>(size));
    free_.add({round_up(arena_.begin, granularity), arena_.end / granularity * granularity});
    return;
  }
}

void* DeviceMemory::allocate(std::int64_t bytes, std::int32_t device, Kind kind) {
  if (bytes <= 0 || static_cast<std::uintptr_t>(bytes) > address_space) return nullptr;
  const std::uintptr_t size = round_up(static_cast<std::uintptr_t>(bytes), granularity);
  Range found;
  free_.for_each(arena_, [&](Range part) {
    if (found.empty() && part.size() >= size) found = {part.begin, part.begin + size};
  });
  if (found.empty()) return nullptr;
  free_.remove(found);
  blocks_.emplace(found.begin, Block{found, bytes, device, kind});
  return reinterpret_cast<void*>(found.begin);
}

std::optional<DeviceMemory::Block> DeviceMemory::free(void* address, Kind kind) {
  const auto it = blocks_.find(reinterpret_cast<std::uintptr_t>(address));
  if (it == blocks_.end() || it->second.kind != kind) return std::nullopt;
  const Block block = it->second;
  blocks_.erase(it);
  zero(block.range);
  free_.add(block.range);
  return block;
}

std::optional<DeviceMemory::Block> DeviceMemory::find(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto it = blocks_.upper_bound(at);
  if (it == blocks_.begin()) return std::nullopt;
  --it;
  if (at >= it->second.range.end) return std::nullopt;
  return it->second;
}

bool DeviceMemory::is_live(Range range) const {
  const auto block = find(reinterpret_cast<const void*>(range.begin));
  return block && range.begin <= range.end && range.end <= block->range.end;
}

void DeviceMemory::written(Range range) {
  if (range.empty()) return;
  written_.add({range.begin / written_unit * written_unit, round_up(range.end, written_unit)});
}

std::vector<Range> DeviceMemory::written_in(Range range) const {
  std::vector<Range> parts;
  written_.for_each(range, [&](Range part) { parts.push_back(part); });
  return parts;
}

void DeviceMemory::zero(Range range) {
  if (!written_.overlaps(range)) return;
  static const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  written_.for_each(range, [](Range part) { clear(part, page); });
  written_.remove(range);
}

void* PinnedMemory::allocate(std::int64_t bytes) {
  constexpr std::uintptr_t page = 4096;
  if (bytes <= 0 || static_cast<std::uintptr_t>(bytes) > DeviceMemory::address_space)
    return nullptr;
  const std::uintptr_t size = round_up(static_cast<std::uintptr_t>(bytes), page);
  void* address = std::aligned_alloc(page, size);
  if (address == nullptr) return nullptr;
  entries_.emplace(reinterpret_cast<std::uintptr_t>(address),
                   Entry{reinterpret_cast<std::uintptr_t>(address) + size, true});
  return address;
}

bool PinnedMemory::free(void* address) {
  const auto it = entries_.find(reinterpret_cast<std::uintptr_t>(address));
  if (it == entries_.end() || !it->second.owned) return false;
  entries_.erase(it);
  std::free(address);
  return true;
}

bool PinnedMemory::add(void* address, std::int64_t bytes) {
  const Range range = range_of(address, bytes);
  if (range.empty() || find(address)) return false;
  const auto next = entries_.lower_bound(range.begin);
  if (next != entries_.end() && next->first < range.end) return false;
  return entries_.emplace(range.begin, Entry{range.end, false}).second;
}

bool PinnedMemory::remove(void* address) {
  const auto it = entries_.find(reinterpret_cast<std::uintptr_t>(address));
  if (it == entries_.end() || it->second.owned) return false;
  entries_.erase(it);
  return true;
}

std::optional<Range> PinnedMemory::find(const void* address) const {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto it = entries_.upper_bound(at);
  if (it == entries_.begin()) return std::nullopt;
  --it;
  if (at >= it->second.end) return std::nullopt;
  return Range{it->first, it->second.end};
}

}  // namespace prism::vgpu
