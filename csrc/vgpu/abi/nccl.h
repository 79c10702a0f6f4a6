// What NCCL passes over its C boundary (2.30.7, the version torch 2.14.1 pins), in our own words:
// values, sizes and offsets are checked against the vendor's header by
// tests/abi/nccl.cc.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace prism::abi::nccl {

inline constexpr int version = 23007;

enum Result : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
  timeout = 8,
};

// Data types are numbered as prism::DataType.
inline constexpr int num_types = 12;

// Built-in reductions are numbered as prism::Reduction up to avg; then come created ones.
inline constexpr int num_builtin_reductions = 5;
inline constexpr int max_reduction = 0x7fffffff;

enum ScalarResidence : int { scalar_device = 0, scalar_host_immediate = 1 };

struct UniqueId {
  char internal[128];
};

inline constexpr int undefined_int = INT_MIN;
inline constexpr int split_no_color = -1;
inline constexpr unsigned config_magic = 0xcafebeef;

// Append-only: a caller built against another version declares another `size`. Only the first
// min(size, sizeof) bytes may be read.
struct Config {
  std::size_t size = 0;
  unsigned magic = 0;
  unsigned version = 0;
  int blocking = undefined_int;
  int cga_cluster_size = undefined_int;
  int min_ctas = undefined_int;
  int max_ctas = undefined_int;
  const char* network = nullptr;
  int split_share = undefined_int;
  int traffic_class = undefined_int;
  const char* name = nullptr;  // torch: "<group description>:<group uid>"
  int collnet_enable = undefined_int;
  int cta_policy = undefined_int;
  int shrink_share = undefined_int;
  int nvls_ctas = undefined_int;
  int channels_per_net_peer = undefined_int;
  int nvlink_centric = undefined_int;
  int graph_usage_mode = undefined_int;
  int num_rma_contexts = undefined_int;
  int max_p2p_peers = undefined_int;
  int graph_stream_ordering = undefined_int;
};

struct SimInfo {
  std::size_t size;
  unsigned magic;
  unsigned version;
  float estimated_time;
};
inline constexpr unsigned sim_info_magic = 0x74685283;

}  // namespace prism::abi::nccl
