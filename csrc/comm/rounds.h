// NCCL's schedule of send/recv: in which round a rank meets which peer. All-to-all, gather and
// scatter are made of it. Ranks are grouped, groups meet by a triangular step (j (j + 1) / 2
// modulo a power of two visits every distance once), members of two groups by rotation.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/layout.h"

namespace prism {

class P2pRounds {
 public:
  explicit P2pRounds(const NodeLayout& layout);

  std::uint32_t rounds() const noexcept { return ranks_; }  // one a peer, itself included
  std::uint32_t group_size() const noexcept { return group_; }
  // Positions in the communicator. The layout must outlive this.
  std::uint32_t send_to(std::uint32_t position, std::uint32_t round) const noexcept;
  std::uint32_t receive_from(std::uint32_t position, std::uint32_t round) const noexcept;
  // First channel that the messages of a round use, of `channels`.
  std::uint32_t base_channel(std::uint32_t round, std::uint32_t channels) const noexcept;

 private:
  const NodeLayout* layout_;
  std::uint32_t ranks_ = 0;
  std::uint32_t group_ = 1;
  bool one_node_ = true;
  std::vector<std::uint32_t> distances_;  // between groups, in the order of rounds
};

}  // namespace prism
