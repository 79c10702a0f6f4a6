// Who a rank talks to on a ring: inside a node the channel's order, from the last rank of a node
// to the first of the next, and around.
#pragma once

#include <cstdint>

#include "comm/layout.h"

namespace prism {

struct RingOptions {
  bool same_channels = true;
  // NCCL's crossNic = 2 with an even number of channels: odd nodes swap channels c and c ^ 1.
  bool swap_on_odd_nodes = false;
  friend bool operator==(const RingOptions&, const RingOptions&) = default;
};

struct RingLinks {
  std::uint32_t previous = 0;  // sends to this rank
  std::uint32_t next = 0;      // receives from it
  friend bool operator==(const RingLinks&, const RingLinks&) = default;
};

// Position: place in the communicator. Constant time.
RingLinks ring_links(const NodeLayout& layout, std::uint32_t position, std::uint32_t channel,
                     const RingOptions& options = {}) noexcept;

}  // namespace prism
