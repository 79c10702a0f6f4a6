// Emulation over several machines. The engine runs on one; ranks of another post into ports of
// their own machine, whose posts are carried over one connection into ports beside the engine,
// and the engine's answers back.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/connection.h"
#include "engine/port.h"

namespace prism {

// Texts that came over a connection, for whoever asks.
class TextQueue {
 public:
  void add(const Frame& frame);
  std::optional<std::string> take();

 private:
  std::mutex mutex_;
  std::deque<std::string> queue_;
};

// On the engine's machine: the other end of one machine without it.
class RemoteMachine {
 public:
  // fd: connected. Its k'th rank is number `numbers[k]` of `memory`.
  RemoteMachine(int fd, const PortMemory& memory, std::vector<std::uint32_t> numbers);
  RemoteMachine(const RemoteMachine&) = delete;
  RemoteMachine& operator=(const RemoteMachine&) = delete;
  ~RemoteMachine();  // ends the connection

  const std::vector<std::uint32_t>& numbers() const noexcept { return numbers_; }
  void answer(std::uint32_t number, std::int64_t value);
  bool send_text(std::string_view text) { return connection_.send_text(text); }
  std::optional<std::string> take_text() { return texts_.take(); }
  // What it sent before is still there to be taken.
  bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }

 private:
  void listen();
  void post(const Frame& frame);

  Connection connection_;
  const PortMemory memory_;
  const std::vector<std::uint32_t> numbers_;
  std::deque<Port> ports_;
  TextQueue texts_;
  std::atomic<bool> lost_{false};
  std::thread listener_;
};

// On a machine without the engine: stands in for it.
class Relay {
 public:
  Relay(int fd, const PortMemory& memory);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  ~Relay();  // ends the connection

  // Until all ranks have ended, or the ports are closed. `idle` as for PortRanks. Error: the
  // engine's machine is gone.
  void run(const PortRanks::Idle& idle);
  bool send_text(std::string_view text) { return connection_.send_text(text); }
  std::optional<std::string> take_text() { return texts_.take(); }
  bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }

 private:
  void listen();

  Connection connection_;
  const PortMemory memory_;
  TextQueue texts_;
  std::atomic<bool> lost_{false};
  std::thread listener_;
};

}  // namespace prism
