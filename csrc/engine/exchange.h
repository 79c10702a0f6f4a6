// Bytes between the ranks that run: messages through one memfd that their processes inherit, so
// that nothing is left behind however they end. Every rank has an inbox of a bounded number of
// chunks, which all others fill and it alone empties. Leaving a message never waits: what finds no
// room stays with the sender until there is some. Whoever takes part must call progress() from time
// to time; as long as all do, every message arrives, in whatever order messages are left and taken.
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/shared_memory.h"

namespace prism {

struct ExchangeHead;  // exchange.cc: the shared memory's first part
struct Inbox;         // and a rank's part

// Shared memory for the inboxes of `ranks` (of the world, ascending). A copy is the same memory;
// the last one gives it back. Pages that no message touched cost nothing.
class ExchangeMemory {
 public:
  // Error where the system gives no memory. chunks: of an inbox, a power of two.
  static ExchangeMemory create(std::span<const std::uint32_t> ranks, std::size_t chunks = 64);
  // What another process created, by the descriptor it passed on. Error: not such memory.
  static ExchangeMemory open(int fd);

  int fd() const noexcept;  // closed with this
  std::span<const std::uint32_t> ranks() const noexcept;
  // No more messages will come: whoever waits is woken and goes on without.
  void close() const;
  // Number of the rank whose message the number'th rank's program waits for.
  std::optional<std::size_t> waits_for(std::size_t number) const noexcept;

 private:
  friend class Exchange;
  explicit ExchangeMemory(SharedMemory memory) : memory_(std::move(memory)) {}
  ExchangeHead& head() const noexcept;
  Inbox& inbox(std::size_t number) const noexcept;

  SharedMemory memory_;
};

// The sender adds what tells its messages to one receiver apart.
struct MessageKey {
  std::uint64_t channel = 0;
  std::uint64_t number = 0;
  friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
};

// The side of one rank, of any number of its threads.
class Exchange {
 public:
  using Payload = std::shared_ptr<const std::vector<std::byte>>;

  Exchange(ExchangeMemory memory, std::size_t number);

  std::size_t number() const noexcept { return number_; }
  std::optional<std::size_t> number_of(std::uint32_t rank) const noexcept;

  // Keys of messages to one rank are used once. One payload may go to many.
  void leave(std::size_t to, const MessageKey& key, Payload payload);
  // nullptr: has not come yet.
  Payload take(std::size_t from, const MessageKey& key);
  // Moves what can be moved, both ways. False: nothing could.
  bool progress();
  // All that was left is in the inbox of its receiver.
  bool is_flushed() const;

  // Closed, by the engine or by abandon().
  bool is_over() const noexcept;
  // This rank takes and leaves no more.
  void abandon();

  // A thread that finds nothing to do reads news() before it looks, then sleeps until there is
  // some. stir(): news from this process.
  std::uint32_t news() const noexcept;
  void sleep(std::uint32_t seen, std::chrono::nanoseconds longest) const;
  void stir();
  // For ExchangeMemory::waits_for: whose message the program itself waits for; nullopt: nobody's.
  void note_wait(std::optional<std::size_t> from) noexcept;

 private:
  struct Outgoing {
    MessageKey key;
    Payload payload;
    std::size_t sent = 0;  // bytes
  };
  struct Incoming {  // a message of which more is to come
    MessageKey key;
    std::vector<std::byte> bytes;
    std::size_t received = 0;
  };
  bool send();
  bool receive();

  ExchangeMemory memory_;
  std::size_t number_;
  Inbox& mine_;
  mutable std::mutex mutex_;
  std::atomic<bool> abandoned_{false};
  std::map<std::size_t, std::deque<Outgoing>> outgoing_;  // by receiver; none empty
  std::map<std::size_t, Incoming> incoming_;              // by sender
  std::map<std::pair<std::size_t, MessageKey>, Payload> arrived_;
};

}  // namespace prism
