// Golomb rulers: marks whose pairwise differences all differ.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spare/poll.h"

namespace prism::spare {

// Up to this many marks the shortest ruler is known and stands as data.
inline constexpr std::int32_t kLargestOptimalRuler = 28;
// Rulers longer than this are not built: no fleet has so many groups.
inline constexpr std::int32_t kLargestRuler = 512;

// `marks` >= 1 ascending marks from 0: the shortest ruler up to kLargestOptimalRuler, beyond it the
// shortest that the constructions of Singer, Bose and Chowla, and Ruzsa give within a bounded
// search. Throws SpareError above kLargestRuler.
std::vector<std::int32_t> golomb_ruler(std::int32_t marks);

// A modular ruler made for exactly this modulus (a whole construction, of which the first `marks`
// are taken), or empty where none is.
std::vector<std::int32_t> exact_modular_ruler(std::int32_t marks, std::int32_t modulus);

// Whether the differences of any two marks differ modulo `modulus`, both directions counted: shifts
// of the ruler around a circle of that many groups then meet at most once.
bool distinct_differences(std::span<const std::int32_t> ruler, std::int32_t modulus);

// The ruler of `marks` marks that a circle of `groups` holds, or empty.
std::vector<std::int32_t> ruler_for(std::int32_t groups, std::int32_t marks);

// Every ruler of `marks` marks at hand that a circle of `groups` holds, the one of ruler_for first;
// at most some dozens.
std::vector<std::vector<std::int32_t>> rulers_for(std::int32_t groups, std::int32_t marks);

// Up to `marks` marks that lie all over a circle of `groups`, 0 first, their differences distinct
// modulo `groups`: as many of them as a bounded, seeded search finds.
std::vector<std::int32_t> spread_ruler(std::int32_t groups, std::int32_t marks, Pulse& pulse);

// From this many groups on every circle holds a ruler of `marks` marks: 2 * length + 1.
std::int32_t groups_needed(std::int32_t marks);
// The most marks that a circle of `groups` holds, as far as ruler_for knows. `poll` is called
// meanwhile, and what it throws ends the search.
std::int32_t largest_redundancy(std::int32_t groups, const Poll& poll = {});

}  // namespace prism::spare
