#include "engine/interval_set.h"

#include <doctest/doctest.h>

#include <bitset>
#include <random>

using prism::engine::IntervalSet;

TEST_CASE("added lengths are those of the union, in any order") {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    IntervalSet set;
    std::bitset<300> covered;
    // Mostly rising, as clocks are, with steps back.
    int at = 0;
    for (int k = 0; k < 30; ++k) {
      at = std::max(0, at + static_cast<int>(random() % 25) - 8);
      const int end = std::min(300, at + static_cast<int>(random() % 12));
      int fresh = 0;
      for (int t = at; t < end; ++t) {
        fresh += covered[static_cast<std::size_t>(t)] ? 0 : 1;
        covered.set(static_cast<std::size_t>(t));
      }
      CHECK(set.add(at, end, false) == fresh);
    }
  }
}

TEST_CASE("what lies before the frontier may be forgotten") {
  IntervalSet set;
  for (int k = 0; k < 10; ++k) CHECK(set.add(10 * k, 10 * k + 5, false) == 5);
  CHECK(set.size() == 9);
  set.forget(45);
  CHECK(set.size() == 4);
  CHECK(set.add(43, 52, false) == 7);  // 50 to 52 was there
  CHECK(set.end() == 95);
}

TEST_CASE("in order nothing is kept but the last") {
  IntervalSet set;
  for (int k = 0; k < 10; ++k) CHECK(set.add(10 * k, 10 * k + 5, true) == 5);
  CHECK(set.size() == 0);
  CHECK(set.add(92, 99, true) == 4);
}
