#include "comm/host.h"

#include <algorithm>
#include <bit>

#include "comm/comm.h"

namespace prism {

std::int64_t host_duration_ns(OpKind kind, std::int64_t bytes, std::uint32_t ranks,
                              const ClusterProfile& cluster) {
  const auto messages = [&](std::int64_t count, std::int64_t size) {
    const std::int64_t one = p2p_cost(size, false, cluster).duration_ns;
    constexpr std::int64_t longest = std::int64_t{1} << 53;
    return one > longest / std::max<std::int64_t>(count, 1) ? longest : count * one;
  };
  if (is_point_to_point(kind)) return messages(1, bytes);
  if (ranks < 2) return 0;
  const std::int64_t others = std::int64_t{ranks} - 1;
  const std::int64_t rounds = std::bit_width(ranks - 1);  // log2, rounded up
  const std::int64_t chunk = bytes / ranks + (bytes % ranks != 0);
  switch (kind) {
    case OpKind::all_reduce:  // a ring, there and back; a barrier: dissemination
      return bytes == 0 ? messages(rounds, 0) : messages(2 * others, chunk);
    case OpKind::reduce:
      return messages(2 * others, chunk);
    case OpKind::broadcast:  // a binomial tree
      return messages(rounds, bytes);
    case OpKind::gather:  // the root receives from one after the other
    case OpKind::scatter:
    case OpKind::all_gather:  // a ring; all_to_all: in pairs
    case OpKind::all_to_all:
    case OpKind::reduce_scatter:
    default:
      return messages(others, chunk);
  }
}

}  // namespace prism
