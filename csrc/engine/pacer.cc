#include "engine/pacer.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <csignal>
#include <ctime>
#include <utility>

#include "base/check.h"
#include "engine/futex.h"

namespace prism {
namespace {

class SteadyClock final : public PaceClock {
 public:
  std::int64_t now() noexcept override {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  void sleep(std::atomic<std::uint32_t>& word, std::uint32_t seen,
             std::int64_t until) noexcept override {
    const timespec time{until / 1'000'000'000, until % 1'000'000'000};
    syscall(SYS_futex, &word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, seen,
            until == INT64_MAX ? nullptr : &time, nullptr, FUTEX_BITSET_MATCH_ANY);
  }
  void wake(std::atomic<std::uint32_t>& word) noexcept override {
    syscall(SYS_futex, &word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, nullptr, nullptr, 0);
  }
};

// Else the kernel may round sleeps of this thread up by 50 us.
void precise_sleeps() noexcept { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

// Signals are for the threads that look for them.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

PaceClock& PaceClock::steady() noexcept {
  static SteadyClock clock;
  return clock;
}

void Lateness::add(std::int64_t ns) noexcept {
  ns = std::max<std::int64_t>(ns, 0);
  max_ = std::max(max_, ns);
  ++count_;
  const auto value = static_cast<std::uint64_t>(ns);
  // The leading bit and `bits` below it choose the bucket.
  const unsigned width = static_cast<unsigned>(std::bit_width(value));
  const unsigned shift = width > bits + 1 ? width - bits - 1 : 0;
  ++buckets_[(std::size_t{shift} << bits) + (value >> shift)];
}

std::int64_t Lateness::quantile(double share) const noexcept {
  const auto wanted = static_cast<std::uint64_t>(share * static_cast<double>(count_));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    seen += buckets_[i];
    if (seen <= wanted && seen != count_) continue;
    if (seen == 0) return 0;
    const std::size_t group = i >> bits;  // the largest value of the bucket
    const std::size_t shift = group <= 1 ? 0 : group - 1;
    const std::uint64_t lead = i - (shift << bits);
    return std::min(max_, static_cast<std::int64_t>(((lead + 1) << shift) - 1));
  }
  return max_;
}

Lateness pace_alone(PaceClock& clock, std::int64_t interval, std::uint64_t count) {
  precise_sleeps();
  Lateness errors;
  std::atomic<std::uint32_t> word{0};
  std::int64_t next = clock.now();
  for (std::uint64_t k = 0; k < count; ++k) {
    next += interval;
    std::int64_t now = clock.now();
    for (; next - now > Pacer::spin_ns; now = clock.now()) {
      clock.sleep(word, 0, next - Pacer::spin_ns);
    }
    for (; now < next; now = clock.now()) spin_once();
    errors.add(now - next);
  }
  return errors;
}

Pacer::Pacer(std::size_t ranks, PaceClock& clock, Give give)
    : clock_(clock), give_(std::move(give)), due_(ranks) {
  heap_.reserve(ranks);
  const SignalsHeld held;
  thread_ = std::thread([this] { run(); });
}

Pacer::~Pacer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changes_.fetch_add(1, std::memory_order_release);
  }
  clock_.wake(changes_);
  thread_.join();
}

void Pacer::add(std::size_t i, std::int64_t value, std::int64_t due) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    PRISM_CHECK(due_[i].exchange(1, std::memory_order_acq_rel) == 0);
    heap_.push_back({due, value, i});
    std::push_heap(heap_.begin(), heap_.end());
    first = heap_.front().rank == i;
    if (first) changes_.fetch_add(1, std::memory_order_release);
  }
  if (first) clock_.wake(changes_);
}

Lateness Pacer::errors() const {
  const std::lock_guard lock(mutex_);
  return errors_;
}

void Pacer::run() {
  precise_sleeps();
  for (;;) {
    std::int64_t next = INT64_MAX;
    std::uint32_t seen = 0;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      seen = changes_.load(std::memory_order_acquire);
      if (!heap_.empty()) next = heap_.front().due;
    }
    std::int64_t now = clock_.now();
    if (next == INT64_MAX || next - now > spin_ns) {
      clock_.sleep(changes_, seen, next == INT64_MAX ? next : next - spin_ns);
      continue;
    }
    while (now < next && changes_.load(std::memory_order_acquire) == seen) {
      spin_once();
      now = clock_.now();
    }
    if (now < next) continue;
    Entry entry;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      entry = heap_.front();  // what came meanwhile may be due earlier still
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      errors_.add(now - entry.due);
    }
    due_[entry.rank].store(0, std::memory_order_release);
    give_(entry.rank, entry.value);
  }
}

}  // namespace prism
