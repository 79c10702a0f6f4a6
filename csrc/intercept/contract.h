// The uniform ghost contract: what a collective with absent members leaves in a rank's memory.
// Every absent member behaves as if it held this rank's own data: SUM = n x, PROD = x^n,
// AVG = MAX = MIN = x, gathers repeat the own data, all-to-all keeps it by position, and what only
// another rank could know reads as zero.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "graph/op.h"

namespace prism::intercept {

struct UniformReduction {
  DataType dtype = DataType::float32;
  Reduction op = Reduction::sum;
  std::uint32_t ranks = 1;
  std::array<std::byte, 8> scalar{};  // premul_sum: one element of dtype
};

// NCCL 2.24 and later reduce the two 8-bit float types, and only where the device can (sm_90).
// `why` names what is wrong; nullptr: legal.
const char* why_illegal(DataType dtype, std::int32_t compute_capability) noexcept;

// from and to: count elements, the same memory or disjoint.
void reduce_uniform(const UniformReduction& reduction, const void* from, void* to,
                    std::int64_t count);
// Fills `to` with `from`, over and over; with zeros where there is no `from`. `from` may be one of
// its own places inside `to`.
void spread(const void* from, std::int64_t from_bytes, void* to, std::int64_t to_bytes);
bool is_zero(const void* data, std::int64_t bytes) noexcept;

}  // namespace prism::intercept
