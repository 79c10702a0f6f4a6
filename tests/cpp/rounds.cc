#include "comm/rounds.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <set>
#include <vector>

using namespace prism;

namespace {

// 32 bits at a time: std::mt19937's result type is wider on some machines.
struct Random {
  std::mt19937 engine;
  explicit Random(std::uint32_t seed) : engine(seed) {}
  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine()); }
};

// Every peer is met once, and whom a rank sends to receives from it in that round.
bool meets_everyone(const NodeLayout& layout, const P2pRounds& schedule, std::uint32_t position,
                    std::vector<std::uint8_t>& seen) {
  seen.assign(layout.ranks(), 0);
  for (std::uint32_t round = 0; round < schedule.rounds(); ++round) {
    const std::uint32_t to = schedule.send_to(position, round);
    if (to >= layout.ranks() || seen[to]++ != 0) return false;
    if (schedule.receive_from(to, round) != position) return false;
    if (schedule.send_to(schedule.receive_from(position, round), round) != position) return false;
  }
  return schedule.rounds() == layout.ranks();
}

}  // namespace

TEST_CASE("three nodes of four: groups of four, distances 0, 1, then the one left") {
  const std::vector<std::uint32_t> sizes(3, 4);
  const NodeLayout layout(sizes);
  const P2pRounds schedule(layout);
  CHECK(schedule.group_size() == 4);
  CHECK(schedule.send_to(0, 0) == 0);  // itself first
  CHECK(schedule.send_to(0, 3) == 3);  // then its own group
  CHECK(schedule.send_to(0, 4) == 4);  // then the next group, same place
  CHECK(schedule.send_to(0, 8) == 8);  // distances 0, 1, (3 is beyond), 2
  CHECK(schedule.receive_from(0, 5) == 11);
}

TEST_CASE("N rounds meet every peer once, all sizes to 4,096") {
  std::vector<std::uint8_t> seen;
  bool good = true;
  for (std::uint32_t ranks = 1; ranks <= 4096; ++ranks) {
    const std::uint32_t per_node = std::vector<std::uint32_t>{1, 2, 4, 6, 8, 12}[ranks % 6];
    std::vector<std::uint32_t> sizes(ranks / per_node, per_node);
    if (ranks % per_node != 0) sizes.push_back(ranks % per_node);
    const NodeLayout layout(sizes);
    const P2pRounds schedule(layout);
    for (const std::uint32_t position : {0U, (ranks * 7) / 11}) {
      if (!meets_everyone(layout, schedule, position, seen)) {
        good = false;
        MESSAGE("ranks " << ranks << " position " << position);
      }
    }
  }
  CHECK(good);
}

TEST_CASE("sender and receiver agree for every rank and round, uneven nodes") {
  Random random(5);
  std::vector<std::uint8_t> seen;
  for (int round = 0; round < 150; ++round) {
    std::vector<std::uint32_t> sizes(1 + random() % 12);
    for (auto& size : sizes) size = 1 + random() % 16;
    const NodeLayout layout(sizes);
    const P2pRounds schedule(layout);
    for (std::uint32_t position = 0; position < layout.ranks(); ++position) {
      REQUIRE(meets_everyone(layout, schedule, position, seen));
    }
  }
}

TEST_CASE("on one node consecutive rounds start on distant channels") {
  const std::vector<std::uint32_t> sizes(1, 8);
  const NodeLayout layout(sizes);
  const P2pRounds schedule(layout);
  CHECK(schedule.base_channel(0, 32) == 0);
  CHECK(schedule.base_channel(1, 32) == 16);
  CHECK(schedule.base_channel(2, 32) == 8);
  CHECK(schedule.base_channel(3, 32) == 24);
  std::set<std::uint32_t> used;
  for (std::uint32_t round = 0; round < 8; ++round) used.insert(schedule.base_channel(round, 32));
  CHECK(used.size() == 8);
}
