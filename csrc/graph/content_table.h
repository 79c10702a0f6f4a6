// Finds the id of a value by its content. Holds hashes and ids, never the values: the caller
// compares content, so that two values with one hash stay two values. Open addressing, 8 bytes an
// entry; grows without touching the values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace prism {

class ContentTable {
 public:
  static constexpr std::uint32_t none = 0xffffffffU;

  explicit ContentTable(std::size_t capacity = 64) : entries_(capacity) {}  // a power of two

  // The id whose content `equal(id)` confirms, else `none`.
  template <class Equal>
  std::uint32_t find(std::uint64_t hash, Equal equal) const {
    const auto tag = static_cast<std::uint32_t>(hash);
    const std::size_t mask = entries_.size() - 1;
    for (std::size_t i = tag & mask;; i = (i + 1) & mask) {
      const Entry& entry = entries_[i];
      if (entry.id == none) return none;
      if (entry.tag == tag && equal(entry.id)) return entry.id;
    }
  }

  // After find() gave none.
  void insert(std::uint64_t hash, std::uint32_t id) {
    if ((size_ + 1) * 4 > entries_.size() * 3) grow();
    place(entries_, {static_cast<std::uint32_t>(hash), id});
    ++size_;
  }

  void prefetch(std::uint64_t hash) const noexcept {
    __builtin_prefetch(&entries_[static_cast<std::uint32_t>(hash) & (entries_.size() - 1)]);
  }

 private:
  struct Entry {
    std::uint32_t tag = 0;
    std::uint32_t id = none;
  };

  static void place(std::vector<Entry>& entries, Entry entry) noexcept {
    const std::size_t mask = entries.size() - 1;
    std::size_t i = entry.tag & mask;
    while (entries[i].id != none) i = (i + 1) & mask;
    entries[i] = entry;
  }

  void grow() {
    std::vector<Entry> grown(entries_.size() * 2);
    for (const Entry& entry : entries_) {
      if (entry.id != none) place(grown, entry);
    }
    entries_.swap(grown);
  }

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
};

}  // namespace prism
