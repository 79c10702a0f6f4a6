// Where ranks meet: the collectives of a communicator that some members have reached and not all
// have left.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/steps.h"
#include "engine/wait_list.h"

namespace prism::engine {

struct Meeting {
  std::int64_t ready_ns = 0;          // of the latest so far: the start once all are here
  std::int64_t duration_ns = 0;       // the longest any member recorded
  std::int64_t fails_ns = INT64_MAX;  // when the first of those here fails
  std::uint32_t arrived = 0;
  std::uint32_t left = 0;
  std::uint32_t first_rank = 0;   // dense index of the first to arrive
  std::uint32_t first_block = 0;  // position in its program
  bool durations_differ = false;
  bool leads = false;          // part and duration are of a rank that ghosts adapt to
  const Part* part = nullptr;  // of the first to arrive, or of the first such rank
  WaitList waiters;
};

// The open meetings of one communicator, by number.
class Meetings {
 public:
  // `arrived` of a meeting that a member failed in, or that members disagree about: it is never
  // complete.
  static constexpr std::uint32_t lost = UINT32_MAX;

  void set_size(std::uint32_t size) noexcept { size_ = size; }
  std::uint32_t size() const noexcept { return size_; }

  // The number'th collective of the communicator, from 0. Stays valid until the next `open`.
  Meeting& open(std::uint64_t number) {
    if (number - oldest_ >= ring_.size()) grow(number);
    return ring_[number & (ring_.size() - 1)];
  }
  const Meeting& at(std::uint64_t number) const noexcept {
    return ring_[number & (ring_.size() - 1)];
  }
  Meeting& at(std::uint64_t number) noexcept { return ring_[number & (ring_.size() - 1)]; }
  bool complete(std::uint64_t number) const noexcept { return at(number).arrived == size_; }

  void leave(std::uint64_t number) noexcept {
    if (++at(number).left != size_) return;
    while (at(oldest_).left == size_) at(oldest_++) = {};
  }

 private:
  void grow(std::uint64_t number);

  std::uint32_t size_ = 0;
  std::uint64_t oldest_ = 0;  // not left by all
  std::vector<Meeting> ring_;
};

}  // namespace prism::engine
