// Blocks as replay runs them: folded once per unique block, shared by all ranks and iterations.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/rank_clock.h"
#include "graph/graph.h"

namespace prism::engine {

enum class StepKind : std::uint8_t {
  segment,  // kernels of one stream, and synchronisations with it
  host,     // host time alone
  record,
  wait,
  sync_stream,
  sync_event,
  sync_device,
  callback,
  launch,     // communication
  iteration,  // mark
};

struct Kernel;
struct Part;

struct Step {
  StepKind kind = StepKind::host;
  bool kernel = false;  // segment of one kernel, not a copy or set
  std::uint16_t stream = 0;
  std::uint16_t event_stream = 0;  // wait, sync_event
  union {
    const Kernel* kernels = nullptr;  // segment
    const Part* parts;                // launch
  };
  std::uint32_t count = 0;  // of those; wait, sync_event: how many records ago
  std::uint32_t op = 0;     // within the block
  // segment: the folded kernels. Others: host_ns is spent first, busy_ns is a callback's time.
  Segment time;
};

// One op of a segment.
struct Kernel {
  static constexpr std::int64_t sync = -1;  // as duration: the host waits for the stream
  std::int64_t host_ns = 0;                 // since the op before
  std::int64_t duration_ns = 0;
};

// One communication op of a launch.
struct Part {
  OpKind kind = OpKind::all_reduce;
  DataType dtype = DataType::none;
  std::uint8_t detail = 0;
  std::uint8_t reserved_byte = 0;
  std::uint16_t stream = 0;
  std::uint16_t reserved_half = 0;
  std::uint32_t slot = 0;
  std::uint32_t peer = 0;
  std::uint32_t tag = 0;
  std::uint32_t content = 0;  // equal for parts that may meet
  std::uint32_t op = 0;       // within the block
  std::uint32_t reserved = 0;
  std::int64_t bytes = 0;
  std::int64_t duration_ns = 0;
  friend bool operator==(const Part&, const Part&) = default;
};
static_assert(std::has_unique_object_representations_v<Part>);

constexpr bool reduces(OpKind kind) noexcept {
  return kind == OpKind::all_reduce || kind == OpKind::reduce_scatter || kind == OpKind::reduce;
}
constexpr bool has_root(OpKind kind) noexcept {
  return kind == OpKind::broadcast || kind == OpKind::reduce || kind == OpKind::gather ||
         kind == OpKind::scatter;
}

// Sums of times (ns) and sizes (bytes) stay below this, or the graph is refused: no clock of a
// replay can overflow.
inline constexpr double too_much = 4.0e18;

// What does not depend on the rank that runs the block.
struct BlockFacts {
  std::uint32_t ops = 0;
  std::uint32_t iterations = 0;       // marks of that kind
  std::uint32_t records = 0;          // of events
  std::uint64_t compute_streams = 0;  // bit by stream; bit 63 stands for all from 63 on
  std::uint64_t transfer_streams = 0;
  bool callbacks = false;
  bool grouped = false;                  // a launch of more than one part
  std::int64_t live_bytes = 0;           // allocated minus freed
  std::int64_t peak_bytes = 0;           // largest of it on the way, at least 0
  std::array<double, 4> compute_ns{};    // kernels, copies and sets, by Provenance
  std::array<double, 4> transfer_ns{};   // communication as recorded
  double total_ns = 0, total_bytes = 0;  // to rule out overflow
};

// Durations of kernels and copies, recorded or costed anew.
class KernelTimes {
 public:
  virtual ~KernelTimes() = default;
  // Sets duration and provenance of a kernel, copy or set.
  virtual void apply(Op& op) = 0;
};

struct Steps {
  std::vector<Step> steps;
  std::vector<Kernel> kernels;
  std::vector<Part> parts;
  std::vector<std::uint64_t> begin;  // by block, and one past the last
  std::vector<BlockFacts> facts;     // by block
  std::vector<std::uint32_t> rings;  // by stream: how many records back an op may look
  std::uint32_t streams = 1;

  std::span<const Step> of(std::uint32_t block) const noexcept {
    return {steps.data() + begin[block], steps.data() + begin[block + 1]};
  }
};

// What members of a communicator must agree on: kind, dtype, reduction, root, bytes.
class Contents {
 public:
  std::uint32_t id(const Part& part);

 private:
  struct Key {
    std::uint64_t what = 0;
    std::int64_t bytes = 0;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& k) const noexcept;
  };
  std::unordered_map<Key, std::uint32_t, KeyHash> ids_;
};

// Folds the blocks for which `wanted` is set (all if it is empty). folded false: one step an op,
// for ranks whose kernels change or are shown one by one.
// GraphError for ops that cannot be: negative times, an event distance of 0.
Steps fold(const Graph& graph, std::span<const std::uint8_t> wanted, bool folded,
           Contents& contents, KernelTimes* times);
// The same for one block that is not in a graph: block 0 of the result.
Steps fold_ops(std::span<const Op> ops, bool folded, Contents& contents);

}  // namespace prism::engine
