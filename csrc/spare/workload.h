// How much each group computes in one phase of a step, in parts of a shard.
#pragma once

#include <cstdint>
#include <vector>

namespace prism::spare {

class Workload {
 public:
  static constexpr std::int32_t kOut = -1;  // the group is not in service

  Workload(std::int32_t groups, std::int32_t largest_load)
      : loads_(static_cast<std::size_t>(groups), kOut),
        counts_(static_cast<std::size_t>(largest_load) + 1, 0) {}

  std::int32_t groups() const { return static_cast<std::int32_t>(loads_.size()); }
  std::int32_t load(std::int32_t group) const { return loads_[static_cast<std::size_t>(group)]; }
  std::int32_t in_service() const { return in_service_; }
  // Groups in service with this load.
  std::int32_t count(std::int32_t load) const { return counts_[static_cast<std::size_t>(load)]; }
  // The largest load of a group in service; 0 where none is.
  std::int32_t largest() const { return largest_; }
  // The same of the groups that are counted now (take).
  std::int32_t largest_counted() const {
    std::int32_t load = largest_;
    while (load > 0 && count(load) == 0) --load;
    return load;
  }

  void set(std::int32_t group, std::int32_t load) {
    std::int32_t& held = loads_[static_cast<std::size_t>(group)];
    if (held == load) return;
    if (held != kOut) take(held);
    if (load != kOut) give(load);
    held = load;
    largest_ = largest_counted();
  }
  // Counts alone change: a group that is looked at on its own, and back.
  void take(std::int32_t load) {
    --counts_[static_cast<std::size_t>(load)];
    --in_service_;
  }
  void give(std::int32_t load) {
    ++counts_[static_cast<std::size_t>(load)];
    ++in_service_;
    if (load > largest_) largest_ = load;
  }

 private:
  std::vector<std::int32_t> loads_;
  std::vector<std::int32_t> counts_;
  std::int32_t in_service_ = 0;
  std::int32_t largest_ = 0;
};

}  // namespace prism::spare
