// The life-time simulator: training steps under failures, restarts and checkpoints.
#pragma once

#include <vector>

#include "spare/life_options.h"
#include "spare/life_result.h"
#include "spare/placement.h"
#include "spare/trials.h"

namespace prism::spare {

// One life for each seed, in the order of seeds; equal for any number of threads. `placement` is
// needed by the policy `spare` alone and must have the options' groups and redundancy. Throws
// SpareError, and what `poll` throws, which is called meanwhile.
std::vector<LifeTrial> simulate_lives(const LifeOptions& options, const Placement* placement,
                                      const Poll& poll = {});

}  // namespace prism::spare
