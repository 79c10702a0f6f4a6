// The events of one Kineto trace (Chrome's JSON), by column.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "graph/tables.h"

namespace prism {

// Grid, block, shared bytes of a kernel's launch.
using LaunchShape = std::array<std::uint32_t, 7>;

struct KinetoEvents {
  static constexpr std::int64_t none = -1;

  StringTable strings;

  // One entry for each event with a duration ("ph": "X").
  std::vector<std::uint32_t> name;  // of strings, as the next two
  std::vector<std::uint32_t> category;
  std::vector<std::uint32_t> thread;
  std::vector<std::int64_t> start_ns;
  std::vector<std::int64_t> duration_ns;
  std::vector<std::int64_t> correlation;  // this and the rest: none where the event has none
  std::vector<std::int64_t> device;
  std::vector<std::int64_t> stream;
  std::vector<std::int64_t> bytes;

  // Kernels that tell how they were launched: (event, shape).
  std::vector<std::uint32_t> launched;
  std::vector<LaunchShape> launches;

  // Arguments that were asked for: (event, key, value), the value a text or JSON.
  std::vector<std::uint32_t> detailed;
  std::vector<std::uint32_t> detail_key;
  std::vector<std::uint32_t> detail_value;

  // What stands beside the events, as JSON.
  std::vector<std::pair<std::string, std::string>> header;

  std::uint64_t text_bytes = 0;  // of the JSON
  std::uint64_t others = 0;      // events of other kinds, and of categories that were not wanted
  std::uint64_t damaged = 0;     // events without a name, a start or a duration that can be
};

}  // namespace prism
