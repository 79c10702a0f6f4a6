#include "vgpu/device/memory.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "vgpu/device/ranges.h"

using namespace prism::vgpu;

namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20;

std::vector<Range> parts(const RangeSet& set, Range range) {
  std::vector<Range> out;
  set.for_each(range, [&](Range part) { out.push_back(part); });
  return out;
}

// Pages of the range that the system holds.
std::size_t resident(Range range) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages(range.size() / page);
  REQUIRE(mincore(reinterpret_cast<void*>(range.begin), range.size(), pages.data()) == 0);
  std::size_t held = 0;
  for (const unsigned char state : pages) held += state & 1;
  return held;
}

}  // namespace

TEST_CASE("a range set holds what a bitmap holds") {
  constexpr std::uintptr_t size = 200;
  std::mt19937 random(7);
  const auto pick = [&](std::uintptr_t below) { return random() % below; };
  for (int round = 0; round < 50; ++round) {
    RangeSet set;
    std::vector<bool> bitmap(size + 1, false);
    for (int step = 0; step < 60; ++step) {
      const std::uintptr_t begin = pick(size), end = begin + pick(size - begin + 1);
      const bool add = pick(3) != 0;
      add ? set.add({begin, end}) : set.remove({begin, end});
      for (std::uintptr_t i = begin; i < end; ++i) bitmap[i] = add;

      const std::uintptr_t from = pick(size), to = from + pick(size - from + 1);
      bool any = false;
      for (std::uintptr_t i = from; i < to; ++i) any = any || bitmap[i];
      CHECK(set.overlaps({from, to}) == any);
    }
    std::vector<Range> runs;
    for (std::uintptr_t i = 0; i < size; ++i) {
      if (!bitmap[i]) continue;
      if (runs.empty() || runs.back().end != i) runs.push_back({i, i});
      runs.back().end = i + 1;
    }
    const std::vector<Range> held = parts(set, {0, size});
    REQUIRE(held.size() == runs.size());
    for (std::size_t i = 0; i < runs.size(); ++i) {
      CHECK(held[i].begin == runs[i].begin);
      CHECK(held[i].end == runs[i].end);
    }
  }
}

TEST_CASE("blocks do not overlap, are aligned, and freed addresses are used again") {
  DeviceMemory memory;
  std::mt19937 random(11);
  std::map<std::uintptr_t, std::uintptr_t> live;  // begin -> end
  std::uintptr_t highest = 0, lowest = UINTPTR_MAX;
  for (int step = 0; step < 4000; ++step) {
    if (live.size() < 20 || random() % 2 == 0) {
      const auto bytes = static_cast<std::int64_t>(random() % (64 * mib)) + 1;
      void* address = memory.allocate(bytes, 0);
      REQUIRE(address != nullptr);
      const auto begin = reinterpret_cast<std::uintptr_t>(address);
      CHECK(begin % DeviceMemory::granularity == 0);
      const auto next = live.lower_bound(begin);
      if (next != live.end()) CHECK(begin + static_cast<std::uintptr_t>(bytes) <= next->first);
      if (next != live.begin()) CHECK(std::prev(next)->second <= begin);
      live[begin] = begin + static_cast<std::uintptr_t>(bytes);
      highest = std::max(highest, live[begin]);
      lowest = std::min(lowest, begin);
    } else {
      const auto it = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      const auto freed = memory.free(reinterpret_cast<void*>(it->first));
      REQUIRE(freed);
      CHECK(freed->asked_bytes == static_cast<std::int64_t>(it->second - it->first));
      live.erase(it);
    }
  }
  // About as many frees as allocations: without reuse this walk would take over 60 GiB.
  CHECK(highest - lowest < std::uintptr_t{16} << 30);
}

TEST_CASE("an address that is no block's beginning is not freed") {
  DeviceMemory memory;
  void* block = memory.allocate(mib, 3);
  int host = 0;
  CHECK_FALSE(memory.free(&host));
  CHECK_FALSE(memory.free(static_cast<char*>(block) + 512));
  CHECK(memory.find(static_cast<char*>(block) + mib)->device == 3);
  CHECK_FALSE(memory.find(static_cast<char*>(block) + 2 * mib));
  CHECK(memory.free(block));
  CHECK_FALSE(memory.free(block));
  CHECK_FALSE(memory.find(block));
  CHECK(memory.allocate(0, 0) == nullptr);
  CHECK(memory.allocate(INT64_MAX, 0) == nullptr);
}

