// The mailboxes between rank processes and the engine: one memfd that the processes inherit, so
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
#include <vector>

#include "engine/outside.h"

namespace prism {

struct PortLayout;  // port.cc: one rank's part of the shared memory

// Shared memory for `ranks` mailboxes of `slots` posts each (a power of two).
class PortMemory {
 public:
  // Error where the system gives no memory.
  static PortMemory create(std::size_t ranks, std::size_t slots = std::size_t{1} << 14);
  // What another process created, by the descriptor it passed on. Error: not such memory.
  static PortMemory open(int fd);
  PortMemory(PortMemory&& other) noexcept;
  PortMemory& operator=(PortMemory&&) = delete;
  ~PortMemory();

  int fd() const noexcept { return fd_; }  // closed with this
  std::size_t ranks() const noexcept;

 private:
  friend class Port;
  friend class PortRanks;
  PortMemory(int fd, void* memory, std::size_t bytes) : fd_(fd), memory_(memory), bytes_(bytes) {}
  PortLayout& layout(std::size_t rank) const noexcept;

  int fd_;
  void* memory_;
  std::size_t bytes_;
};

// The rank's side. One thread at a time.
class Port {
 public:
  Port(PortMemory memory, std::size_t number);

  void post(const Post& post);
  // Posts what asks, and waits to be told.
  std::int64_t ask(const Post& post);

 private:
  PortMemory memory_;
  PortLayout& mine_;
  std::uint64_t posted_ = 0, taken_ = 0, rung_ = 0;
};

// The engine's side.
class PortRanks : public OutsideRanks {
 public:
  // Called when nothing has come for a while, again and again: may throw to end the emulation.
  using Idle = std::function<void(std::chrono::nanoseconds)>;

  PortRanks(PortMemory memory, std::vector<std::uint32_t> ranks, Idle idle);

  std::span<const std::uint32_t> ranks() const noexcept override { return ranks_; }
  void take(std::size_t i, std::vector<Post>& posts) override;
  void wait() override;
  void answer(std::size_t i, std::int64_t value) override;

  std::uint64_t messages() const noexcept { return messages_; }  // posts and answers
  std::uint64_t posts(std::size_t i) const noexcept { return taken_[i]; }
  // From the making of this until the last rank had posted something; 0: not yet.
  std::int64_t first_post_ns() const noexcept { return first_post_ns_; }

 private:
  bool news() const noexcept;

  PortMemory memory_;
  std::vector<std::uint32_t> ranks_;
  std::vector<std::uint64_t> taken_;
  std::uint64_t messages_ = 0;
  std::size_t silent_ = 0;  // ranks that have posted nothing yet
  std::int64_t first_post_ns_ = 0;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Idle idle_;
};

}  // namespace prism
