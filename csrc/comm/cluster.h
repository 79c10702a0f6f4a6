// How nodes and links are wired: the figures of a cluster profile (TOML, read in Python).
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace prism {

struct ClusterProfile {
  std::string name;
  std::uint32_t gpus_per_node = 8;
  std::int32_t compute_capability = 90;  // 10 * major + minor
  // Per channel graph, as NCCL's topology pass would report it (GB/s = 1e9 bytes a second).
  std::int32_t channels = 16;
  double intra_gbps = 40.0;         // per channel, inside a node
  double inter_gbps = 40.0;         // per channel, between nodes
  double network_latency_us = 0.0;  // added to each inter-node step
  bool nvls = true;                 // NVLink multicast inside a node
  std::int32_t nvls_channels = 16;
  // Point to point.
  double nvlink_gbps = 450.0;  // one direction, one GPU
  double nic_gbps = 50.0;      // one direction, one GPU's share of the rails
  double p2p_intra_latency_us = 0.0;
  double p2p_inter_latency_us = 0.0;
  std::int64_t eager_bytes = 0;   // a send of at most this many bytes does not wait for its receive
  double overlap_slowdown = 1.0;  // kernel time under overlapping communication; 1.0: not modelled
};

}  // namespace prism
