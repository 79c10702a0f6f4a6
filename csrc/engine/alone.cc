#include "engine/alone.h"

#include <algorithm>
#include <span>

#include "engine/rank_clock.h"

namespace prism {
namespace {

class Alone {
 public:
  void run(std::span<const Op> block) {
    for (std::size_t i = 0; i < block.size(); ++i) {
      const Op& op = block[i];
      clock_.ensure(std::max(op.stream, op.event_stream));
      if (op.kind >= OpKind::all_reduce) {
        i = launch(block, i);
      } else {
        apply(op);
      }
    }
  }
  std::vector<std::int64_t> ends;

 private:
  void apply(const Op& op) {
    clock_.spend(op.host_ns);
    switch (op.kind) {
      case OpKind::host_gap:
        return clock_.spend(op.duration_ns);
      case OpKind::kernel:
      case OpKind::copy:
      case OpKind::set:
        clock_.run(op.stream, op.duration_ns);
        if (op.is_blocking()) clock_.sync_stream(op.stream);
        return;
      case OpKind::host_callback:
        clock_.run(op.stream, op.duration_ns);
        return;
      case OpKind::event_record:
        if (records_.size() <= op.stream) records_.resize(op.stream + std::size_t{1});
        records_[op.stream].push_back(clock_.record(op.stream));
        return;
      case OpKind::event_wait:
      case OpKind::event_sync:
        return event(op);
      case OpKind::stream_sync:
        return clock_.sync_stream(op.stream);
      case OpKind::device_sync:
        return clock_.sync_device();
      case OpKind::mark:
        if (op.detail == static_cast<std::uint8_t>(MarkKind::iteration)) {
          ends.push_back(clock_.latest());
        }
        return;
      default:
        return;
    }
  }

  void event(const Op& op) {
    if (op.event_stream >= records_.size()) return;
    const auto& times = records_[op.event_stream];
    if (op.peer == 0 || op.peer > times.size()) return;
    const std::int64_t time = times[times.size() - op.peer];
    if (op.kind == OpKind::event_wait) {
      clock_.wait(op.stream, time);
    } else {
      clock_.sync_event(time);
    }
  }

  // The parts of one launch, from `first` on; returns the last.
  std::size_t launch(std::span<const Op> block, std::size_t first) {
    std::size_t last = first;
    while (block[last].continues() && last + 1 < block.size()) ++last;
    const auto parts = block.subspan(first, last - first + 1);
    std::int64_t ready = 0, duration = 0;
    bool blocks = false;
    for (const Op& part : parts) {
      clock_.ensure(part.stream);
      clock_.spend(part.host_ns);
      duration = std::max(duration, part.duration_ns);
      blocks |= part.is_blocking();
    }
    for (const Op& part : parts) ready = std::max(ready, clock_.ready(part.stream));
    for (const Op& part : parts) clock_.finish(part.stream, ready + duration);
    if (blocks) clock_.host_at_least(ready + duration);
    return last;
  }

  RankClock clock_;
  std::vector<std::vector<std::int64_t>> records_;  // times by stream
};

}  // namespace

std::vector<std::int64_t> iteration_ends_alone(const Graph& graph, std::uint32_t rank) {
  Alone alone;
  std::vector<Op> ops;
  for (const std::uint32_t block : graph.program(graph.rank(rank).program).blocks) {
    ops.clear();
    graph.read_block(block, ops);
    alone.run(ops);
  }
  return std::move(alone.ends);
}

}  // namespace prism
