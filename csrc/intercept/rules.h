// A user's rules: what a rank receives in place of what the uniform contract gives it
// (prismcore.rules). The rules themselves are the caller's; here they are two functions.
#pragma once

#include <cstdint>
#include <span>

#include "intercept/launch.h"

// What a rule is asked about; the layout is read by prismcore.launch.given.
struct PrismRuleCall {
  const char* group;       // the communicator's name
  std::uint32_t size;      // of the communicator
  std::uint32_t position;  // of this rank
  std::uint32_t kind;      // OpKind
  std::uint32_t dtype;     // DataType
  std::int64_t peer;       // send and receive: the other side; root of a rooted call; else -1
  std::int64_t elements;   // that this rank receives
};

namespace prism::intercept {

// Asked at each call that receives: a number to fill its result with later, or -1.
using RuleMatch = std::int64_t (*)(const PrismRuleCall*);
// Called in the order of the stream, when the contract has written its bytes to `to`.
using RuleFill = void (*)(std::int64_t number, void* to, std::int64_t bytes);

// nullptr: no rules. Before the first call.
void set_rules(RuleMatch match, RuleFill fill) noexcept;
// Behind the moves of these calls, of one launch.
void apply_rules(std::span<const Call> calls);

}  // namespace prism::intercept
