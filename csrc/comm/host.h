// Groups that communicate from host memory over the network (torch's gloo). A cluster profile has
// no figures of its own for them: a message costs what one between two nodes costs, over the NIC,
// wherever its ends are. The steps are those of gloo's algorithms.
#pragma once

#include <cstdint>
#include <string_view>

#include "comm/cluster.h"
#include "graph/op.h"

namespace prism {

// Communicators of such groups carry this in front of the name that a device's would have.
inline constexpr std::string_view host_group_mark = "gloo@";

constexpr bool is_host_group(std::string_view communicator) noexcept {
  return communicator.substr(0, host_group_mark.size()) == host_group_mark;
}

// bytes: as an op counts them, the larger of the send and receive buffer of a rank (gather and
// scatter: of the root). An all_reduce of 0 bytes is a barrier.
std::int64_t host_duration_ns(OpKind kind, std::int64_t bytes, std::uint32_t ranks,
                              const ClusterProfile& cluster);

}  // namespace prism
