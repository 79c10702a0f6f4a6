// What a simulated life is made of: the job, how it fails, what each event costs, and which rules
// of the published model apply.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace prism::spare {

inline constexpr std::int64_t kNever = INT64_MAX;

enum class Policy : std::uint8_t { kSpare, kReplication, kCheckpointOnly };
std::string_view name(Policy policy);

enum class LifetimeKind : std::uint8_t { kWeibull, kExponential, kTrace };

struct TraceFailure {
  std::int32_t group;
  std::int64_t time_ns;
};

// How a step's jitter is drawn. Both have the same distribution where the floor is out of reach
// (jitter <= kLargestFastJitter); above it every group is drawn.
enum class JitterDraw : std::uint8_t { kLargest, kEveryGroup };
inline constexpr double kLargestFastJitter = 0.1;
inline constexpr double kJitterFloor = 0.1;

// Rules of the published simulator that a real system does not follow; docs/spare.md says what
// happens without each. All set: the published model; none: the corrected one.
struct LifeQuirks {
  bool availability_ignores_rework = true;
  bool one_layer_per_patch = true;
  bool free_commit_when_covered = true;
  bool half_price_failed_allreduce = true;
  bool allreduce_cannot_fail = true;
  bool one_charge_per_failure = true;
  bool restart_redoes_a_step = true;
  bool skip_checkpoint_when_leader_due = true;
  bool clocks_run_while_down = true;
  bool replication_one_failure_per_step = true;
  bool replication_jitters_whole_step = true;

  static LifeQuirks published() { return {}; }
  static LifeQuirks corrected() {
    return {false, false, false, false, false, false, false, false, false, false, false};
  }
};

struct LifeOptions {
  Policy policy = Policy::kSpare;
  std::int32_t groups = 600;
  std::int32_t redundancy = 9;
  std::int32_t micro_batches = 1;  // spare alone
  std::int64_t steps = 10'000;

  std::int64_t layer_ns = 64'000'000'000;     // one shard on one group
  std::int64_t allreduce_ns = 6'000'000'000;  // one of a step
  std::int64_t restart_ns = 3'600'000'000'000;
  std::int64_t load_ns = 0;  // of the checkpoint, after the restart
  std::int64_t checkpoint_ns = 60'000'000'000;
  std::int64_t checkpoint_steps = 24;     // 0: never
  std::int64_t reorder_ns = 100'000'000;  // the controller
  std::int64_t shrink_ns = 100'000'000;   // the communicator
  double jitter = 0.05;                   // standard deviation of a shard's compute, relative
  JitterDraw jitter_draw = JitterDraw::kLargest;

  LifetimeKind lifetime = LifetimeKind::kWeibull;
  double group_mean_ns = 600.0 * 300e9;  // mean time between two failures of one group
  double shape = 0.78;                   // Weibull
  std::vector<TraceFailure> trace;
  std::int32_t domain_groups = 1;  // consecutive groups that share a failure domain
  double domain_share = 0.0;       // of failures that take their whole domain

  std::int64_t repair_ns = kNever;  // from a failure until the hardware can be used again
  std::int64_t rejoin_ns = 0;       // all wait while groups join at a step's start
  std::int32_t spares = 0;          // idle hardware for whole groups, as many at each restart
  std::int64_t swap_ns = 0;         // from a failure until a spare stands ready

  LifeQuirks quirks;
  std::int64_t limit_ns = 0;  // simulated time after which a life is given up; 0: 100 ideal ones
  std::uint64_t first_seed = 0;
  std::int32_t seeds = 5;
  std::int32_t threads = 1;
  bool record_events = false;

  // Throws SpareError with the value found and what is expected.
  void check() const;
  // Without failures, redundancy, jitter and checkpoints.
  std::int64_t ideal_ns() const { return steps * (layer_ns + allreduce_ns); }
  std::int64_t time_limit_ns() const;
};

// A life with more failures than this is given up too: it costs computing time, not simulated time.
inline constexpr std::int64_t kMostFailures = 10'000'000;

}  // namespace prism::spare
