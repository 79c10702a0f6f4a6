// Replays an execution graph in virtual time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/cluster.h"
#include "cost/device_profile.h"
#include "engine/failure.h"
#include "engine/perturbation.h"
#include "graph/graph.h"

namespace prism {

struct ReplayOptions {
  std::uint32_t threads = 1;  // results do not depend on it
  Perturbation perturbation;
  const ClusterProfile* cluster = nullptr;  // set: communication is costed anew
  const DeviceProfile* device = nullptr;    // set: kernels are costed anew
  bool host = false;  // with a device: host time of calls too, where an op has any
  // By what neighbours over slow links are found; null: by `cluster`.
  const ClusterProfile* wiring = nullptr;
  // A send of at most this many bytes does not wait for its receiver; a cluster brings its own.
  std::int64_t eager_bytes = 0;
  std::vector<std::uint32_t> timeline_ranks;  // record intervals of these
  // Ranks that cannot go on, for a deadlock or a mismatch, are a result like that of ranks that
  // fail: what came until then, and who waits.
  bool keep_stuck = false;
};

// Adds up exactly: compute + exposed_communication + waiting + host + idle = the rank's span of the
// iteration. Each instant counts as the first of these that holds.
struct TimeSplit {
  std::int64_t compute_ns = 0;        // union of kernel, copy and set intervals
  std::int64_t communication_ns = 0;  // union of transfers, overlapped or not, without waiting
  std::int64_t exposed_communication_ns = 0;  // transfers outside compute
  std::int64_t waiting_ns = 0;                // own arrival to start, outside both
  std::int64_t host_ns = 0;                   // nothing runs and nothing waits: the host is behind
  std::int64_t idle_ns = 0;                   // the rest: streams held by host callbacks
  friend bool operator==(const TimeSplit&, const TimeSplit&) = default;
};

struct Interval {
  std::uint32_t rank = 0;
  std::uint16_t stream = 0;          // 65535: the host
  std::uint64_t op = 0;              // index into the graph's ops
  std::uint32_t block_position = 0;  // position of the block in the rank's program
  std::int64_t arrive_ns = 0, start_ns = 0, end_ns = 0;
  friend bool operator==(const Interval&, const Interval&) = default;
};

// A rank outside that asked whether work was done more or less often than it recorded: each poll
// costs its host time, so that it may take another time than in the replay.
struct OddPolls {
  std::uint32_t rank;
  std::uint64_t asked, recorded;
  std::uint64_t op;  // before which the numbers first differed, queries left out
};

struct ReplayResult {
  // Iterations that every rank ends. No iteration marks at all: the whole program is one.
  std::uint32_t iterations = 0;
  std::vector<std::int64_t> iteration_time_ns;
  std::vector<std::uint32_t> ranks;                // of the graph, ascending
  std::vector<TimeSplit> splits;                   // [rank][iteration]
  std::vector<std::int64_t> iteration_end_ns;      // [rank][iteration]
  std::vector<std::int64_t> peak_allocated_bytes;  // [rank], of the allocate/free curve
  // Ops that took effect, over all ranks; of ranks that did not end their programs, those that
  // their hosts issued. Their peaks and device times likewise.
  std::uint64_t events = 0;
  // Device time (kernels, copies, transfers) of the whole programs over all ranks, by Provenance.
  std::array<double, 4> device_time_ns{};
  std::vector<Interval> timeline;  // by rank, then start
  // [rank outside] by which its process was behind its host clock, in all; wall clock only.
  std::vector<std::int64_t> late_ns;
  std::vector<std::string> warnings;
  std::vector<std::uint32_t> diverged;  // outside ranks that left their recorded program
  std::vector<OddPolls> odd_polls;      // of outside ranks that did not
  // Where ranks are to fail, or cannot go on and that is to be a result.
  std::optional<FailureReport> failure;
};

// With ranks that fail, a job that cannot go on without them is a result, of the iterations that
// all ranks ended. DeadlockError, MismatchError: communicator, ranks, op number, call site.
// GraphError: ranks that others meet are not in the graph, or an op cannot be.
ReplayResult replay(const Graph& graph, const ReplayOptions& options);

// Live bytes after each allocate and free of a rank, in program order, and their maximum.
struct MemoryCurve {
  std::vector<std::int64_t> live_bytes;
  std::int64_t peak_bytes = 0;
};
MemoryCurve memory_curve(const Graph& graph, std::uint32_t rank);

}  // namespace prism
