#include "spare/step_time.h"

#include <algorithm>
#include <cmath>

#include "spare/normal.h"

namespace prism::spare {
namespace {

constexpr double kFarthest = 12.0;  // P(Z > 12) = 1.8e-33

}  // namespace

StepTime::StepTime(const LifeOptions& options, std::int32_t parts, std::uint64_t seed)
    : options_(options),
      parts_(parts),
      every_group_(options.jitter_draw == JitterDraw::kEveryGroup ||
                   options.jitter > kLargestFastJitter),
      whole_step_(options.policy == Policy::kReplication &&
                  options.quirks.replication_jitters_whole_step),
      stream_(seed, Purpose::kJitter, 0) {}

std::int64_t StepTime::jittered_ns(std::int32_t load, double z) const {
  const auto planned = static_cast<double>(planned_ns(load));
  const double unit = whole_step_ ? planned : static_cast<double>(options_.layer_ns);
  const double deviation = options_.jitter * std::sqrt(planned * unit);
  return std::llround(std::max(planned + deviation * z, kJitterFloor * planned));
}

std::int64_t StepTime::longest_ns(std::int32_t load) const {
  if (options_.jitter == 0.0) return planned_ns(load);
  // Shard by shard, every one may come out far.
  const double shards = std::ceil(static_cast<double>(load) / parts_);
  return jittered_ns(load, every_group_ ? kFarthest * std::sqrt(shards) : kFarthest);
}

std::int64_t StepTime::shard_by_shard_ns(std::int32_t load) {
  if (whole_step_) return jittered_ns(load, normal_draw(stream_));
  std::int64_t sum_ns = 0;
  for (; load > 0; load -= parts_) {
    sum_ns += jittered_ns(std::min(load, parts_), normal_draw(stream_));
  }
  return sum_ns;
}

std::int64_t StepTime::draw_ns(std::int32_t load) {
  if (load == 0) return 0;
  if (options_.jitter == 0.0) return planned_ns(load);
  return every_group_ ? shard_by_shard_ns(load) : jittered_ns(load, normal_draw(stream_));
}

std::int64_t StepTime::slowest_ns(const Workload& work) {
  std::int64_t slowest = 0;
  for (std::int32_t load = work.largest(); load > 0; --load) {
    const std::int32_t groups = work.count(load);
    if (groups == 0) continue;
    if (longest_ns(load) <= slowest) break;
    if (options_.jitter == 0.0) return std::max(slowest, planned_ns(load));
    if (every_group_) {
      for (std::int32_t group = 0; group < groups; ++group) {
        slowest = std::max(slowest, shard_by_shard_ns(load));
      }
    } else {
      slowest = std::max(slowest, jittered_ns(load, largest_normal_draw(stream_, groups)));
    }
  }
  return slowest;
}

}  // namespace prism::spare
