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
std::optional<std::vector<std::uint32_t>> announced_members(int color);

}  // namespace prism::intercept
