#include "engine/replay.h"

#include "engine/replayer.h"

namespace prism {

ReplayResult replay(const Graph& graph, const ReplayOptions& options) {
  return engine::Replayer(graph, options).run();
}

ReplayResult emulate(const Graph& graph, const ReplayOptions& options, OutsideRanks& outside,
                     OnDivergence on_divergence) {
  return engine::Replayer(graph, options, &outside, on_divergence).run();
}

MemoryCurve memory_curve(const Graph& graph, std::uint32_t rank) {
  MemoryCurve curve;
  std::vector<Op> ops;
  std::int64_t live = 0;
  for (const std::uint32_t block : graph.program(graph.rank(rank).program).blocks) {
    ops.clear();
    graph.read_block(block, ops);
    for (const Op& op : ops) {
      if (op.kind == OpKind::allocate) {
        live += op.bytes;
      } else if (op.kind == OpKind::free) {
        live -= op.bytes;
      } else {
        continue;
      }
      curve.live_bytes.push_back(live);
      curve.peak_bytes = std::max(curve.peak_bytes, live);
    }
  }
  return curve;
}

}  // namespace prism
