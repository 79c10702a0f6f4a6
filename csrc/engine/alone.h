// A rank on its own: its clocks if no other rank ever delayed it.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace prism {

// When each iteration of `rank` ends (latest of host and streams, ns), with every communication
// launch starting as soon as this rank is ready. Op by op; for one rank, not for thousands.
std::vector<std::int64_t> iteration_ends_alone(const Graph& graph, std::uint32_t rank);

}  // namespace prism
