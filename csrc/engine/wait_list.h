// Lists of ranks that wait, and the list of those that can go on. Every rank has one node of its
// own; a rank that waits for several things at once takes further ones.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/pool.h"

namespace prism::engine {

struct WaitList {
  std::uint32_t head = no_node, tail = no_node;
  bool empty() const noexcept { return head == no_node; }
};

class WaitLists {
 public:
  explicit WaitLists(std::uint32_t ranks) : ranks_(ranks), next_(ranks, no_node) {}

  void append(WaitList& list, std::uint32_t node) noexcept {
    next_[node] = no_node;
    (list.empty() ? list.head : next_[list.tail]) = node;
    list.tail = node;
  }
  // Moves all of `from` before `to`, in order.
  void splice(WaitList& from, WaitList& to) noexcept {
    if (from.empty()) return;
    next_[from.tail] = to.head;
    to.head = from.head;
    if (to.tail == no_node) to.tail = from.tail;
    from = {};
  }
  std::uint32_t pop(WaitList& list) noexcept {
    const std::uint32_t node = list.head;
    list.head = next_[node];
    if (list.head == no_node) list.tail = no_node;
    return node;
  }

  std::uint32_t after(std::uint32_t node) const noexcept { return next_[node]; }
  bool is_extra(std::uint32_t node) const noexcept { return node >= ranks_; }
  std::uint32_t rank_of(std::uint32_t node) const noexcept {
    return is_extra(node) ? extras_[node - ranks_].rank : node;
  }
  // A further node of a rank, with what it waits for.
  std::uint32_t take_extra(std::uint32_t rank, std::uint32_t tag) {
    const std::uint32_t extra = extras_.take();
    extras_[extra] = {rank, tag};
    const std::uint32_t node = ranks_ + extra;
    if (node == next_.size()) next_.push_back(no_node);
    return node;
  }
  std::uint32_t tag_of(std::uint32_t extra_node) const noexcept {
    return extras_[extra_node - ranks_].tag;
  }
  void give_back(std::uint32_t extra_node) { extras_.give_back(extra_node - ranks_); }

 private:
  struct Extra {
    std::uint32_t rank = 0, tag = 0;
  };
  std::uint32_t ranks_;
  std::vector<std::uint32_t> next_;
  Pool<Extra> extras_;
};

}  // namespace prism::engine
