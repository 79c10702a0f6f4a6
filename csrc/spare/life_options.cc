#include "spare/life_options.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace prism::spare {
namespace {

// Sums of a few hundred of these stay within 64 bits.
constexpr std::int64_t kLongest = std::int64_t{1} << 54;  // 208 days
constexpr std::int64_t kLongestLife = std::int64_t{1} << 61;
constexpr std::int64_t kMostSteps = 1'000'000'000;
constexpr std::int64_t kMostStackedParts = std::int64_t{1} << 28;

[[noreturn]] void refuse(std::string_view what, const std::string& found,
                         const std::string& expected) {
  throw SpareError("life: " + std::string(what) + " " + found + " found, expected " + expected);
}

void whole(std::string_view what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value < low || value > high) {
    refuse(what, std::to_string(value), std::to_string(low) + " to " + std::to_string(high));
  }
}

void time(std::string_view what, std::int64_t value_ns, std::int64_t low_ns = 0) {
  if (value_ns < low_ns || value_ns > kLongest) {
    refuse(what, std::to_string(value_ns) + " ns",
           std::to_string(low_ns) + " to " + std::to_string(kLongest) + " ns");
  }
}

void share(std::string_view what, double value) {
  if (!(value >= 0.0 && value <= 1.0)) refuse(what, std::to_string(value), "0 to 1");
}

void check_trace(const LifeOptions& options) {
  if (options.trace.empty()) refuse("failure trace", "without failures", "one failure or more");
  for (const TraceFailure& failure : options.trace) {
    whole("group of a traced failure", failure.group, 0, options.groups - 1);
    if (failure.time_ns < 0) {
      refuse("time of a traced failure", std::to_string(failure.time_ns) + " ns", "0 or more");
    }
  }
  if (options.domain_share > 0.0) {
    refuse("share of domain failures", std::to_string(options.domain_share),
           "0 with a failure trace, which names every group that fails");
  }
}

void check_lifetime(const LifeOptions& options) {
  if (options.lifetime == LifetimeKind::kTrace) return check_trace(options);
  if (!(options.group_mean_ns >= 1.0 && std::isfinite(options.group_mean_ns))) {
    refuse("mean time between failures of a group", std::to_string(options.group_mean_ns) + " ns",
           "1 ns or more");
  }
  if (options.lifetime == LifetimeKind::kWeibull &&
      !(options.shape >= 0.1 && options.shape <= 100.0)) {
    refuse("Weibull shape", std::to_string(options.shape), "0.1 to 100");
  }
}

}  // namespace

std::string_view name(Policy policy) {
  constexpr std::string_view names[] = {"spare", "replication", "checkpoint-only"};
  return names[static_cast<std::size_t>(policy)];
}

void LifeOptions::check() const {
  whole("groups", groups, 1, 1'000'000);
  whole("redundancy", redundancy, 1, groups);
  whole("micro-batches", micro_batches, 1, 1 << 16);
  whole("groups x redundancy x micro-batches",
        std::int64_t{groups} * redundancy * (policy == Policy::kSpare ? micro_batches : 1), 1,
        kMostStackedParts);
  whole("steps", steps, 1, kMostSteps);
  whole("checkpoint interval in steps", checkpoint_steps, 0, kMostSteps);
  whole("seeds", seeds, 1, 1'000'000);
  whole("threads", threads, 1, 4096);
  whole("groups of a failure domain", domain_groups, 1, 1'000'000);
  whole("spares", spares, 0, 1'000'000);
  time("time of a layer", layer_ns, 1);
  time("time of an all-reduce", allreduce_ns);
  time("time of a restart", restart_ns);
  time("time to load a checkpoint", load_ns);
  time("time to write a checkpoint", checkpoint_ns);
  time("time to reorder", reorder_ns);
  time("time to shrink", shrink_ns);
  time("time to re-join", rejoin_ns);
  time("time to swap a spare in", swap_ns);
  if (repair_ns != kNever) time("time to repair", repair_ns);
  share("jitter", jitter);
  share("share of domain failures", domain_share);
  if (limit_ns < 0) {
    refuse("limit of simulated time", std::to_string(limit_ns) + " ns",
           "0 (100 ideal lives) or more");
  }
  if (layer_ns > kLongest / redundancy) {
    refuse("time of a layer", std::to_string(layer_ns) + " ns",
           "at most " + std::to_string(kLongest / redundancy) + " ns at redundancy " +
               std::to_string(redundancy));
  }
  if (steps > (std::int64_t{1} << 60) / (layer_ns + allreduce_ns)) {
    refuse("steps",
           std::to_string(steps) + " of " + std::to_string(layer_ns + allreduce_ns) + " ns",
           "less than 36 years in all");
  }
  check_lifetime(*this);
}

std::int64_t LifeOptions::time_limit_ns() const {
  constexpr std::int64_t ideal_lives = 100;
  if (limit_ns > 0) return std::min(limit_ns, kLongestLife);
  return ideal_ns() > kLongestLife / ideal_lives ? kLongestLife : ideal_ns() * ideal_lives;
}

}  // namespace prism::spare
