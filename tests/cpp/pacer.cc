#include "engine/pacer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

using namespace prism;

namespace {

// Time stands still until the pacer sleeps or looks; a sleep comes to its end at once.
class Fake final : public PaceClock {
 public:
  std::int64_t now() noexcept override {
    const std::lock_guard lock(mutex_);
    return now_ += 100;  // spinning takes time
  }
  void sleep(std::atomic<std::uint32_t>& word, std::uint32_t seen,
             std::int64_t until) noexcept override {
    std::unique_lock lock(mutex_);
    ++sleeps_;
    if (until == INT64_MAX) {
      woken_.wait(lock, [&] { return word.load() != seen; });
    } else {
      now_ = std::max(now_, until);
    }
  }
  void wake(std::atomic<std::uint32_t>&) noexcept override {
    const std::lock_guard lock(mutex_);
    woken_.notify_all();
  }
  std::uint64_t sleeps() {
    const std::lock_guard lock(mutex_);
    return sleeps_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  std::int64_t now_ = 0;
  std::uint64_t sleeps_ = 0;
};

class Given {
 public:
  void add(std::size_t i, std::int64_t value) {
    const std::lock_guard lock(mutex_);
    all_.emplace_back(i, value);
    more_.notify_all();
  }
  std::vector<std::pair<std::size_t, std::int64_t>> wait(std::size_t count) {
    std::unique_lock lock(mutex_);
    more_.wait(lock, [&] { return all_.size() >= count; });
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable more_;
  std::vector<std::pair<std::size_t, std::int64_t>> all_;
};

}  // namespace

TEST_CASE("answers are given in the order of their times, whatever the order they come in") {
  using All = std::vector<std::pair<std::size_t, std::int64_t>>;
  // All are added while the pacer cannot take any: the first is given from within its own thread.
  Fake clock;
  Given given;
  Pacer* self = nullptr;
  std::mutex ready;
  ready.lock();
  Pacer pacer(5, clock, [&](std::size_t i, std::int64_t value) {
    if (i == 4) {
      const std::lock_guard lock(ready);
      self->add(0, 10, 40'000'000);
      self->add(1, 11, 20'000'000);
      self->add(2, 12, 30'000'000);
      self->add(3, 13, 20'000'000);
    }
    given.add(i, value);
  });
  self = &pacer;
  pacer.add(4, 14, 10'000'000);
  ready.unlock();
  CHECK(given.wait(5) == All{{4, 14}, {1, 11}, {3, 13}, {2, 12}, {0, 10}});
  const Lateness errors = pacer.errors();
  CHECK(errors.count() == 5);
  CHECK(errors.max() >= 0);
  CHECK(errors.max() < 60'000);  // of this clock: it spins for the last part, in steps of 100
  // One sleep before each time that is far off, and where nothing is due.
  CHECK(clock.sleeps() >= 4);
  CHECK(clock.sleeps() <= 7);
  CHECK(!pacer.is_due(2));
}

TEST_CASE("a pacer that ends gives nothing more") {
  Fake clock;
  int count = 0;
  {
    Pacer pacer(2, clock, [&](std::size_t, std::int64_t) { ++count; });
  }
  CHECK(count == 0);
  // On the machine's own clock, an hour ahead.
  PaceClock& steady = PaceClock::steady();
  {
    Pacer pacer(2, steady, [&](std::size_t, std::int64_t) { ++count; });
    pacer.add(1, 1, steady.now() + 3'600'000'000'000);
    CHECK(pacer.is_due(1));
    CHECK(!pacer.is_due(0));
  }
  CHECK(count == 0);
}

TEST_CASE("lateness is told to one part in 32") {
  Lateness none;
  CHECK(none.quantile(0.99) == 0);
  Lateness all;
  for (std::int64_t ns = 1; ns <= 100'000; ++ns) all.add(ns);
  all.add(-5);
  CHECK(all.count() == 100'001);
  CHECK(all.max() == 100'000);
  for (const double share : {0.01, 0.5, 0.9, 0.99}) {
    const auto exact = static_cast<std::int64_t>(share * 100'001);
    CHECK(all.quantile(share) >= exact);
    CHECK(all.quantile(share) <= exact + exact / 32 + 1);
  }
  CHECK(all.quantile(1.0) == 100'000);
  Lateness large;
  large.add(INT64_MAX);
  CHECK(large.quantile(0.5) == INT64_MAX);
}
