// Lists of ranks that wait, and the list of those that can go on. Every rank has one node of its
// own; a rank that waits for several things at once takes further ones.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace prism::engine {

inline constexpr std::uint32_t no_node = UINT32_MAX;

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
    return is_extra(node) ? owners_[node - ranks_] : node;
  }
  std::uint32_t take_extra(std::uint32_t rank) {
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(next_.size()));
      next_.push_back(no_node);
      owners_.push_back(0);
    }
    const std::uint32_t node = free_.back();
    free_.pop_back();
    owners_[node - ranks_] = rank;
    return node;
  }
  void give_back(std::uint32_t node) { free_.push_back(node); }

 private:
  std::uint32_t ranks_;
  std::vector<std::uint32_t> next_;
  std::vector<std::uint32_t> owners_;  // of the further nodes
  std::vector<std::uint32_t> free_;
};

}  // namespace prism::engine
