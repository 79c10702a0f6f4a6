// What must hold for the ops of a program, whoever made them. Internal to csrc/graph.
#pragma once

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

// Whether an op can stand on its own; `describe_fault` says why not.
bool is_sound(const Op& op, const OpLimits& limits) noexcept;
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
