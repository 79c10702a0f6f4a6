// The ranks of a communicator that run for real beside this one, in an emulation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace prism {
class Exchange;
}

namespace prism::vgpu {

// Number in the exchange of the rank whose bytes are missing; nullopt: none, it is done.
using Lacks = std::optional<std::size_t>;

struct Company {
  Exchange* exchange = nullptr;  // lives as long as the process
  std::uint64_t identity = 0;    // of the communicator, the same on all its members
  std::uint32_t size = 0;        // of the communicator
  std::uint32_t own = 0;         // position in it
  // Of the members that run, this one among them: positions, rising, and numbers in the exchange.
  std::vector<std::uint32_t> positions;
  std::vector<std::size_t> numbers;
};

}  // namespace prism::vgpu
