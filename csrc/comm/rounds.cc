#include "comm/rounds.h"

#include <bit>
#include <numeric>

namespace prism {

P2pRounds::P2pRounds(const NodeLayout& layout) : layout_(&layout), ranks_(layout.ranks()) {
  one_node_ = layout.nodes() == 1;
  if (one_node_) {
    group_ = ranks_;
  } else {
    group_ = 8;
    for (std::uint32_t node = 0; node < layout.nodes(); ++node) {
      group_ = std::gcd(group_, layout.size(node));
    }
  }
  const std::uint64_t groups = ranks_ / group_;
  const std::uint64_t span = std::bit_ceil(groups);
  distances_.reserve(groups);
  std::uint64_t distance = 0;
  for (std::uint64_t j = 0; j < span; ++j) {
    distance = (distance + j) & (span - 1);
    if (distance < groups) distances_.push_back(static_cast<std::uint32_t>(distance));
  }
}

std::uint32_t P2pRounds::send_to(std::uint32_t position, std::uint32_t round) const noexcept {
  const std::uint32_t index = layout_->index_of(position);
  const std::uint32_t groups = ranks_ / group_;
  const std::uint32_t group = (index / group_ + distances_[round / group_]) % groups;
  const std::uint32_t local = (index % group_ + round % group_) % group_;
  return layout_->at(group * group_ + local);
}

std::uint32_t P2pRounds::receive_from(std::uint32_t position, std::uint32_t round) const noexcept {
  const std::uint32_t index = layout_->index_of(position);
  const std::uint32_t groups = ranks_ / group_;
  const std::uint32_t group = (index / group_ + groups - distances_[round / group_]) % groups;
  const std::uint32_t local = (index % group_ + group_ - round % group_) % group_;
  return layout_->at(group * group_ + local);
}

std::uint32_t P2pRounds::base_channel(std::uint32_t round, std::uint32_t channels) const noexcept {
  const std::uint32_t base =
      one_node_ ? round : round / group_ * ((group_ + 7) / 8) + round % group_ / 8;
  std::uint32_t reversed = 0;
  for (std::uint32_t bit = 1, mirrored = std::bit_ceil(channels) / 2; mirrored > 0;
       bit *= 2, mirrored /= 2) {
    if ((base & bit) != 0) reversed |= mirrored;
  }
  return reversed % channels;
}

}  // namespace prism
