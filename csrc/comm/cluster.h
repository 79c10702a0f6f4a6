// How nodes and links are wired: the figures of a cluster profile (TOML, read in Python). Where
// they come from stands beside each figure in python/prismcore/profiles/clusters/*.toml.
// GB/s = 1e9 bytes a second, one direction.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace prism {

// What NCCL's topology search reports for one family of algorithms ("nChannels 8, bw 45/45").
struct ChannelGraph {
  std::int32_t channels = 8;
  double intra_gbps = 40.0;  // per channel, inside a node
  double inter_gbps = 40.0;  // per channel, between nodes; of no meaning on one node
  friend bool operator==(const ChannelGraph&, const ChannelGraph&) = default;
};

// How measured transfers differ from NCCL's own model; per protocol LL, LL128, Simple. Scales
// durations, never the choice of algorithm. The defaults are NCCL's model as it is.
struct Calibration {
  std::array<double, 3> bandwidth_efficiency{1.0, 1.0, 1.0};  // share of the modelled bandwidth
  std::array<double, 3> extra_latency_us{};
  // A Simple ring fills and drains: its s steps take the time of s + this many.
  double ring_fill_steps = 0.0;
  friend bool operator==(const Calibration&, const Calibration&) = default;
};

struct ChannelGraphs {
  ChannelGraph ring;
  ChannelGraph tree;          // also PAT and CollNetChain
  ChannelGraph nvls;          // also NVLSTree and CollNetDirect; a channel is a head
  bool same_channels = true;  // every channel visits the ranks of a node in the same order
  Calibration calibration;
  friend bool operator==(const ChannelGraphs&, const ChannelGraphs&) = default;
};

// How a tree enters and leaves a node (ports on the chain of its ranks).
enum class TreePattern : std::uint8_t { tree, balanced, split };
enum class CpuVendor : std::uint8_t { intel, amd, other };
enum class IntraLink : std::uint8_t { nvlink, pci };

struct ClusterProfile {
  std::string name;
  std::uint32_t gpus_per_node = 8;
  std::int32_t compute_capability = 90;  // 10 * major + minor
  CpuVendor cpu = CpuVendor::intel;
  IntraLink intra_link = IntraLink::nvlink;
  TreePattern tree_pattern = TreePattern::balanced;
  // Graphs of communicators that fill their nodes. Those with fewer ranks a node: channels.h.
  ChannelGraphs one_node;
  ChannelGraphs multi_node;
  double network_latency_us = 0.0;  // NIC latency, added to each step between nodes
  bool ll128 = true;                // NCCL allows its LL128 protocol on this wiring
  bool nvls = true;                 // NVLink multicast inside a node
  bool collnet = false;             // reductions in the network switches (SHARP)
  std::int32_t nvls_channels = 16;
  std::int32_t nvls_channels_multi_node = 16;

  // Point to point, and what is made of it: all-to-all, gather, scatter.
  double nvlink_gbps = 370.8;         // one GPU to others of its node
  double nic_gbps = 48.0;             // one GPU's share of the NICs
  double p2p_intra_latency_us = 0.0;  // added to NCCL's own constants
  double p2p_inter_latency_us = 0.0;
  std::int32_t p2p_channels = 32;  // per rank
  std::int32_t p2p_channels_per_peer = 32;
  std::int32_t p2p_channels_multi_node = 16;
  std::int32_t p2p_channels_per_peer_multi_node = 2;
  std::int64_t eager_bytes = 1 << 20;  // a send of at most this many bytes does not wait

  double overlap_slowdown = 1.0;  // kernel time under overlapping communication; 1.0: not modelled
};

}  // namespace prism
