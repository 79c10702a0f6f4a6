// Hardware that comes back: spares that stand ready, and failed hardware once it is repaired. All
// units are alike; the group that failed first is served first.
#pragma once

#include <cstdint>
#include <vector>

#include "spare/life_options.h"

namespace prism::spare {

class SparePool {
 public:
  explicit SparePool(const LifeOptions& options);

  void fail(std::int32_t group, std::int64_t time_ns);
  // Groups that can join at `now_ns`, appended in the order in which they failed.
  void collect(std::int64_t now_ns, std::vector<std::int32_t>& groups);
  // All groups run, all spares stand ready.
  void restart();
  bool used() const { return spares_ > 0 || repair_ns_ != kNever; }

 private:
  struct Down {
    std::int32_t group;
    std::int64_t time_ns;
  };

  std::int32_t spares_;
  std::int64_t repair_ns_;
  std::int64_t swap_ns_;
  std::int64_t ready_ = 0;             // units that stand ready
  std::vector<Down> waiting_;          // groups without hardware, oldest first
  std::vector<std::int64_t> repairs_;  // when units are repaired, a heap with the soonest on top
};

}  // namespace prism::spare
