// Who will be in a split. NCCL's members tell each other (colour, key); absent ghosts cannot, so
// whoever creates the group in the framework announces it before the split is called.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace prism::intercept {

// World ranks in order of position. A later announcement of a colour replaces an earlier one.
void announce_split(int color, std::span<const std::uint32_t> members);
// For the next split, whatever its colour: where the framework picks the colour out of our sight.
void announce_next_split(std::span<const std::uint32_t> members);
// Asked once by every split, also by one without a colour (nobody's members).
std::optional<std::vector<std::uint32_t>> take_members(int color);

}  // namespace prism::intercept
