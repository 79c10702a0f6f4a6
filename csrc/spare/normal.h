// The standard normal distribution and the largest of n draws from it.
#pragma once

#include "spare/random_stream.h"

namespace prism::spare {

// z with P(Z > z) = tail, 0 < tail < 1: relative error about 1e-15 down to a tail of 1e-300.
double normal_quantile_above(double tail);

inline double normal_draw(RandomStream& stream) { return normal_quantile_above(stream.unit()); }

// The largest of `count` independent draws, from one uniform number: P(max <= z) = P(Z <= z)^count,
// so P(Z > max) = 1 - u^(1/count). Exact, not an approximation for large counts.
double largest_normal_draw(RandomStream& stream, double count);

}  // namespace prism::spare
