// The calls of a rank's program in the order in which its host came to them, each with what belongs
// to it: the device work that it launched, and what CUPTI tells of what it waits for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "device/cupti/join.h"
#include "device/cupti/rows.h"

namespace prism::device::cupti {

class HostOrder {
 public:
  enum class What : std::uint8_t { call, note, orphan };
  struct Item {
    std::uint64_t at = 0;  // end of a call; where it comes in host order
    std::uint32_t index = 0;
    What what = What::call;
  };

  HostOrder(const Rows& rows, const Notes& notes, const JoinOptions& options, JoinCounts& counts);

  std::span<const Item> items() const noexcept { return items_; }
  // Indices of device work, by begin.
  std::span<const std::uint32_t> work_of(const Item& item) const noexcept;
  // Of a call; nullptr: not told.
  const SyncRow* sync_of(std::uint32_t call) const noexcept;
  const EventRow* event_of(std::uint32_t call) const noexcept;
  const MemoryRow* memory_of(std::uint32_t call) const noexcept;

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  struct Owner {
    std::uint32_t index = none;  // none: work that is not recorded
    What what = What::call;
  };
  struct Share {
    std::uint32_t owner = 0;
    std::uint32_t work = 0;
  };
  struct Spans;

  void place_calls(const Spans& spans);
  void place(std::uint32_t call, Owner owner);
  void share_work();
  void lay_out();

  const Rows& rows_;
  const Notes& notes_;
  const JoinOptions& options_;
  JoinCounts& counts_;
  std::unordered_map<std::uint32_t, Owner> owners_;  // by correlation
  std::vector<std::uint32_t> kept_;                  // calls that are items
  std::vector<Share> of_calls_, of_notes_;           // sorted by owner and begin
  std::vector<std::uint32_t> orphans_;
  std::vector<std::uint32_t> works_;  // those of `of_calls_`, `of_notes_` and orphans, in a row
  std::unordered_map<std::uint32_t, std::uint32_t> syncs_, events_, memory_;  // by call
  std::vector<Item> items_;
};

}  // namespace prism::device::cupti
