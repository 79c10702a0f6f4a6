// How many failures a placement endures and how deep its stacks get on the way: groups fail in
// random order, without times.
#pragma once

#include <cstdint>
#include <vector>

#include "spare/placement.h"
#include "spare/trials.h"

namespace prism::spare {

struct Endurance {
  std::int32_t endured = 0;  // failures before the one that wipes out
  double mean_depth = 0.0;   // in shards, over the endured failures; 0 where there are none
};

// One entry a trial, a function of placement, seed and trial alone. With micro_batches 0 depths are
// left out, and with them the solver: only hosts are counted. Throws SpareError, and
// what `poll` throws, which is called meanwhile.
std::vector<Endurance> endurance(const Placement& placement, std::int32_t micro_batches,
                                 std::int32_t trials, std::uint64_t seed, std::int32_t threads,
                                 const Poll& poll = {});

}  // namespace prism::spare
