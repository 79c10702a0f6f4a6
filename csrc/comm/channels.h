// How many channels a communicator has, how fast each is, and how many of them a message uses.
// The topology search itself is not run: its result for full nodes stands in the cluster profile;
// communicators that leave GPUs of a node out are derived from it as documented below.
#pragma once

#include <cstdint>

#include "comm/comm.h"

namespace prism {

// The channel graph that the bandwidth model of `algorithm` uses.
//   One node: rings and trees keep the graph (through an NVLink switch any subset of GPUs has its
//   full links). NVLS has one channel a head, so fewer GPUs mean fewer and faster channels, up to
//   the top of NCCL's speed table.
//   Several nodes: channels follow the GPUs' own NICs, so they shrink with the share of the node
//   that takes part, and are then split in two where NCCL's search does so (it duplicates graphs
//   of at least 25 GB/s a channel, but above sm80 not those below 50 GB/s with over 4 channels).
ChannelGraph channel_graph(Algorithm algorithm, const CommShape& shape,
                           const ClusterProfile& cluster);

// Channels of the communicator: twice the channels of the ring and tree graph (two trees), at most
// 64; twice again from sm90 on between nodes when rings are faster than 45 GB/s a channel and
// there are under 16. NVLS kinds: the profile's NVLS channels. p2p: per-rank channels.
std::int32_t communicator_channels(Algorithm algorithm, const CommShape& shape,
                                   const ClusterProfile& cluster);

// Channels that a collective of `bytes` really uses: fewer as long as a channel's threads would
// have less than their threshold of work.
std::int32_t channels_used(Algorithm algorithm, Protocol protocol, std::int64_t bytes,
                           const CommShape& shape, const ClusterProfile& cluster);

// NVLink multicast needs hardware for it, more than two GPUs a node and as many on every node.
bool has_nvls(const CommShape& shape, const ClusterProfile& cluster) noexcept;

}  // namespace prism
