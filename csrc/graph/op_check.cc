#include "graph/op_check.h"

#include <array>

namespace prism {
namespace {

enum class Use : std::uint8_t { invalid, plain, kernel, copy, mark, reducing, communication };

constexpr std::array<Use, 256> make_uses() {
  std::array<Use, 256> uses{};
  const auto set = [&](OpKind kind, Use use) { uses[static_cast<std::size_t>(kind)] = use; };
  for (int kind = 0; kind <= static_cast<int>(OpKind::mark); ++kind) {
    set(static_cast<OpKind>(kind), Use::plain);
  }
  set(OpKind::kernel, Use::kernel);
  set(OpKind::copy, Use::copy);
  set(OpKind::mark, Use::mark);
  for (int kind = static_cast<int>(OpKind::all_reduce); kind <= static_cast<int>(OpKind::scatter);
       ++kind) {
    set(static_cast<OpKind>(kind), Use::communication);
  }
  set(OpKind::all_reduce, Use::reducing);
  set(OpKind::reduce_scatter, Use::reducing);
  set(OpKind::reduce, Use::reducing);
  set(OpKind::send, Use::communication);
  set(OpKind::recv, Use::communication);
  return uses;
}

constexpr std::array<Use, 256> uses = make_uses();
constexpr std::uint8_t known_flags = Op::provenance_mask | Op::group_continues | Op::blocking;

bool in_range(std::int64_t value) noexcept { return value >= 0 && value <= max_value; }

bool is_known(DataType dtype) noexcept {
  return dtype <= DataType::float8e5m2 || dtype == DataType::none;
}

std::string number(std::uint64_t value) { return std::to_string(value); }

}  // namespace

bool is_sound(const Op& op, const OpLimits& limits) noexcept {
  if (!in_range(op.duration_ns) || !in_range(op.bytes) || (op.flags & ~known_flags) != 0 ||
      !is_known(op.dtype)) {
    return false;
  }
  const bool alone = !op.continues();
  switch (uses[static_cast<std::size_t>(op.kind)]) {
    case Use::plain:
      return alone;
    case Use::kernel:
      return alone && op.ref < limits.kernels;
    case Use::copy:
      return alone && op.detail <= static_cast<std::uint8_t>(CopyDirection::host_to_host);
    case Use::mark:
      return alone && op.ref < limits.strings &&
             op.detail <= static_cast<std::uint8_t>(MarkKind::phase);
    case Use::reducing:
      return op.detail <= static_cast<std::uint8_t>(Reduction::premul_sum);
    case Use::communication:
      return true;
    case Use::invalid:
      return false;
  }
  return false;
}

std::string describe_fault(const Op& op, const OpLimits& limits) {
  const Use use = uses[static_cast<std::size_t>(op.kind)];
  if (use == Use::invalid) {
    return "kind " + number(static_cast<std::uint64_t>(op.kind)) + " found, none of that number";
  }
  const std::string kind(name(op.kind));
  const std::string range = ", expected 0 to " + std::to_string(max_value);
  if (!in_range(op.duration_ns)) {
    return kind + ": duration_ns " + std::to_string(op.duration_ns) + " found" + range;
  }
  if (!in_range(op.bytes)) return kind + ": bytes " + std::to_string(op.bytes) + " found" + range;
  if ((op.flags & ~known_flags) != 0) return kind + ": unknown flags " + number(op.flags);
  if (!is_known(op.dtype)) {
    return kind + ": unknown dtype " + number(static_cast<std::uint64_t>(op.dtype));
  }
  if (op.continues() && !is_communication(op.kind)) {
    return kind + ": is marked as part of a grouped launch, expected only on communication ops";
  }
  if (use == Use::kernel && op.ref >= limits.kernels) {
    return kind + ": kernel id " + number(op.ref) + " found, expected below " +
           number(limits.kernels);
  }
  if (use == Use::mark && op.ref >= limits.strings) {
    return kind + ": string id " + number(op.ref) + " found, expected below " +
           number(limits.strings);
  }
  return kind + ": unknown detail " + number(op.detail);
}

std::string find_fault(std::span<const Op> ops, const OpLimits& limits) {
  Op before;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    if (!is_sound(ops[i], limits)) {
      return "op " + number(i) + ": " + describe_fault(ops[i], limits);
    }
    if (!may_follow(before, ops[i])) {
      return "op " + number(i) + ": " + std::string(name(ops[i].kind)) +
             " inside a grouped launch, expected a communication op";
    }
    before = ops[i];
  }
  if (before.continues()) {
    return "op " + number(ops.size() - 1) + ": is followed by nothing, expected the rest of its " +
           "grouped launch";
  }
  return {};
}

}  // namespace prism
