// Gives answers at their time of the wall clock: one thread, which sleeps until shortly before the
// next one and spins for the rest.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace prism {

// The clock that answers are paced by. Tests bring their own.
class PaceClock {
 public:
  virtual ~PaceClock() = default;
  virtual std::int64_t now() noexcept = 0;  // ns
  // Returns at `until`, or once `word` is no longer `seen`, or earlier.
  virtual void sleep(std::atomic<std::uint32_t>& word, std::uint32_t seen,
                     std::int64_t until) noexcept = 0;
  virtual void wake(std::atomic<std::uint32_t>& word) noexcept = 0;
  // CLOCK_MONOTONIC, the same in all processes of a machine.
  static PaceClock& steady() noexcept;
};

// How late things were, to one part in 32. Times before 0 count as 0.
class Lateness {
 public:
  void add(std::int64_t ns) noexcept;
  std::uint64_t count() const noexcept { return count_; }
  std::int64_t max() const noexcept { return max_; }
  // The time that a share of 0 to 1 of them does not pass; 0 where there are none.
  std::int64_t quantile(double share) const noexcept;

 private:
  static constexpr unsigned bits = 5;
  std::array<std::uint64_t, (64 - bits + 1) << bits> buckets_{};
  std::uint64_t count_ = 0;
  std::int64_t max_ = 0;
};

// The least that pacing can be, to compare with: `count` times, `interval` ns apart, without
// answers and without anyone to hand them over.
Lateness pace_alone(PaceClock& clock, std::int64_t interval, std::uint64_t count);

class Pacer {
 public:
  static constexpr std::int64_t spin_ns = 60'000;  // what a sleep may oversleep

  // give(i, value): rank i is told; on the pacing thread. At most one answer a rank is due.
  using Give = std::function<void(std::size_t, std::int64_t)>;
  Pacer(std::size_t ranks, PaceClock& clock, Give give);
  ~Pacer();  // what is not given by then is not given
  Pacer(const Pacer&) = delete;
  Pacer& operator=(const Pacer&) = delete;

  void add(std::size_t i, std::int64_t value, std::int64_t due);
  bool is_due(std::size_t i) const noexcept { return due_[i].load(std::memory_order_acquire) != 0; }
  // How late answers were given that were known before their time, so far.
  Lateness errors() const;

 private:
  struct Entry {
    std::int64_t due = 0, value = 0;
    std::size_t rank = 0;
    // Of equal times the lower rank first.
    friend bool operator<(const Entry& a, const Entry& b) noexcept {
      return a.due != b.due ? a.due > b.due : a.rank > b.rank;
    }
  };
  void run();

  PaceClock& clock_;
  Give give_;
  mutable std::mutex mutex_;
  std::vector<Entry> heap_;  // the next one on top
  bool stop_ = false;
  std::vector<std::atomic<std::uint32_t>> due_;  // by rank
  std::atomic<std::uint32_t> changes_{0};
  Lateness errors_;
  std::thread thread_;
};

}  // namespace prism
