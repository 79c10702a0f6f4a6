// One reduction of the data of several ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "intercept/contract.h"

namespace prism::intercept {

// inputs[i] counts weights[i] times, in the order given, so that all who call with the same inputs
// get the same bytes; the weights sum to reduction.ranks. Floats are added in double and rounded
// once, integers wrap, AVG divides the sum (integers: towards zero, as NCCL), MAX and MIN pass over
// NaN where there is a number. Inputs of premul_sum are multiplied already (premultiply()).
// One input gives what reduce_uniform() gives. to: count elements, none of the inputs.
void combine(const UniformReduction& reduction, std::span<const std::byte* const> inputs,
             std::span<const std::uint32_t> weights, std::byte* to, std::int64_t count);

// What a rank does with its own data before they are reduced: nothing but for premul_sum.
void premultiply(const UniformReduction& reduction, std::byte* data, std::int64_t count);

}  // namespace prism::intercept
