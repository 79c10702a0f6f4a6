// Device memory of the virtual GPU: one reservation of address space whose pages cost nothing
// until the host or a small copy writes them. Not thread-safe: Session serialises.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "vgpu/device/ranges.h"

namespace prism::vgpu {

class DeviceMemory {
 public:
  // Wide, because expandable segments reserve more than a device's memory for every stream.
  static constexpr std::uintptr_t address_space = std::uintptr_t{4} << 40;
  static constexpr std::uintptr_t least_address_space = std::uintptr_t{64} << 30;
  static constexpr std::int64_t granularity = std::int64_t{2} << 20;

  // Memory, or addresses alone: what one call took only its own counterpart gives back.
  enum class Kind : std::uint8_t { memory, addresses };
  struct Block {
    Range range;
    std::int64_t asked_bytes = 0;
    std::int32_t device = 0;
    Kind kind = Kind::memory;
  };

  // Reserves the address space; without any, allocate() finds no room.
  DeviceMemory();
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Address space for `bytes` rounded up to the granularity, lowest fit; nullptr when none is
  // left. Reads as zero. What a device holds is the caller's business (Session's accounting).
  void* allocate(std::int64_t bytes, std::int32_t device, Kind kind = Kind::memory);
  // The freed block, or nothing when no block of the kind starts there. Its pages go back to the
  // system.
  std::optional<Block> free(void* address, Kind kind = Kind::memory);
  // The live block that holds this address.
  std::optional<Block> find(const void* address) const;
  // All of it lies in one live block.
  bool is_live(Range range) const;
  // Inside the reservation, live or not.
  bool contains(const void* address) const noexcept {
    return reinterpret_cast<std::uintptr_t>(address) - arena_.begin < arena_.size();
  }

  // Bytes that something wrote. zero() gives back or clears only those.
  void written(Range range);
  bool is_written(Range range) const noexcept { return written_.overlaps(range); }
  std::vector<Range> written_in(Range range) const;
  void zero(Range range);

 private:
  Range arena_;
  std::map<std::uintptr_t, Block> blocks_;
  RangeSet free_;
  RangeSet written_;
};

// Host memory that is page-locked: the framework tells it from ordinary memory.
class PinnedMemory {
 public:
  void* allocate(std::int64_t bytes);
  bool free(void* address);
  bool add(void* address, std::int64_t bytes);  // false: a part of it is registered already
  bool remove(void* address);                   // false: not registered
  std::optional<Range> find(const void* address) const;

 private:
  struct Entry {
    std::uintptr_t end = 0;
    bool owned = false;
  };
  std::map<std::uintptr_t, Entry> entries_;
};

}  // namespace prism::vgpu
