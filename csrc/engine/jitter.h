// Uneven kernels: the same draw for a kernel whoever asks, whenever and on whatever thread.
#pragma once

#include <cstdint>

#include "engine/perturbation.h"

namespace prism::engine {

// exp(sigma * z - sigma^2 / 2): z standard normal after Box and Muller (1958), from two hashes of
// (seed, rank, kernel) by SplitMix64 (Steele, Lea, Flood, 2014). Logarithm, cosine and exponential
// are series of our own: IEEE arithmetic alone, so that the factor is the same on every machine and
// C library.
double jitter_factor(const Jitter& jitter, std::uint32_t rank, std::uint64_t kernel) noexcept;

}  // namespace prism::engine
