#include "graph/op_check.h"

namespace prism {
namespace {

using op_check::in_range;
using op_check::is_known;
using op_check::known_flags;
using op_check::Use;
using op_check::uses;

std::string number(std::uint64_t value) { return std::to_string(value); }

}  // namespace

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
