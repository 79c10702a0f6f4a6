#include "graph/content_table.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <vector>

using namespace prism;

TEST_CASE("values with one hash stay two") {
  ContentTable table;
  const std::vector<int> values{10, 20, 30};
  for (std::uint32_t id = 0; id < 3; ++id) {
    const auto is_value = [&](std::uint32_t known) { return values[known] == values[id]; };
    CHECK(table.find(7, is_value) == ContentTable::none);
    table.insert(7, id);
    CHECK(table.find(7, is_value) == id);
  }
  CHECK(table.find(7, [](std::uint32_t) { return false; }) == ContentTable::none);
  CHECK(table.find(8, [](std::uint32_t) { return true; }) == ContentTable::none);
}

TEST_CASE("ids are found again however much the table grew") {
  // Few distinct hashes, some of them next to each other and at the end of the table.
  ContentTable table(4);
  std::map<std::uint64_t, std::uint32_t> known;
  std::uint64_t state = 3;
  std::uint32_t next = 0;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const std::uint64_t value = (state >> 33) % 6000;
    const std::uint64_t hash = value % 3 == 0 ? value / 30 : value * 0x9e3779b97f4a7c15U;
    const std::uint32_t found = table.find(hash, [&](std::uint32_t id) {
      const auto at = known.find(value);
      return at != known.end() && at->second == id;
    });
    const auto at = known.find(value);
    REQUIRE(found == (at == known.end() ? ContentTable::none : at->second));
    if (found == ContentTable::none) {
      table.insert(hash, next);
      known[value] = next++;
    }
  }
  CHECK(next > 5000);
}
