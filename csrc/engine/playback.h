// A process without a program that posts what a rank recorded: the least that a rank can be to the
// engine of an emulation. For measurements of the engine itself.
#pragma once

#include <cstdint>

#include "engine/port.h"
#include "graph/graph.h"

namespace prism {

// Posts all ops of `rank`, one after the other, and waits where its host would look at the device.
// GraphError: the graph does not hold the rank.
void play_back(const Graph& graph, std::uint32_t rank, Port& port);

}  // namespace prism
