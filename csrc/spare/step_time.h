// How long groups compute in a step: work times a jitter, and the slowest of many groups.
#pragma once

#include <cstdint>

#include "spare/life_options.h"
#include "spare/random_stream.h"
#include "spare/workload.h"

namespace prism::spare {

// A shard takes layer_ns x normal(1, jitter), each shard and group on its own, never less than a
// tenth of layer_ns; x shards take layer_ns x normal(x, jitter sqrt(x)), which for whole x is the
// sum of x such draws and for parts of a shard splits its variance evenly. With the quirk
// replication_jitters_whole_step, replication draws once a step: layer_ns x normal(x, jitter x).
class StepTime {
 public:
  StepTime(const LifeOptions& options, std::int32_t parts, std::uint64_t seed);

  // Without jitter.
  std::int64_t planned_ns(std::int32_t load) const {
    return options_.layer_ns / parts_ * load + options_.layer_ns % parts_ * load / parts_;
  }
  // No draw for this load comes out longer (chance below 1e-32 a draw).
  std::int64_t longest_ns(std::int32_t load) const;
  std::int64_t draw_ns(std::int32_t load);
  // The slowest of the groups that `work` counts.
  std::int64_t slowest_ns(const Workload& work);

 private:
  std::int64_t jittered_ns(std::int32_t load, double z) const;
  std::int64_t shard_by_shard_ns(std::int32_t load);

  const LifeOptions& options_;
  std::int32_t parts_;
  bool every_group_;
  bool whole_step_;
  RandomStream stream_;
};

}  // namespace prism::spare
