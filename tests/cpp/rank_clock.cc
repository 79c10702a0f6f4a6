#include "engine/rank_clock.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <random>
#include <vector>

using namespace prism;

TEST_CASE("a kernel starts when host and stream are both there") {
  RankClock clock;
  clock.ensure(1);
  clock.spend(10);
  CHECK(clock.run(0, 100) == 10);
  CHECK(clock.stream(0) == 110);
  clock.spend(5);
  CHECK(clock.run(0, 7) == 110);  // the host ran ahead
  CHECK(clock.ready(1) == 15);
  clock.wait(1, clock.record(0));
  CHECK(clock.run(1, 1) == 117);
  CHECK_FALSE(clock.is_done(clock.stream(1)));
  clock.sync_stream(0);
  CHECK(clock.host() == 117);
  CHECK(clock.latest() == 118);
  clock.sync_device();
  CHECK(clock.host() == 118);
  CHECK(clock.is_done(118));
}

TEST_CASE("events and finishes never move a clock back") {
  RankClock clock;
  clock.run(0, 50);
  clock.wait(0, 20);
  clock.finish(0, 30);
  CHECK(clock.stream(0) == 50);
  clock.finish(0, 80);
  clock.sync_event(60);
  CHECK(clock.stream(0) == 80);
  CHECK(clock.host() == 60);
  CHECK(clock.stream(9) == 0);  // not used yet
}

TEST_CASE("a folded segment ends as its kernels do, one by one") {
  std::mt19937_64 random(7);
  const auto pick = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1));
  };
  for (int round = 0; round < 2000; ++round) {
    RankClock one_by_one;
    one_by_one.spend(pick(50));
    one_by_one.finish(0, pick(100));
    RankClock folded = one_by_one;
    Segment segment;
    std::int64_t first = -1, covered_to = 0;
    bool gaps = false;
    const std::int64_t kernels = 1 + pick(5);
    for (std::int64_t k = 0; k < kernels; ++k) {
      const std::int64_t host = pick(20), duration = pick(20);
      segment.append(host, duration);
      one_by_one.spend(host);
      const std::int64_t start = one_by_one.run(0, duration);
      if (duration == 0) continue;
      if (first < 0) {
        first = start;
      } else if (start > covered_to) {
        gaps = true;
      }
      covered_to = start + duration;
      if (pick(2) > 0) continue;
      const std::int64_t wait = pick(20);
      segment.sync(wait);
      one_by_one.spend(wait);
      one_by_one.sync_stream(0);
    }
    const Span span = folded.run(0, segment);
    CHECK(folded.host() == one_by_one.host());
    CHECK(folded.stream(0) == one_by_one.stream(0));
    if (first >= 0) {
      CHECK(span.begin == first);
      // A last kernel without length may leave a gap before it.
      CHECK((span.end - span.begin > segment.busy_ns) == (gaps || span.end > covered_to));
    }
  }
}