TEST_CASE("zero clears what was written, and leaves pages that nothing touched alone") {
  DeviceMemory memory;
  constexpr std::int64_t bytes = 256 * mib;
  auto* block = static_cast<char*>(memory.allocate(bytes, 0));
  REQUIRE(block != nullptr);
  const auto write = [&](std::int64_t at, std::int64_t count) {
    std::memset(block + at, 0x5a, static_cast<std::size_t>(count));
    memory.written(range_of(block + at, count));
  };
  write(1000, 24);               // less than a page
  write(16 * mib, 4 * mib);      // many
  write(100 * mib - 700, 1400);  // across a page's end
  const std::size_t before = resident(range_of(block, bytes));

  memory.zero(range_of(block, 50 * mib));
  CHECK(block[1000] == 0);
  CHECK(block[16 * mib] == 0);
  CHECK(block[20 * mib - 1] == 0);
  CHECK(block[100 * mib] == 0x5a);  // outside the range
  CHECK_FALSE(memory.is_written(range_of(block, 50 * mib)));
  CHECK(memory.is_written(range_of(block + 100 * mib, 1)));

  const std::size_t after = resident(range_of(block, bytes));
  CHECK(after < before);
  CHECK(after < 16);  // of 65,536 pages
  memory.zero(range_of(block, bytes));
  CHECK(resident(range_of(block, bytes)) == after);
  CHECK(block[100 * mib] == 0);
}

TEST_CASE("a block that is handed out again reads as zero") {
  DeviceMemory memory;
  auto* block = static_cast<char*>(memory.allocate(4 * mib, 0));
  std::memset(block, 1, 4 * mib);
  memory.written(range_of(block, 4 * mib));
  memory.free(block);
  auto* again = static_cast<char*>(memory.allocate(4 * mib, 0));
  REQUIRE(again == block);
  for (std::int64_t i = 0; i < 4 * mib; i += 511) REQUIRE(again[i] == 0);
}

TEST_CASE("pinned memory is told from ordinary memory") {
  PinnedMemory pinned;
  auto* block = static_cast<char*>(pinned.allocate(10000));
  REQUIRE(block != nullptr);
  CHECK(pinned.find(block + 9999));
  CHECK_FALSE(pinned.find(block + 12288));
  CHECK_FALSE(pinned.remove(block));  // owned: freed, not unregistered
  std::vector<char> own(5000);
  CHECK_FALSE(pinned.find(own.data()));
  CHECK(pinned.add(own.data(), 5000));
  CHECK_FALSE(pinned.add(own.data(), 5000));
  CHECK(pinned.find(own.data() + 100));
  CHECK_FALSE(pinned.free(own.data()));
  CHECK(pinned.remove(own.data()));
  CHECK_FALSE(pinned.remove(own.data()));
  CHECK(pinned.free(block));
  CHECK_FALSE(pinned.free(block));
}

TEST_CASE("addresses alone and memory are given back each by its own call") {
  DeviceMemory memory;
  void* addresses = memory.allocate(4 * mib, 0, DeviceMemory::Kind::addresses);
  void* block = memory.allocate(4 * mib, 0);
  CHECK_FALSE(memory.free(addresses));
  CHECK_FALSE(memory.free(block, DeviceMemory::Kind::addresses));
  CHECK(memory.free(addresses, DeviceMemory::Kind::addresses));
  CHECK(memory.free(block));
}

TEST_CASE("a live range lies in one block") {
  DeviceMemory memory;
  auto* first = static_cast<char*>(memory.allocate(2 * mib, 0));
  auto* second = static_cast<char*>(memory.allocate(2 * mib, 0));
  REQUIRE(second == first + 2 * mib);
  CHECK(memory.is_live(range_of(first, 2 * mib)));
  CHECK_FALSE(memory.is_live(range_of(first, 2 * mib + 1)));
  CHECK_FALSE(memory.is_live(range_of(first, INT64_MAX)));
  memory.free(second);
  CHECK_FALSE(memory.is_live(range_of(second, 1)));
}

TEST_CASE("what overlaps registered memory is not registered again; no size overflows") {
  PinnedMemory pinned;
  std::vector<char> own(3000);
  CHECK(pinned.add(own.data() + 1000, 1000));
  CHECK_FALSE(pinned.add(own.data(), 3000));
  CHECK_FALSE(pinned.add(own.data() + 1999, 1));
  CHECK(pinned.add(own.data(), 1000));
  CHECK(pinned.add(own.data() + 2000, 1000));
  CHECK(pinned.allocate(INT64_MAX) == nullptr);
  CHECK(pinned.allocate(-1) == nullptr);
  for (int at : {0, 1000, 2000}) CHECK(pinned.remove(own.data() + at));
}
