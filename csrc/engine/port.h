// The ports between rank processes and the engine: one memfd that the processes inherit, so
// that nothing is left behind however they end. Posting an op is a copy and a store; only a side
// that sleeps is woken by a system call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/outside.h"
#include "engine/pacer.h"
#include "engine/shared_memory.h"

namespace prism {

struct PortHead;    // port.cc: the shared memory's first part
struct PortLayout;  // and a rank's part

// Shared memory for `ranks` ports of `slots` posts each (a power of two). A copy is the same
// memory; the last one gives it back.
class PortMemory {
 public:
  // Error where the system gives no memory.
  // timed: for the wall clock.
  static PortMemory create(std::size_t ranks, std::size_t slots = std::size_t{1} << 14,
                           bool timed = false);
  // What another process created, by the descriptor it passed on. Error: not such memory.
  static PortMemory open(int fd);

  int fd() const noexcept;  // closed with this
  std::size_t ranks() const noexcept;
  // Tells the rank that waits at port `number`. One thread at a time for each.
  void answer(std::size_t number, std::int64_t value) const noexcept;
  bool is_timed() const noexcept;
  // The engine is done: ranks that still post go on without it, and are told 0.
  void close() const;
  bool is_closed() const noexcept;

 private:
  friend class Port;
  friend class PortRanks;
  explicit PortMemory(SharedMemory memory) : memory_(std::move(memory)) {}
  PortHead& head() const noexcept;
  PortLayout& layout(std::size_t rank) const noexcept;

  SharedMemory memory_;
};

// The rank's side. One thread at a time.
class Port {
 public:
  Port(PortMemory memory, std::size_t number);

  void post(const Post& post);
  // Posts what asks, and waits to be told.
  std::int64_t ask(const Post& post);
  // The rank posts nothing more, and is told 0; so is a thread that waits meanwhile. By any thread.
  void abandon() noexcept;

 private:
  bool is_closed() const noexcept;

  PortMemory memory_;
  PortLayout& mine_;
  std::uint64_t posted_, taken_, rung_;
  std::atomic<bool> abandoned_{false};
};

// The engine's side.
class PortRanks : public TimedRanks {
 public:
  // Called some times a second while the engine waits, with the rank that has kept it waiting
  // longest without doing anything but query, and for how long: may throw to end the emulation.
  using Idle = std::function<void(std::uint32_t, std::chrono::nanoseconds)>;

  PortRanks(PortMemory memory, std::vector<std::uint32_t> ranks, Idle idle);

  std::span<const std::uint32_t> ranks() const noexcept override { return ranks_; }
  void take(std::size_t i, std::vector<Post>& posts) override;
  void wait() override;
  void answer(std::size_t i, std::int64_t value) override;
  bool is_patient() const noexcept override { return patient_; }
  // For `idle`, on its thread: holds until it is called again or a rank does more than query.
  void set_patient(bool patient) noexcept { patient_ = patient; }
  // The i'th waits on another machine: what it is told goes there.
  void tell_by(std::size_t i, std::function<void(std::int64_t)> tell);

  TimedRanks* timed() noexcept override { return pacer_ == nullptr ? nullptr : this; }
  std::int64_t now() noexcept override { return PaceClock::steady().now(); }
  void wait_until(std::int64_t until) override;
  void answer_at(std::size_t i, std::int64_t value, std::int64_t due) override;
  Lateness release_errors() const { return pacer_ == nullptr ? Lateness() : pacer_->errors(); }
  std::uint64_t overdue() const noexcept { return overdue_; }  // answers known after their time

  std::uint64_t messages() const noexcept { return messages_; }  // posts and answers
  // From the making of this until the last rank had posted something; 0: not yet.
  std::int64_t first_post_ns() const noexcept { return first_post_ns_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool news() const noexcept;
  void give(std::size_t i, std::int64_t value);

  PortMemory memory_;
  std::vector<std::uint32_t> ranks_;
  std::vector<std::uint64_t> taken_;
  std::vector<bool> rests_;                       // waits for the engine, or has ended
  std::vector<std::chrono::nanoseconds> silent_;  // waited for it since it did more than query
  std::uint64_t messages_ = 0;
  bool patient_ = true;
  std::size_t unheard_ = 0;  // ranks that have posted nothing yet
  std::int64_t first_post_ns_ = 0;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point looked_ = begin_;  // when idle_ was called
  Idle idle_;
  std::vector<std::function<void(std::int64_t)>> tell_;  // empty: on this machine
  std::uint64_t overdue_ = 0;
  std::unique_ptr<Pacer> pacer_;  // on the wall clock; the last member, as its thread uses others
};

}  // namespace prism
