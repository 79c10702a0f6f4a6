// How long things take: as recorded, or costed anew for another device or cluster.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/comm.h"
#include "engine/replay.h"
#include "engine/steps.h"
#include "graph/graph.h"

namespace prism::engine {

class Durations {
 public:
  Durations(const Graph& graph, const ReplayOptions& options);

  KernelTimes* kernel_times() noexcept { return kernels_.get(); }

  std::int64_t of(const Part& part, std::uint32_t communicator, std::uint32_t position) {
    return cluster_ == nullptr ? part.duration_ns : costed(part, communicator, position);
  }
  // Whether a send does not wait for its receiver.
  bool eager(const Part& part) const noexcept {
    return part.kind == OpKind::send && is_eager(part.bytes, eager_bytes_);
  }

 private:
  static constexpr std::uint32_t unknown = UINT32_MAX;

  std::int64_t costed(const Part& part, std::uint32_t communicator, std::uint32_t position);
  std::uint32_t shape_id(std::uint32_t communicator);
  std::int64_t& cached(std::uint32_t row, std::uint32_t content);

  const Graph& graph_;
  const ClusterProfile* cluster_;
  std::int64_t eager_bytes_;
  std::unique_ptr<KernelTimes> kernels_;
  std::vector<CommShape> shapes_;
  std::vector<bool> hosts_;                       // by shape: of a group in host memory
  std::vector<std::uint32_t> shape_ids_;          // by communicator
  std::vector<std::vector<std::int64_t>> cache_;  // rows: message far, message near, shapes; by
                                                  // content, -1 where not costed yet
};

}  // namespace prism::engine
