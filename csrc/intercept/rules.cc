#include "intercept/rules.h"

#include <algorithm>
#include <array>

#include "intercept/device_port.h"

namespace prism::intercept {
namespace {

RuleMatch match_ = nullptr;
RuleFill fill_ = nullptr;

bool sends_from_root(OpKind kind) noexcept {
  return kind == OpKind::broadcast || kind == OpKind::scatter;
}

std::int64_t peer_of(const Call& call) noexcept {
  if (is_point_to_point(call.op.kind)) return call.peer;
  const bool rooted = sends_from_root(call.op.kind) || call.op.kind == OpKind::reduce ||
                      call.op.kind == OpKind::gather;
  return rooted ? std::int64_t{call.op.peer} : -1;
}

// Something of what this rank receives comes from a rank that does not run.
bool hears_ghosts(const Call& call, const vgpu::Company* company) {
  const std::uint32_t own = call.communicator->position;
  if (sends_from_root(call.op.kind) && call.op.peer == own) return false;
  if (is_point_to_point(call.op.kind) && call.peer == own) return false;
  if (company == nullptr) return call.communicator->size > 1;
  const auto runs = [&](std::uint32_t position) {
    return std::binary_search(company->positions.begin(), company->positions.end(), position);
  };
  if (is_point_to_point(call.op.kind)) return !runs(call.peer);
  if (sends_from_root(call.op.kind)) return !runs(call.op.peer);
  return company->positions.size() < call.communicator->size;
}

Touched received(const Call& call) noexcept {
  // By the contract a rank keeps what it has where the root sends the same.
  if (call.op.kind == OpKind::broadcast) return {call.out, call.unit_bytes};
  return {call.to, call.to_bytes};
}

}  // namespace

void set_rules(RuleMatch match, RuleFill fill) noexcept {
  match_ = match;
  fill_ = fill;
}

void apply_rules(std::span<const Call> calls) {
  if (match_ == nullptr) return;
  for (const Call& call : calls) {
    const auto element = static_cast<std::int64_t>(size_of(call.op.dtype));
    const std::array<Touched, 1> into{received(call)};
    const std::int64_t bytes = into[0].bytes;
    if (into[0].address == nullptr || bytes <= 0 || element == 0) continue;
    if (!hears_ghosts(call, device_port().company(call.op.ref).get())) continue;
    const PrismRuleCall asked{.group = call.communicator->name.c_str(),
                              .size = call.communicator->size,
                              .position = call.communicator->position,
                              .kind = static_cast<std::uint32_t>(call.op.kind),
                              .dtype = static_cast<std::uint32_t>(call.op.dtype),
                              .peer = peer_of(call),
                              .elements = bytes / element};
    const std::int64_t number = match_(&asked);
    if (number < 0) continue;
    device_port().enqueue(
        call.stream,
        [number, to = const_cast<void*>(into[0].address), bytes] {
          fill_(number, to, bytes);
          device_port().note_written(to, bytes);
        },
        into);
  }
}

}  // namespace prism::intercept
