// A rank of an emulation: its ops go to the engine, which knows its times.
#include <utility>

#include "vgpu/device/impl.h"

namespace prism::vgpu {

void Session::attach(PortMemory memory, std::size_t number) {
  const std::lock_guard lock(impl_->mutex);
  PRISM_CHECK(!impl_->active);
  impl_->port = std::make_unique<Port>(std::move(memory), number);
}

void Session::detach() {
  const std::lock_guard lock(impl_->mutex);
  impl_->port.reset();
}

std::int64_t Session::Impl::post(const Op& op, Ask ask) {
  Post post;
  post.op = op;
  post.ask = ask;
  if (op.kind == OpKind::kernel) {
    post.what = kernel_identities[op.ref];
  } else if (is_communication(op.kind)) {
    post.what = communicators[op.ref].identity;
  }
  if (ask != Ask::nothing) return port->ask(post);
  port->post(post);
  return 0;
}

void Session::Impl::post_end() {
  if (port == nullptr || !active) return;
  if (!frees.empty()) append_frees();
  Post post;
  post.ended = true;
  port->post(post);
}

std::int64_t Session::Impl::query(const Event& event, Ask ask, std::uint32_t profile_ns) {
  Op op;
  op.kind = OpKind::query;
  op.event_stream = event.stream;
  op.peer = records[event.stream] - event.record + 1;
  begin(op, profile_ns);
  return append(op, ask);
}

}  // namespace prism::vgpu
