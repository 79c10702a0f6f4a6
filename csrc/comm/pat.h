// NCCL's PAT (parallel aggregated trees): all-gather and reduce-scatter in log2 N dimensions
// between nodes of one rank. In dimension k the partners are 2^k apart.
#pragma once

#include <bit>
#include <cstdint>

namespace prism {

struct PatStep {
  std::uint32_t send_to = 0;
  std::uint32_t receive_from = 0;
  std::uint64_t chunks = 0;  // of bytes / N each
  friend bool operator==(const PatStep&, const PatStep&) = default;
};

constexpr std::uint32_t pat_dimensions(std::uint32_t ranks) noexcept {
  return static_cast<std::uint32_t>(std::bit_width(ranks - 1));
}

// Chunks over all dimensions sum to N - 1: each rank moves what a ring would.
constexpr PatStep pat_step(std::uint32_t ranks, std::uint32_t rank, std::uint32_t dimension,
                           bool all_gather) noexcept {
  const std::uint64_t distance = std::uint64_t{1} << dimension;
  const auto above = static_cast<std::uint32_t>((rank + distance) % ranks);
  const auto below = static_cast<std::uint32_t>((rank + ranks - distance % ranks) % ranks);
  const std::uint64_t chunks = (ranks - 1 + distance) / (2 * distance);
  return all_gather ? PatStep{above, below, chunks} : PatStep{below, above, chunks};
}

}  // namespace prism
