// What one failure or re-join changes.
#pragma once

#include <cstdint>
#include <string_view>
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

  friend bool operator==(const Patch&, const Patch&) = default;
};

// From the next step on `to` owns `part`; `from` did (it may be down).
struct Move {
  Part part;
  std::int32_t from;
  std::int32_t to;

  friend bool operator==(const Move&, const Move&) = default;
};

enum class Outcome : std::uint8_t {
  kKept,       // no survivor computes anything that it did not: at most owners among them change
  kReordered,  // the same depth, other work
  kDeepened,   // the survivors must each compute more
  kShallower,  // after a re-join
  kWipeOut,    // some type has no host left: restart from the checkpoint
};
std::string_view name(Outcome outcome);

// By type, then part, wherever parts are listed.
struct Plan {
  Outcome outcome = Outcome::kKept;
  std::int32_t depth = 0;  // micro-batches that the fullest survivor computes in a step
  std::int32_t survivors = 0;
  // Parts that a survivor computes from the next step on and would not have at this depth: the cost
  // that is least. For one micro-batch, owners may change beyond it among those who compute the
  // type anyway.
  std::int32_t new_work = 0;
  std::int32_t patch_depth = 0;          // most patches of one group
  std::vector<std::int32_t> lost_types;  // of a wipe-out
  std::vector<Patch> patches;
  std::vector<Move> moves;
  // Over the placement and every call since the last restart: equal on survivors that saw the same.
  std::uint64_t digest = 0;
};

}  // namespace prism::spare
