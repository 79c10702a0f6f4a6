// What replay keeps of one rank.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/feed.h"
#include "engine/ledger.h"
#include "engine/rank_clock_view.h"
#include "engine/recorded.h"
#include "engine/steps.h"

namespace prism::engine {

// A communicator slot of a rank.
struct Slot {
  std::uint32_t communicator = 0;
  std::uint32_t position = 0;
  std::uint64_t next = 0;  // number of the next collective
};

// A part of a launch: the collective or message it became.
struct Handle {
  std::uint64_t number = 0;  // collective: of the communicator
  std::uint32_t id = 0;      // communicator, or message
  bool message = false;
  bool sends = false;
};

// A launch that waits for others.
struct Launch {
  const Step* step = nullptr;
  std::int64_t ready_ns = 0;
  std::uint32_t block = 0;    // position in the program
  std::uint32_t next = 0;     // parts before this one have met their partners
  std::array<Handle, 2> few;  // the first parts: most launches have no more
  std::vector<Handle> more;

  std::uint32_t size() const noexcept { return step->count; }
  const Handle& handle(std::uint32_t i) const noexcept { return i < 2 ? few[i] : more[i - 2]; }
};

// Times of the last records of a stream.
struct EventRing {
  static constexpr std::int64_t unknown = INT64_MIN;  // recorded behind a launch that waits
  // Not known yet: the time of a deferred record (deferred.h).
  static constexpr std::int64_t behind(std::uint32_t op) noexcept { return unknown + 1 + op; }
  static constexpr std::uint32_t op_of(std::int64_t time) noexcept {
    return static_cast<std::uint32_t>(time - unknown - 1);
  }
  static constexpr bool is_known(std::int64_t time) noexcept { return time >= 0; }

  std::int64_t* times = nullptr;
  std::uint32_t mask = 0;
  std::uint32_t open = 0;   // newest ones that are unknown
  std::uint64_t count = 0;  // records so far

  std::int64_t& at(std::uint64_t number) noexcept { return times[number & mask]; }
  bool holds(std::uint64_t number) const noexcept { return number + mask + 1 >= count; }
  void push(std::int64_t time) noexcept {
    times[count & mask] = time;
    ++count;
  }
};

struct StreamQueue;

// A rank whose ops come from outside (listen.cc).
struct Outside {
  std::size_t source = 0;  // among the outside ranks
  Feed feed;
  Recorded recorded;
  Feed::Block block;                     // being run, or run and asked about
  bool asks = false;                     // its ask is not answered yet
  bool hungry = false;                   // it has run what came, on the common path
  std::uint32_t iterations = 0;          // marks so far
  std::vector<const Steps*> blocks;      // so far
  std::vector<std::uint64_t> first_op;   // of each
  std::vector<std::int64_t> ring_times;  // its event rings
  std::vector<std::int64_t> host_times;  // beside them: the host clock at the record
  // Wall clock (wall.cc): by op of the block, the earliest that the host can have come to its end.
  std::vector<std::int64_t> earliest;
  std::int64_t earliest_ns = INT64_MIN / 2;  // of the last op so far
  std::int64_t late_ns = 0;                  // by which the process was behind its host clock
  std::int64_t patient_until = 0;            // hosts do not run ahead for it before
  std::uint32_t wall_from = 0;               // the first op of the block that counts
  bool passed = false;                       // the point from which it is held to the wall clock
  bool held = false;                         // told `held_value` at `held_at` once that starts
  std::int64_t held_value = 0, held_at = 0;

  Outside(std::size_t number, Feed f, Recorded program)
      : source(number), feed(std::move(f)), recorded(std::move(program)) {}
};

struct RankState {
  RankClockView clock;
  const Step* step = nullptr;
  const Step* steps_end = nullptr;
  const std::uint32_t* blocks = nullptr;
  std::uint32_t num_blocks = 0;
  std::uint32_t position = 0;  // of the block being run
  std::uint32_t pending = 0;   // launches that wait
  std::uint32_t rank = 0;      // in the world
  std::uint32_t index = 0;     // among the ranks of the graph
  std::uint16_t stuck_on = 0;  // stream whose launch the rank waits for
  bool waits = false;          // its node stands in a wait list
  bool is_candidate = false;   // its host may be able to run ahead
  bool finished = false;
  bool fails = false;      // at some time
  bool stopped = false;    // its host has: `step` is the first that does not happen
  bool failed = false;     // something of it did not happen, or did not end
  bool shown = false;      // its intervals are recorded
  bool perturbed = false;  // its kernels take other times than recorded
  Slot* slots = nullptr;
  std::uint16_t* homes = nullptr;  // by stream: where its waiting launch is kept, or none
  Launch* launches = nullptr;      // by stream of the first part
  EventRing* rings = nullptr;      // by stream
  const Steps* table = nullptr;
  std::uint32_t deferred = 0;     // ops not done that its host has run ahead of; 0: the common path
  std::uint32_t stuck_op = 0;     // of those, the one that its node in a wait list stands for
  StreamQueue* queues = nullptr;  // by stream, once it has run ahead
  std::unique_ptr<Outside> outside;  // null: a ghost, or a plain replay
  Ledger ledger;
  std::uint32_t program = 0;
  std::uint32_t num_slots = 0;
  std::int64_t fails_ns = INT64_MAX;
  std::uint64_t kernels = 0;  // issued so far, where it is perturbed
  std::uint64_t lanes = 0;    // streams that carry intervals, bit 63 for all from there on

  explicit RankState(Ledger l) : ledger(std::move(l)) {}
};

inline constexpr std::uint16_t no_stream = UINT16_MAX;

}  // namespace prism::engine
