#include "engine/durations.h"

#include <optional>

#include "comm/host.h"
#include "cost/cost.h"

namespace prism::engine {
namespace {

class CostedKernels : public KernelTimes {
 public:
  CostedKernels(const Graph& graph, const DeviceProfile& device, bool host)
      : graph_(graph), device_(device), host_(host), kernels_(graph.num_kernels()) {}

  void apply(Op& op) override {
    // None: another part of a launch, or memory that torch's own threads gave back.
    if (host_ && op.host_ns != 0) op.host_ns = host_cost_ns(op.kind, device_.host);
    switch (op.kind) {
      case OpKind::kernel: {
        std::optional<KernelCost>& cost = kernels_[op.ref];
        if (!cost)
          cost = kernel_cost(graph_.kernel_name(op.ref), graph_.kernel_shape(op.ref), device_);
        return set(op, cost->duration_ns, cost->provenance);
      }
      case OpKind::copy:
        return set(op, copy_cost_ns(op.bytes, static_cast<CopyDirection>(op.detail), device_),
                   Provenance::model);
      case OpKind::set:
        return set(op, set_cost_ns(op.bytes, device_), Provenance::model);
      default:
        return;
    }
  }

 private:
  static void set(Op& op, std::int64_t duration, Provenance provenance) noexcept {
    op.duration_ns = duration;
    op.flags = static_cast<std::uint8_t>((op.flags & ~Op::provenance_mask) |
                                         static_cast<std::uint8_t>(provenance));
  }

  const Graph& graph_;
  const DeviceProfile& device_;
  bool host_;
  std::vector<std::optional<KernelCost>> kernels_;
};

}  // namespace

Durations::Durations(const Graph& graph, const ReplayOptions& options)
    : graph_(graph),
      cluster_(options.cluster),
      eager_bytes_(options.cluster == nullptr ? options.eager_bytes
                                              : options.cluster->eager_bytes) {
  if (options.device != nullptr) {
    kernels_ = std::make_unique<CostedKernels>(graph, *options.device, options.host);
  }
  if (cluster_ != nullptr) {
    shape_ids_.assign(graph.num_communicators(), unknown);
    cache_.resize(2);
  }
}

std::int64_t& Durations::cached(std::uint32_t row, std::uint32_t content) {
  std::vector<std::int64_t>& durations = cache_[row];
  if (content >= durations.size()) durations.resize(content + std::size_t{1}, -1);
  return durations[content];
}

std::uint32_t Durations::shape_id(std::uint32_t communicator) {
  std::uint32_t& id = shape_ids_[communicator];
  if (id == unknown) {
    const CommShape shape = shape_of(graph_.communicator(communicator).members, *cluster_);
    const bool host = is_host_group(graph_.communicator(communicator).name);
    id = 0;
    while (id < shapes_.size() && (shapes_[id] != shape || hosts_[id] != host)) ++id;
    if (id == shapes_.size()) {
      shapes_.push_back(shape);
      hosts_.push_back(host);
      cache_.emplace_back();
    }
  }
  return id;
}

std::int64_t Durations::costed(const Part& part, std::uint32_t communicator,
                               std::uint32_t position) {
  if (is_point_to_point(part.kind)) {
    const auto members = graph_.communicator(communicator).members;
    if (is_host_group(graph_.communicator(communicator).name)) {
      return host_duration_ns(part.kind, part.bytes, 2, *cluster_);
    }
    const std::size_t peer = (std::size_t{position} + part.peer) % members.size();
    const std::uint32_t node = cluster_->gpus_per_node;
    const bool near = node != 0 && members[position] / node == members[peer] / node;
    std::int64_t& duration = cached(near ? 1 : 0, part.content);
    if (duration < 0) duration = p2p_cost(part.bytes, near, *cluster_).duration_ns;
    return duration;
  }
  const std::uint32_t shape = shape_id(communicator);
  std::int64_t& duration = cached(2 + shape, part.content);
  if (duration < 0 && hosts_[shape]) {
    duration = host_duration_ns(part.kind, part.bytes, shapes_[shape].ranks, *cluster_);
  } else if (duration < 0) {
    duration = collective_cost(part.kind, part.bytes, part.dtype,
                               static_cast<Reduction>(part.detail), shapes_[shape], *cluster_)
                   .duration_ns;
  }
  return duration;
}

}  // namespace prism::engine
