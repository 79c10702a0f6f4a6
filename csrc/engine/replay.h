// Replays an execution graph in virtual time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/cluster.h"
#include "cost/device_profile.h"
#include "graph/graph.h"

namespace prism {

struct SlowRank {
  std::uint32_t rank = 0;
  double factor = 1.0;                          // multiplies kernel durations
  std::int64_t from_ns = 0, to_ns = INT64_MAX;  // of the rank's device time
};

struct ReplayOptions {
  std::uint32_t threads = 1;  // results do not depend on it
  std::vector<SlowRank> slow_ranks;
  const ClusterProfile* cluster = nullptr;    // set: communication is costed anew
  const DeviceProfile* device = nullptr;      // set: kernels are costed anew
  std::vector<std::uint32_t> timeline_ranks;  // record intervals of these
};

// Adds up exactly: compute + exposed_communication + waiting + host + idle = the rank's span of the
// iteration.
struct TimeSplit {
  std::int64_t compute_ns = 0;        // union of kernel and copy intervals
  std::int64_t communication_ns = 0;  // union of transfers, overlapped or not, without waiting
  std::int64_t exposed_communication_ns = 0;  // transfers outside compute
  std::int64_t waiting_ns = 0;                // own arrival to start, outside compute
  std::int64_t host_ns = 0;                   // device idle because the host is behind
  std::int64_t idle_ns = 0;                   // the rest
};

struct RankReplay {
  std::uint32_t rank = 0;
  std::vector<TimeSplit> iterations;
  std::vector<std::int64_t> iteration_end_ns;
};

struct Interval {
  std::uint32_t rank = 0;
  std::uint16_t stream = 0;          // 65535: the host
  std::uint64_t op = 0;              // index into the graph's ops
  std::uint32_t block_position = 0;  // position of the block in the rank's program
  std::int64_t arrive_ns = 0, start_ns = 0, end_ns = 0;
};

struct ReplayResult {
  std::vector<std::int64_t> iteration_time_ns;
  std::vector<RankReplay> ranks;  // every rank of the graph, ascending
  std::int64_t peak_allocated_bytes = 0;
  std::uint32_t peak_rank = 0;
  std::uint64_t events = 0;  // ops that took effect, over all ranks
  std::vector<Interval> timeline;
  std::vector<std::string> warnings;
};

// DeadlockError, MismatchError: communicator, ranks, op number, call site.
ReplayResult replay(const Graph& graph, const ReplayOptions& options);

// Live bytes after each allocate and free of a rank, in program order, and their maximum.
struct MemoryCurve {
  std::vector<std::int64_t> live_bytes;
  std::int64_t peak_bytes = 0;
};
MemoryCurve memory_curve(const Graph& graph, std::uint32_t rank);

}  // namespace prism
