#include "engine/mailbox.h"

#include <utility>

namespace prism::engine {

Mailbox::Mailbox() : slots_(64) {}

std::uint64_t Mailbox::hash(const Channel& c) noexcept {
  std::uint64_t x = (std::uint64_t{c.communicator} << 32 | c.source) * 0x9e3779b97f4a7c15u;
  x ^= (std::uint64_t{c.tag} << 32 | c.destination) + (x >> 29);
  x *= 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 31);
}

std::size_t Mailbox::find(const Channel& c) const noexcept {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash(c) & mask;
  while (slots_[i].head != no_node && slots_[i].channel != c) i = (i + 1) & mask;
  return i;
}

void Mailbox::erase(std::size_t hole) noexcept {
  // Moves later entries of the probe chain back, so that no chain has a gap.
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = (hole + 1) & mask; slots_[i].head != no_node; i = (i + 1) & mask) {
    const std::size_t home = hash(slots_[i].channel) & mask;
    if (((i - home) & mask) >= ((i - hole) & mask)) {
      slots_[hole] = slots_[i];
      hole = i;
    }
  }
  slots_[hole] = {};
  --used_;
}

void Mailbox::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  for (const Slot& s : old) {
    if (s.head != no_node) slots_[find(s.channel)] = s;
  }
}

std::uint32_t Mailbox::enrol(const Channel& channel, bool sends, const MessageSide& side,
                             bool eager) {
  const std::size_t i = find(channel);
  Slot& slot = slots_[i];
  if (slot.head != no_node) {
    const std::uint32_t id = slot.head;
    Message& m = messages_[id];
    MessageSide& mine = sends ? m.send : m.receive;
    if (mine.part == nullptr) {
      mine = side;
      m.eager |= eager;
      if (m.next == no_node) {
        erase(i);
      } else {
        slot.head = m.next;
      }
      return id;
    }
  }
  const std::uint32_t id = messages_.take();
  Message& m = messages_[id];
  m = {};
  (sends ? m.send : m.receive) = side;
  m.eager = eager;
  m.owed = 2;
  if (slot.head == no_node) {
    slot = {channel, id, id};
    if (++used_ * 2 > slots_.size()) grow();
  } else {
    messages_[slot.tail].next = id;
    slot.tail = id;
  }
  return id;
}

void Mailbox::leave(std::uint32_t id) {
  if (--messages_[id].owed == 0) messages_.give_back(id);
}

std::uint32_t Mailbox::any_unreceived() const noexcept {
  for (const Slot& s : slots_) {
    if (s.head != no_node && messages_[s.head].receive.part == nullptr) return s.head;
  }
  return no_node;
}

std::uint64_t Mailbox::unreceived() const noexcept {
  std::uint64_t n = 0;
  for (const Slot& s : slots_) {
    if (s.head == no_node || messages_[s.head].receive.part != nullptr) continue;
    for (std::uint32_t id = s.head; id != no_node; id = messages_[id].next) ++n;
  }
  return n;
}

}  // namespace prism::engine
