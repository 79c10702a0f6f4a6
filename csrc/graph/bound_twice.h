// A communicator that a rank has two slots for. The engine counts what a rank does on a
// communicator in the order of its program, so two counts of one would wait for each other.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "graph/graph.h"

namespace prism {

// The first two slots of one communicator, the lower first.
std::optional<std::pair<std::size_t, std::size_t>> bound_twice(std::span<const Binding> bindings);

}  // namespace prism
