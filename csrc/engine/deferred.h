// Ops that hosts have issued to streams that wait: one queue a stream, in the order of issue.
#pragma once

#include <cstdint>

#include "engine/pool.h"
#include "engine/rank_state.h"
#include "engine/steps.h"

namespace prism::engine {

struct Deferred {
  StepKind kind = StepKind::segment;
  std::uint16_t stream = 0;    // of the first part
  std::uint32_t block = 0;     // position in the program
  const Step* step = nullptr;  // null: a record issued before the host ran ahead
  std::int64_t host_ns = 0;    // the host clock when it was issued
  // wait: the time of its record; iteration: the latest end it knows.
  std::int64_t time_ns = EventRing::unknown;
  std::uint64_t number = 0;       // record: on the stream; kernel: in the program
  std::uint32_t waits = no_node;  // record: the first wait for it; wait: the next one of its record
  std::uint32_t launch = no_node;
  // launch: queues of it in which others stand before it, 0 once it has arrived;
  // iteration: queues it stands in.
  std::uint32_t held = 0;
};

struct StreamQueue {
  std::uint32_t head = no_node, tail = no_node;
  bool due = false;  // its first op is to be looked at

  bool empty() const noexcept { return head == no_node; }
};

class DeferredOps {
 public:
  std::uint32_t take() {
    const std::uint32_t op = ops_.take();
    ops_[op] = {};
    return op;
  }
  Launch& take_launch(std::uint32_t op) { return launches_[ops_[op].launch = launches_.take()]; }
  void give_back(std::uint32_t op) {
    if (ops_[op].launch != no_node) launches_.give_back(ops_[op].launch);
    ops_.give_back(op);
  }
  Deferred& operator[](std::uint32_t op) noexcept { return ops_[op]; }
  const Deferred& operator[](std::uint32_t op) const noexcept { return ops_[op]; }
  Launch& launch(std::uint32_t op) noexcept { return launches_[ops_[op].launch]; }
  const Launch& launch(std::uint32_t op) const noexcept { return launches_[ops_[op].launch]; }

  // False: it is the last already (a launch with several parts on the stream).
  bool append(StreamQueue& queue, std::uint32_t op) {
    if (!queue.empty() && places_[queue.tail].op == op) return false;
    const std::uint32_t place = places_.take();
    places_[place] = {op, no_node};
    (queue.empty() ? queue.head : places_[queue.tail].next) = place;
    queue.tail = place;
    return true;
  }
  bool is_first(const StreamQueue& queue, std::uint32_t op) const noexcept {
    return !queue.empty() && places_[queue.head].op == op;
  }
  std::uint32_t first(const StreamQueue& queue) const noexcept { return places_[queue.head].op; }
  void pop(StreamQueue& queue) {
    const std::uint32_t place = queue.head;
    queue.head = places_[place].next;
    if (queue.head == no_node) queue.tail = no_node;
    places_.give_back(place);
  }
  template <class F>
  void for_each(const StreamQueue& queue, F&& f) const {
    for (std::uint32_t at = queue.head; at != no_node; at = places_[at].next) f(places_[at].op);
  }

 private:
  struct Place {
    std::uint32_t op = 0, next = no_node;
  };
  Pool<Deferred> ops_;
  Pool<Launch> launches_;
  Pool<Place> places_;
};

}  // namespace prism::engine
