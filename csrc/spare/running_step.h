// Who holds the gradient of each part in the step that runs.
//
// With one micro-batch several groups compute a type; with more, one group a part. In both, exactly
// one live holder counts, and it counts for as long as it lives.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "spare/part_flow.h"

namespace prism::spare {

class RunningStep {
 public:
  RunningStep(const PartFlow& flow, std::int32_t groups, std::int32_t redundancy,
              std::int32_t micro_batches);

  // A step begins with this layout: owners by part; all groups up.
  void restart(std::span<const std::int32_t> owners, std::int32_t depth);
  // The next step begins.
  void commit(std::span<const std::int32_t> owners, std::int32_t depth);
  bool dirty() const { return dirty_; }

  std::int32_t holder(std::size_t part) const { return holder_[part]; }
  // The group is down: the parts that it held, ascending, go to `orphans`.
  void lose(std::int32_t group, std::vector<std::int32_t>& orphans) const;
  // An orphan's next holder: a survivor that computed it, else `owner`, who must (true: a patch).
  bool adopt(std::int32_t part, std::int32_t owner);
  // From the next step on the part has another owner.
  void moved(std::int32_t part);
  // The group's order of types is another from the next step on.
  void reordered(std::int32_t group);
  // The group is up and holds nothing.
  void joined(std::int32_t group);
  // The depth is another from the next step on.
  void touch() { dirty_ = true; }

 private:
  bool holds(std::int32_t place) const;
  void stray(std::int32_t part);

  const PartFlow* flow_;
  std::int32_t redundancy_;
  std::int32_t micro_batches_;
  std::uint32_t step_ = 1;
  bool dirty_ = false;
  std::int32_t depth_ = 0;               // when the step began
  std::vector<std::int32_t> holder_;     // by part: a place
  std::vector<std::uint32_t> strayed_;   // by part: the step in which holder and owner parted
  std::vector<std::int32_t> strays_;     // those of this step
  std::vector<std::int32_t> rank_;       // one micro-batch, by place: when the step began
  std::vector<std::uint32_t> patched_;   // one micro-batch, by place: the step of its last patch
  std::vector<std::uint32_t> joined_;    // by group: the step in which it came back last
  std::vector<std::uint32_t> reorder_;   // by group: the step in which its order changed last
  std::vector<std::int32_t> reordered_;  // those of this step
};

}  // namespace prism::spare
