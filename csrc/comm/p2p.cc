// Send/recv and what NCCL builds from it. NCCL has no cost model for these; ours takes its
// constants for one step of a ring, its rules for channels and protocols, and the profile's links.
#include <algorithm>
#include <cstddef>
#include <string>

#include "base/error.h"
#include "comm/channels.h"
#include "comm/model.h"
#include "comm/tuning.h"

namespace prism {
namespace {

constexpr std::int64_t ll_bytes_per_channel = 16384;
constexpr std::int64_t works_per_batch = 8;  // sends a channel works on side by side
constexpr std::int64_t part_bytes = 65536;   // least of a message that goes to a channel of its own

std::int64_t message_channels(std::int64_t bytes, std::int64_t per_peer) noexcept {
  const std::int64_t parts = bytes / part_bytes + (bytes % part_bytes != 0);
  return std::clamp<std::int64_t>(parts, 1, per_peer);
}

Protocol message_protocol(std::int64_t bytes, std::int64_t channels) noexcept {
  return bytes <= ll_bytes_per_channel * channels ? Protocol::ll : Protocol::simple;
}

double transfer_us(double bytes, Protocol protocol, bool same_node,
                   const ClusterProfile& cluster) noexcept {
  const double wire = protocol == Protocol::ll ? 2.0 : 1.0;
  const double gbps = same_node ? cluster.nvlink_gbps : cluster.nic_gbps;
  const Calibration& calibration = (same_node ? cluster.one_node : cluster.multi_node).calibration;
  const double efficiency = calibration.bandwidth_efficiency[static_cast<std::size_t>(protocol)];
  return bytes * wire / (1000.0 * gbps * efficiency);
}

// Start-up is paid once; each further step on the critical path is one hop.
double hop_us(Protocol protocol, bool same_node, const ClusterProfile& cluster) noexcept {
  const auto ring = static_cast<std::size_t>(Algorithm::ring);
  const auto p = static_cast<std::size_t>(protocol);
  if (!same_node) {
    return tuning::net_latency[ring][p] + cluster.p2p_inter_latency_us +
           cluster.network_latency_us * (protocol == Protocol::simple ? 2 : 1);
  }
  const auto& local =
      cluster.intra_link == IntraLink::nvlink ? tuning::nvlink_latency : tuning::pci_latency;
  return local[ring][p] + cluster.p2p_intra_latency_us;
}

}  // namespace

double p2p_latency_us(Protocol protocol, bool same_node, const ClusterProfile& cluster) noexcept {
  const auto ring = static_cast<std::size_t>(Algorithm::ring);
  return tuning::base_latency[ring][static_cast<std::size_t>(protocol)] +
         hop_us(protocol, same_node, cluster);
}

CommCost p2p_cost(std::int64_t bytes, bool same_node, const ClusterProfile& cluster) {
  if (bytes < 0) {
    throw GraphError("send/recv: found " + std::to_string(bytes) + " bytes, expected 0 or more");
  }
  const std::int32_t per_peer =
      same_node ? cluster.p2p_channels_per_peer : cluster.p2p_channels_per_peer_multi_node;
  const std::int64_t channels = message_channels(bytes, per_peer);
  const Protocol protocol = message_protocol(bytes, channels);
  const double us = p2p_latency_us(protocol, same_node, cluster) +
                    transfer_us(static_cast<double>(bytes), protocol, same_node, cluster);
  return {Algorithm::p2p, protocol, static_cast<std::int32_t>(channels), nanoseconds(us)};
}

// Every rank (all_to_all) or the root (gather, scatter) exchanges bytes / N with each other rank;
// the share for itself does not touch the wire. NVLink and NIC run side by side, each at its own
// rate. A channel works on 8 messages at a time: the depth of that queue counts as hops.
CommCost grouped_cost(std::int64_t bytes, const CommShape& shape, const ClusterProfile& cluster) {
  const bool one_node = shape.nodes == 1;
  const std::int64_t message = bytes / shape.ranks + (bytes % shape.ranks != 0);
  const std::int64_t rank_channels = communicator_channels(Algorithm::p2p, shape, cluster);
  const std::int64_t per_peer =
      std::min<std::int64_t>(rank_channels, one_node ? cluster.p2p_channels_per_peer
                                                     : cluster.p2p_channels_per_peer_multi_node);
  const std::int64_t channels = message_channels(message, per_peer);
  const Protocol protocol = message_protocol(message, channels);
  const std::int64_t works = std::int64_t{shape.ranks} * channels;
  const std::int64_t depth = std::max<std::int64_t>(
      1, (works + rank_channels * works_per_batch - 1) / (rank_channels * works_per_batch));
  const double share = static_cast<double>(bytes) / shape.ranks;
  const double inside = share * (shape.max_ranks_per_node - 1);
  const double outside = share * (shape.ranks - shape.min_ranks_per_node);
  const double us = p2p_latency_us(protocol, one_node, cluster) +
                    static_cast<double>(depth - 1) * hop_us(protocol, one_node, cluster) +
                    std::max(transfer_us(inside, protocol, true, cluster),
                             one_node ? 0.0 : transfer_us(outside, protocol, false, cluster));
  return {Algorithm::p2p, protocol, static_cast<std::int32_t>(std::min(rank_channels, works)),
          nanoseconds(us)};
}

}  // namespace prism
