// Who computes what after groups are lost or come back: RECTLR of the SPARe paper, made incremental
// and, for micro_batches > 1, by micro-batch instead of by whole shard.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "spare/placement.h"
#include "spare/plan.h"

namespace prism::spare {

class Reorderer {
 public:
  Reorderer(Placement placement, std::int32_t micro_batches);
  ~Reorderer();
  Reorderer(Reorderer&&) noexcept;
  Reorderer& operator=(Reorderer&&) noexcept;

  // Valid until the next call. Groups that are down already (fail) or up already (rejoin), named
  // twice or out of range throw SpareError and change nothing. After a wipe-out only restart() is
  // allowed; what asks for a layout or changes one throws. The order of `groups` does not matter.
  const Plan& fail(std::span<const std::int32_t> groups);
  const Plan& rejoin(std::span<const std::int32_t> groups);
  // The running step is over: what was patched or moved is now ordinary work.
  void commit();
  // All groups back, the placement's own stacks, depth of one shard.
  void restart();

  const Placement& placement() const;
  std::int32_t micro_batches() const;
  std::int32_t depth() const;  // in micro-batches
  std::int32_t survivors() const;
  bool alive(std::int32_t group) const;
  bool wiped_out() const;
  std::uint64_t digest() const;
  // Whose gradient of the part counts from the next step on.
  std::int32_t owner(Part part) const;
  // Whose gradient of the part counts in the running step: a survivor that computed or patches it.
  std::int32_t holder(Part part) const;
  // What a group computes in a step from the next one on, in order: at most depth() parts. For one
  // micro-batch these are the first depth() types of its stack, of which it may own fewer.
  std::vector<Part> work(std::int32_t group) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace prism::spare
