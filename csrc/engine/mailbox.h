// Messages whose other side has not come yet, and those matched but not yet taken by both sides.
// Sides of one channel (communicator, source, destination, tag) match in order.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/pool.h"
#include "engine/steps.h"
#include "engine/wait_list.h"

namespace prism::engine {

struct Channel {
  std::uint32_t communicator = 0;
  std::uint32_t source = 0, destination = 0;  // positions
  std::uint32_t tag = 0;
  friend bool operator==(const Channel&, const Channel&) = default;
};

// One of the two ends of a message.
struct MessageSide {
  static constexpr std::int64_t not_ready = INT64_MIN;
  std::int64_t ready_ns = not_ready;
  const Part* part = nullptr;  // null: has not been issued
  std::uint32_t rank = 0;      // dense index
  std::uint32_t block = 0;     // position in its program
};

struct Message {
  MessageSide send, receive;
  WaitList waiters;
  std::uint32_t next = no_node;  // in its channel
  std::uint8_t owed = 0;         // sides that still look at it
  bool eager = false;            // the send does not wait
  bool lost = false;             // a side failed on the way, or they disagree: it never arrives

  bool matched() const noexcept { return send.part != nullptr && receive.part != nullptr; }
  bool both_ready() const noexcept {
    return send.ready_ns != MessageSide::not_ready && receive.ready_ns != MessageSide::not_ready &&
           !lost;
  }
};

class Mailbox {
 public:
  Mailbox();

  // Adds a side, in the order of issue. The message it belongs to is matched if the other side was
  // there. References to messages stay valid until the next call.
  std::uint32_t enrol(const Channel& channel, bool sends, const MessageSide& side, bool eager);
  Message& at(std::uint32_t id) noexcept { return messages_[id]; }
  const Message& at(std::uint32_t id) const noexcept { return messages_[id]; }
  // A side has taken what it needs.
  void leave(std::uint32_t id);

  // Sends no receive came for, though nobody waits for them.
  std::uint64_t unreceived() const noexcept;
  std::uint32_t any_unreceived() const noexcept;  // no_node if there is none

 private:
  struct Slot {
    Channel channel;
    std::uint32_t head = no_node, tail = no_node;  // no_node: the slot is free
  };

  static std::uint64_t hash(const Channel& c) noexcept;
  std::size_t find(const Channel& c) const noexcept;
  void erase(std::size_t slot) noexcept;
  void grow();

  std::vector<Slot> slots_;  // open addressing, a power of two
  std::size_t used_ = 0;
  Pool<Message> messages_;
};

}  // namespace prism::engine
