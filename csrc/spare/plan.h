// What one failure or re-join changes.
#pragma once

#include <cstdint>
#include <vector>

namespace prism::spare {

// Micro-batch `part` of shard `type`.
struct Part {
  std::int32_t type;
  std::int32_t part;

  friend bool operator==(const Part&, const Part&) = default;
};

// `group` computes `part` in the running step: no survivor holds its gradient.
struct Patch {
  std::int32_t group;
  Part part;
};

// From the next step on `to` owns `part`; `from` did (it may be dead).
struct Move {
  Part part;
  std::int32_t from;
  std::int32_t to;
};

enum class Outcome : std::uint8_t {
  kKept,       // what the survivors computed anyway covers every part: nothing moves
  kReordered,  // the same depth, other owners
  kDeepened,   // the survivors must each compute more
  kShallower,  // after a re-join
  kWipeOut,    // some type has no host left: restart from the checkpoint
};

struct Plan {
  Outcome outcome = Outcome::kKept;
  std::int32_t depth = 0;  // micro-batches that the fullest survivor computes in a step
  std::int32_t survivors = 0;
  std::int32_t patch_depth = 0;          // most patches of one group
  std::vector<std::int32_t> lost_types;  // of a wipe-out
  std::vector<Patch> patches;
  std::vector<Move> moves;
  // Over the layout and everything that led to it: equal on every survivor that saw the same calls.
  std::uint64_t digest = 0;
};

}  // namespace prism::spare
