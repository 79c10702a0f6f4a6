#include "spare/life.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "spare/endurance.h"
#include "spare/failure_clock.h"

using namespace prism;
using namespace prism::spare;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

LifeOptions small(Policy policy) {
  LifeOptions options;
  options.policy = policy;
  options.groups = 21;
  options.redundancy = policy == Policy::kCheckpointOnly ? 1 : 4;
  options.steps = 300;
  options.group_mean_ns = 21.0 * 2000e9;
  options.restart_ns = 300 * kSecond;
  options.checkpoint_steps = 10;
  options.seeds = 4;
  return options;
}

}  // namespace

TEST_CASE("one traced failure of SPARe: every event to the nanosecond") {
  LifeOptions options;
  options.groups = 3;
  options.redundancy = 2;
  options.steps = 3;
  options.jitter = 0.0;
  options.layer_ns = 10 * kSecond;
  options.allreduce_ns = 2 * kSecond;
  options.checkpoint_steps = 0;
  options.lifetime = LifetimeKind::kTrace;
  options.trace = {{1, 15 * kSecond}};
  options.seeds = 1;
  options.record_events = true;
  const Placement placement = Placement::golomb(3, 2);
  const LifeTrial trial = simulate_lives(options, &placement).front();
  // Step 0: 12 s. Step 1 computes to 22 s, half an all-reduce to 23 s, reorders to 23.1 s, patches
  // a shard to 33.1 s, meets to 35.1 s. Step 2 computes two shards.
  const std::vector<LifeEvent> expected = {{12 * kSecond, EventKind::kStep, 0},
                                           {23 * kSecond, EventKind::kFailure, 1},
                                           {35'100'000'000, EventKind::kStep, 1},
                                           {57'100'000'000, EventKind::kStep, 2}};
  CHECK(trial.events == expected);
  CHECK(trial.split[TimePart::kCompute] == 30 * kSecond);
  CHECK(trial.split[TimePart::kRedundant] == 10 * kSecond);
  CHECK(trial.split[TimePart::kPatch] == 10 * kSecond);
  CHECK(trial.split[TimePart::kFailedAllreduce] == kSecond);
  CHECK(trial.split[TimePart::kRecovery] == 100'000'000);
  CHECK(trial.reorders == 1);
  CHECK(trial.compute_sum == 1.0 + 2.0 + 2.0);
}

TEST_CASE("lives do not depend on threads, and their time adds up") {
  const Placement placement = Placement::golomb(21, 4);
  for (const Policy policy : {Policy::kSpare, Policy::kReplication, Policy::kCheckpointOnly}) {
    for (const bool published : {true, false}) {
      LifeOptions options = small(policy);
      options.quirks = published ? LifeQuirks::published() : LifeQuirks::corrected();
      options.micro_batches = policy == Policy::kSpare ? 3 : 1;
      options.domain_groups = 3;
      options.domain_share = 0.2;
      options.repair_ns = 5000 * kSecond;
      options.spares = 1;
      options.rejoin_ns = 5 * kSecond;
      options.record_events = true;
      const std::vector<LifeTrial> one = simulate_lives(options, &placement);
      options.threads = 3;
      const std::vector<LifeTrial> three = simulate_lives(options, &placement);
      REQUIRE(one.size() == three.size());
      for (std::size_t i = 0; i < one.size(); ++i) {
        CHECK(one[i].events == three[i].events);
        CHECK(one[i].total_ns == three[i].total_ns);
        CHECK(one[i].split.total_ns() == one[i].total_ns);
        CHECK(one[i].failures > 0);
      }
    }
  }
}

TEST_CASE("jitter drawn for every group: the same life in shape") {
  const Placement placement = Placement::golomb(21, 4);
  LifeOptions options = small(Policy::kSpare);
  options.jitter_draw = JitterDraw::kEveryGroup;
  for (const LifeTrial& trial : simulate_lives(options, &placement)) {
    CHECK(trial.finished);
    CHECK(trial.split[TimePart::kJitter] > 0);
    CHECK(trial.split.total_ns() == trial.total_ns);
  }
}

TEST_CASE("a life without progress is given up") {
  LifeOptions options = small(Policy::kCheckpointOnly);
  options.group_mean_ns = 21.0 * 10e9;
  for (const LifeTrial& trial : simulate_lives(options, nullptr)) {
    CHECK(!trial.finished);
    CHECK(trial.total_ns >= 100 * trial.ideal_ns);
  }
  options.group_mean_ns = 1.0;
  CHECK(!simulate_lives(options, nullptr).front().finished);
}

TEST_CASE("endurance: hosts counted and solver agree, for any number of threads") {
  const Placement placement = Placement::golomb(31, 4);
  const std::vector<Endurance> counted = endurance(placement, 0, 60, 9, 1);
  const std::vector<Endurance> solved = endurance(placement, 2, 60, 9, 3);
  for (std::size_t i = 0; i < counted.size(); ++i) {
    CHECK(counted[i].endured == solved[i].endured);
    CHECK(solved[i].mean_depth >= 1.0);
  }
}

TEST_CASE("due failures come in the order of groups, the earliest first in time") {
  LifeOptions options;
  options.groups = 37;
  FailureClock clock(options, 5);
  std::vector<std::int32_t> groups;
  std::int64_t bound = 0;
  for (std::int32_t group = 0; group < 37; ++group) bound = std::max(bound, clock.next(group));
  clock.due(bound, groups);
  CHECK(groups.size() == 37);
  clock.due(bound - 1, groups);
  CHECK(groups.size() == 36);
  std::int64_t last = -1;
  for (int failures = 0; failures < 200; ++failures) {
    const std::int32_t group = clock.earliest(INT64_MAX - 1);
    CHECK(clock.next(group) >= last);
    last = clock.next(group);
    clock.strike(group);
    clock.due(last, groups);
    CHECK(groups.empty());
    clock.revive(group, last, failures % 2 == 0);
  }
}

TEST_CASE("values that cannot be are refused") {
  const Placement placement = Placement::golomb(21, 4);
  const auto refused = [&](auto change) {
    LifeOptions options = small(Policy::kSpare);
    change(options);
    CHECK_THROWS_AS(simulate_lives(options, &placement), SpareError);
  };
  refused([](LifeOptions& o) { o.groups = 0; });
  refused([](LifeOptions& o) { o.groups = 22; });
  refused([](LifeOptions& o) { o.redundancy = 22; });
  refused([](LifeOptions& o) { o.layer_ns = 0; });
  refused([](LifeOptions& o) { o.restart_ns = -1; });
  refused([](LifeOptions& o) { o.group_mean_ns = 0.0; });
  refused([](LifeOptions& o) { o.shape = 0.0; });
  refused([](LifeOptions& o) { o.jitter = 2.0; });
  refused([](LifeOptions& o) { o.steps = std::int64_t{1} << 40; });
  refused([](LifeOptions& o) { o.lifetime = LifetimeKind::kTrace; });
  LifeOptions options = small(Policy::kSpare);
  CHECK_THROWS_AS(simulate_lives(options, nullptr), SpareError);
  CHECK_THROWS_AS(endurance(placement, 0, 0, 1, 1), SpareError);
}
