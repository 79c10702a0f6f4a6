// What one simulated life came to.
#pragma once

#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <vector>

namespace prism::spare {

// Where the time of a life goes; the parts add up to it exactly.
enum class TimePart : std::uint8_t {
  kCompute,          // one shard a step: what a life without failures computes
  kRedundant,        // shards beyond the first, planned
  kJitter,           // waiting for the slowest (negative where all were faster than planned)
  kAllreduce,        // of steps that last
  kFailedAllreduce,  // given up because a group was gone
  kPatch,            // what a failure made survivors compute in the running step
  kRecovery,         // controller and communicator after a failure
  kRejoin,           // waiting for groups that join
  kCheckpoint,       // writing, also in vain
  kRestart,          // from a wipe-out until all groups have loaded the checkpoint
  kRework,           // everything else of steps that a wipe-out threw away
};
inline constexpr std::size_t kTimeParts = 11;
std::string_view name(TimePart part);

struct TimeSplit {
  std::array<std::int64_t, kTimeParts> ns{};

  std::int64_t& operator[](TimePart part) { return ns[static_cast<std::size_t>(part)]; }
  std::int64_t operator[](TimePart part) const { return ns[static_cast<std::size_t>(part)]; }
  std::int64_t total_ns() const { return std::accumulate(ns.begin(), ns.end(), std::int64_t{0}); }
};

enum class EventKind : std::uint8_t {
  kFailure,     // value: group; time: when the step noticed it
  kStep,        // value: step that is done
  kCheckpoint,  // value: step that a restart begins with
  kWipeOut,     // value: step that was running
  kRestart,     // value: step that is next; time: all groups are up
  kRejoin,      // value: group
};
std::string_view name(EventKind kind);

struct LifeEvent {
  std::int64_t time_ns;
  EventKind kind;
  std::int64_t value;

  friend bool operator==(const LifeEvent&, const LifeEvent&) = default;
};

struct LifeTrial {
  std::uint64_t seed = 0;
  bool finished = false;  // all steps are done within the limits
  std::int64_t steps_done = 0;
  std::int64_t total_ns = 0;
  std::int64_t ideal_ns = 0;
  double availability = 0.0;
  TimeSplit split;
  std::int64_t recovery_ns = 0;  // controller and communicator, also of steps thrown away

  std::int64_t failures = 0;          // of groups in service, noticed by a step
  std::int64_t restart_failures = 0;  // of groups while they restart
  std::int64_t wipeouts = 0;
  std::int64_t restarts = 0;
  std::int64_t covered = 0;   // reactions in which nothing had to be computed
  std::int64_t reorders = 0;  // reactions with a patch
  std::int64_t rejoined = 0;  // groups
  std::int64_t checkpoints = 0;
  std::int64_t endured = 0;  // failures before each wipe-out, summed over lives that ended so
  double depth_sum = 0.0;    // planned depth in shards after each endured failure
  std::int64_t depth_count = 0;
  double compute_sum = 0.0;  // shards of the slowest survivor, over steps run
  std::int64_t compute_count = 0;
  std::vector<LifeEvent> events;

  double ttt_ratio() const { return static_cast<double>(total_ns) / static_cast<double>(ideal_ns); }
};

}  // namespace prism::spare
