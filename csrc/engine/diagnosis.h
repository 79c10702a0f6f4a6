// Where a rank stands, in words.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/steps.h"

namespace prism::engine {

// A communication op of a rank's program.
struct Place {
  std::uint32_t rank = 0;  // in the world
  std::uint64_t op = 0;    // number in the program, from 0
  const Part* part = nullptr;
  std::string_view call_site;  // empty: not known
};

// What a rank waits for.
struct Stuck {
  Place place;
  std::uint32_t communicator = 0;
  std::uint64_t number = 0;  // of the collective, from 0
  bool message = false;
  std::vector<std::uint32_t> missing;  // dense indices of those that have not come
};

std::string describe(const Part& part);
std::string describe(const Place& place);
// "3, 5, 8, ... (17 in all)".
std::string list_ranks(std::span<const std::uint32_t> ranks, std::size_t limit = 8);

}  // namespace prism::engine
