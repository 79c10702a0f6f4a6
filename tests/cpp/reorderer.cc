#include "spare/reorderer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <thread>
#include <vector>

#include "base/error.h"
#include "spare/random.h"

using namespace prism;
using namespace prism::spare;

namespace {

std::vector<std::int32_t> shuffled(std::int32_t count, std::uint64_t seed) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  Draw draw(seed);
  for (std::int32_t i = count - 1; i > 0; --i) {
    std::swap(order[static_cast<std::size_t>(i)],
              order[static_cast<std::size_t>(draw.below(i + 1))]);
  }
  return order;
}

// Every part has one live owner that hosts it, nobody works more than the depth, every holder
// lives.
bool sound(const Reorderer& solver) {
  const Placement& placement = solver.placement();
  std::vector<std::int32_t> load(static_cast<std::size_t>(placement.groups()), 0);
  bool good = true;
  for (std::int32_t type = 0; type < placement.groups(); ++type) {
    for (std::int32_t part = 0; part < solver.micro_batches(); ++part) {
      const std::int32_t owner = solver.owner({type, part});
      const std::int32_t holder = solver.holder({type, part});
      const auto stack = placement.stack(owner);
      good &= solver.alive(owner) && solver.alive(holder);
      good &= std::find(stack.begin(), stack.end(), type) != stack.end();
      good &= ++load[static_cast<std::size_t>(owner)] <= solver.depth();
      const std::vector<Part> work = solver.work(owner);
      good &= std::find(work.begin(), work.end(), Part{type, part}) != work.end();
      good &= work.size() <= static_cast<std::size_t>(solver.depth());
    }
  }
  return good;
}

// A life of failures, re-joins and commits; the digest at its end, 0 where something is unsound.
std::uint64_t live(std::int32_t groups, std::int32_t redundancy, std::int32_t parts,
                   std::uint64_t seed) {
  Reorderer solver(Placement::golomb(groups, redundancy), parts);
  Draw draw(seed);
  std::vector<std::int32_t> down;
  bool good = sound(solver);
  for (const std::int32_t group : shuffled(groups, seed)) {
    down.push_back(group);
    if (solver.fail({&group, 1}).outcome == Outcome::kWipeOut) break;
    good &= sound(solver);
    if (draw.below(2) == 0) solver.commit();
    if (draw.below(3) == 0) {
      const std::int32_t back =
          down[static_cast<std::size_t>(draw.below(static_cast<int>(down.size())))];
      if (solver.alive(back)) continue;
      solver.rejoin({&back, 1});
      good &= sound(solver);
    }
  }
  return good ? solver.digest() : 0;
}

}  // namespace

TEST_CASE("seven groups, redundancy 3: the first failures, step by step") {
  // Type d is with groups d, d - 1 and d - 3.
  Reorderer solver(Placement::golomb(7, 3), 1);
  const std::vector<std::int32_t> zero = {0};
  const Plan& first = solver.fail(zero);
  CHECK(first.outcome == Outcome::kDeepened);  // six groups cannot compute seven types at depth 1
  CHECK(first.depth == 2);
  CHECK(first.new_work == 0);  // group 6 has type 0 second in its stack
  CHECK(first.patches == std::vector<Patch>{{6, {0, 0}}});
  CHECK(first.moves == std::vector<Move>{{{0, 0}, 0, 6}});
  CHECK(solver.work(6) == std::vector<Part>{{6, 0}, {0, 0}});
  solver.commit();
  const std::vector<std::int32_t> five = {5};
  const Plan& second = solver.fail(five);
  CHECK(second.outcome == Outcome::kKept);  // group 4 computes type 5 as its second
  CHECK(second.patches.empty());
  CHECK(second.moves == std::vector<Move>{{{5, 0}, 5, 4}});
  CHECK(solver.holder({5, 0}) == 4);
  const std::vector<std::int32_t> both = {0, 5};
  const Plan& back = solver.rejoin(both);
  CHECK(back.outcome == Outcome::kShallower);
  CHECK(back.depth == 1);
  CHECK(solver.owner({0, 0}) == 0);
  CHECK(solver.holder({0, 0}) == 6);
  CHECK(solver.holder({5, 0}) == 4);
}

TEST_CASE("micro-batches spread over the hosts of a lost shard") {
  Reorderer solver(Placement::golomb(7, 3), 4);
  const std::vector<std::int32_t> zero = {0};
  const Plan& plan = solver.fail(zero);
  CHECK(plan.depth == 5);  // 28 parts on 6 groups
  CHECK(plan.patches.size() == 4);
  CHECK(plan.patch_depth < 4);
  CHECK(sound(solver));
}

TEST_CASE("lives are sound, and the same on every thread") {
  for (const std::int32_t parts : {1, 3, 8}) {
    std::vector<std::uint64_t> digests(2, 0);
    std::vector<std::thread> threads;
    for (std::uint64_t& digest : digests) {
      threads.emplace_back([&digest, parts] { digest = live(90, 6, parts, 5); });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(digests[0] != 0);
    CHECK(digests[0] == digests[1]);
  }
}

TEST_CASE("a restart is a new life") {
  Reorderer solver(Placement::golomb(60, 5), 2);
  const std::uint64_t fresh = solver.digest();
  const std::vector<std::int32_t> all = shuffled(60, 1);
  CHECK(solver.fail(all).lost_types.size() == 60);
  CHECK(solver.wiped_out());
  CHECK_THROWS_AS(solver.owner({0, 0}), SpareError);
  CHECK_THROWS_AS(solver.commit(), SpareError);
  solver.restart();
  CHECK(solver.digest() == fresh);
  CHECK(solver.depth() == 2);
  CHECK(sound(solver));
}
