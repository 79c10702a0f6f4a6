// Device work of a rank: kernels, copies as ops, communication.
#include <algorithm>
#include <utility>

#include "comm/host.h"
#include "vgpu/device/impl.h"

namespace prism::vgpu {

KernelInfo Session::Impl::make_kernel(std::string_view name, const KernelShape& shape) {
  const KernelCost cost = kernel_cost(name, shape, options.device);
  KernelInfo kernel;
  kernel.shape = shape;
  kernel.duration_ns = cost.duration_ns;
  kernel.provenance = cost.provenance;
  kernel.id = recorder->kernel(name, shape);
  if (port != nullptr) {
    if (kernel.id >= kernel_identities.size()) kernel_identities.resize(kernel.id + std::size_t{1});
    kernel_identities[kernel.id] = kernel_identity(name, shape);
  }
  return kernel;
}

void Session::Impl::run_kernel(Stream& stream, KernelInfo& kernel) {
  ++kernel.launches;
  order_default(stream);
  stream.waited = false;
  Op op;
  op.kind = OpKind::kernel;
  op.flags = static_cast<std::uint8_t>(kernel.provenance);
  op.ref = kernel.id;
  op.stream = index_of(stream);
  op.duration_ns = kernel.duration_ns;
  run(op);
}

void Session::kernel(void* stream, std::string_view name, const KernelShape& shape) {
  Impl& impl = *impl_;
  if (!impl.recording()) return;
  const std::lock_guard lock(impl.mutex);
  Stream* s = impl.find_stream(stream);
  if (s == nullptr || !impl.active) return;
  const std::uint32_t id = impl.recorder->kernel(name, shape);
  impl.run_kernel(*s, impl.kernels.of_id(id, name, [&] { return impl.make_kernel(name, shape); }));
}

bool Session::launch(void* stream, const void* function, KernelShape shape,
                     const void* const* arguments) {
  Impl& impl = *impl_;
  if (!impl.recording()) return true;
  const std::lock_guard lock(impl.mutex);
  Stream* s = impl.find_stream(stream);
  if (s == nullptr || !impl.active) return true;
  const KernelTable::Function* known = impl.kernels.function(function);
  if (known == nullptr) return false;
  if (arguments != nullptr && known->counts.tells()) known->counts.read(arguments, shape);
  KernelInfo* kernel = impl.kernels.find(function, shape);
  if (kernel == nullptr) {
    KernelInfo made = impl.make_kernel(known->name, shape);
    made.address = function;
    kernel = &impl.kernels.insert(made, known->name);
  }
  impl.run_kernel(*s, *kernel);
  return true;
}

void Session::copy(void* stream, std::int64_t bytes, CopyDirection direction, bool host_waits) {
  Impl& impl = *impl_;
  if (!impl.recording()) return;
  const std::lock_guard lock(impl.mutex);
  Stream* s = impl.find_stream(stream);
  if (s == nullptr || !impl.active) return;
  impl.order_default(*s);
  Op op;
  op.kind = OpKind::copy;
  op.flags = static_cast<std::uint8_t>(Provenance::model);
  if (host_waits) op.flags |= Op::blocking;
  op.detail = static_cast<std::uint8_t>(direction);
  op.stream = impl.index_of(*s);
  op.duration_ns = copy_cost_ns(bytes, direction, impl.options.device);
  op.bytes = bytes;
  impl.run(op);
}

void Session::set(void* stream, std::int64_t bytes) {
  Impl& impl = *impl_;
  if (!impl.recording()) return;
  const std::lock_guard lock(impl.mutex);
  Stream* s = impl.find_stream(stream);
  if (s == nullptr || !impl.active) return;
  impl.order_default(*s);
  Op op;
  op.kind = OpKind::set;
  op.flags = static_cast<std::uint8_t>(Provenance::model);
  op.stream = impl.index_of(*s);
  op.duration_ns = set_cost_ns(bytes, impl.options.device);
  op.bytes = bytes;
  impl.run(op);
}

std::uint32_t Session::add_communicator(OpenCommunicator communicator) {
  const std::lock_guard lock(impl_->mutex);
  Communicator added;
  added.open = std::move(communicator);
  added.open.slot = static_cast<std::uint32_t>(impl_->communicators.size());
  if (impl_->recorder != nullptr) {
    const std::uint32_t slot =
        impl_->recorder->add_communicator(added.open.name, added.open.size, added.open.position);
    PRISM_CHECK(slot == added.open.slot);
  }
  impl_->communicators.push_back(std::move(added));
  return impl_->communicators.back().open.slot;
}

void Session::set_members(std::uint32_t slot, std::span<const std::uint32_t> members) {
  const std::lock_guard lock(impl_->mutex);
  PRISM_CHECK(slot < impl_->communicators.size());
  Communicator& communicator = impl_->communicators[slot];
  communicator.members.assign(members.begin(), members.end());
}

void Session::Impl::know_members(Communicator& communicator) {
  if (communicator.members.empty()) {
    // Consecutive ranks around this one, kept inside the world: right for the world itself and
    // for tensor-parallel groups, and said in the report.
    communicator.guessed = true;
    const std::uint32_t size = communicator.open.size;
    const std::uint32_t world = std::max(options.world_size, size);
    std::uint32_t first = options.rank - std::min(options.rank, communicator.open.position);
    first = std::min(first, world - size);
    std::vector<std::uint32_t> consecutive(size);
    for (std::uint32_t i = 0; i < size; ++i) consecutive[i] = first + i;
    communicator.shape = shape_of(consecutive, options.cluster);
  } else {
    communicator.shape = shape_of(communicator.members, options.cluster);
  }
  communicator.ready = true;
  communicator.identity = communicator_identity(communicator.open.name, communicator.members);
  communicator.company = company_of(communicator);
  if (is_host_group(communicator.open.name)) return;  // it has no buffers on the device
  communicator_bytes += prism::communicator_bytes(communicator.shape, options.cluster);
  peak_device_bytes = std::max(peak_device_bytes, held(0));
}

std::int64_t Session::Impl::duration_of(const Op& op) {
  const Communicator& communicator = communicators[op.ref];
  if (is_host_group(communicator.open.name)) {
    return host_duration_ns(op.kind, op.bytes, communicator.open.size, options.cluster);
  }
  if (!is_point_to_point(op.kind)) {
    if (op.bytes == 0) return 0;  // NCCL launches nothing
    return collective_cost(op.kind, op.bytes, op.dtype, static_cast<Reduction>(op.detail),
                           communicator.shape, options.cluster)
        .duration_ns;
  }
  const std::uint32_t size = communicator.open.size;
  const std::uint32_t peer = (communicator.open.position + op.peer) % size;
  const std::uint32_t peer_rank = communicator.members.empty()
                                      ? options.rank - communicator.open.position + peer
                                      : communicator.members[peer];
  const std::uint32_t node = std::max(options.cluster.gpus_per_node, 1U);
  return p2p_cost(op.bytes, peer_rank / node == options.rank / node, options.cluster).duration_ns;
}

std::uint64_t Session::communicate(void* stream, std::span<Op> parts) {
  Impl& impl = *impl_;
  if (!impl.recording() || parts.empty()) return 0;
  std::unique_lock lock(impl.mutex);
  for (const Op& part : parts) {
    PRISM_CHECK(part.ref < impl.communicators.size());
    Communicator& communicator = impl.communicators[part.ref];
    if (communicator.ready) continue;
    if (communicator.members.empty() && impl.member_source) {
      const OpenCommunicator open = communicator.open;
      const MemberSource source = impl.member_source;
      lock.unlock();
      std::vector<std::uint32_t> members = source(open);
      lock.lock();
      if (members.size() != open.size) members.clear();  // not this communicator's: not known
      impl.communicators[part.ref].members = std::move(members);
    }
    impl.know_members(impl.communicators[part.ref]);
  }
  Stream* s = impl.find_stream(stream);
  if (s == nullptr || !impl.active) return 0;
  impl.order_default(*s);
  const std::uint16_t index = impl.index_of(*s);
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Op& part = parts[i];
    part.flags =
        static_cast<std::uint8_t>(part.flags & ~(Op::provenance_mask | Op::group_continues));
    part.flags |= static_cast<std::uint8_t>(Provenance::model);
    if (i + 1 < parts.size()) part.flags |= Op::group_continues;
    part.stream = index;
    part.duration_ns = impl.duration_of(part);
    longest = std::max(longest, part.duration_ns);
    if (i == 0) {
      impl.begin(part);
    } else {
      part.host_ns = 0;
    }
  }
  s->communicated |= std::exchange(s->waited, false);
  impl.clock.finish(index, impl.clock.ready(index) + longest);
  if (parts.back().is_blocking()) impl.clock.sync_stream(index);
  for (const Op& part : parts) impl.end(part);
  return impl.launches_of_communication++;
}

}  // namespace prism::vgpu
