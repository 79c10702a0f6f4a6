// What must hold for the ops of a program, whoever made them. Internal to csrc/graph.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "graph/op.h"

namespace prism {

// The largest duration and size: above it a JSON reader would round.
inline constexpr std::int64_t max_value = std::int64_t{1} << 53;
inline constexpr std::uint32_t max_world_size = std::uint32_t{1} << 24;

// How many kernels and strings there are to refer to.
struct OpLimits {
  std::size_t kernels = 0;
  std::size_t strings = 0;
};

namespace op_check {

// What the fields of a kind refer to.
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

inline constexpr std::array<Use, 256> uses = make_uses();
inline constexpr std::uint8_t known_flags =
    Op::provenance_mask | Op::group_continues | Op::blocking;

constexpr bool in_range(std::int64_t value) noexcept { return value >= 0 && value <= max_value; }

constexpr bool is_known(DataType dtype) noexcept {
  return dtype <= DataType::float8e5m2 || dtype == DataType::none;
}

}  // namespace op_check

// Whether an op can stand on its own; `describe_fault` says why not.
inline bool is_sound(const Op& op, const OpLimits& limits) noexcept {
  using namespace op_check;
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

std::string describe_fault(const Op& op, const OpLimits& limits);

// What is wrong with the ops of one program, with the op's number; empty if nothing is.
std::string find_fault(std::span<const Op> ops, const OpLimits& limits);

// Positions that the op's communicator must have at least: root or relative peer plus one.
constexpr std::uint32_t needed_size(const Op& op) noexcept {
  switch (op.kind) {
    case OpKind::send:
    case OpKind::recv:
    case OpKind::broadcast:
    case OpKind::reduce:
    case OpKind::gather:
    case OpKind::scatter:
      return op.peer == 0xffffffffU ? op.peer : op.peer + 1;
    default:
      return 1;
  }
}

// An op after one that continues a grouped launch must be a communication op too.
inline bool may_follow(const Op& before, const Op& op) noexcept {
  return !before.continues() || is_communication(op.kind);
}

}  // namespace prism
