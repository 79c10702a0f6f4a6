#include "spare/running_step.h"

#include <algorithm>

namespace prism::spare {
namespace {
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
}  // namespace

RunningStep::RunningStep(const PartFlow& flow, std::int32_t groups, std::int32_t redundancy,
                         std::int32_t micro_batches)
    : flow_(&flow),
      redundancy_(redundancy),
      micro_batches_(micro_batches),
      holder_(at(groups) * at(micro_batches), 0),
      strayed_(holder_.size(), 0),
      joined_(at(groups), 0),
      reorder_(at(groups), 0) {
  if (micro_batches == 1) {
    rank_.resize(at(groups) * at(redundancy), 0);
    patched_.resize(rank_.size(), 0);
  }
}

void RunningStep::restart(std::span<const std::int32_t> owners, std::int32_t depth) {
  ++step_;
  dirty_ = false;
  depth_ = depth;
  strays_.clear();
  reordered_.clear();
  std::copy(owners.begin(), owners.end(), holder_.begin());
  for (std::size_t place = 0; place < rank_.size(); ++place) {
    rank_[place] = flow_->rank(static_cast<std::int32_t>(place));
  }
}

void RunningStep::commit(std::span<const std::int32_t> owners, std::int32_t depth) {
  ++step_;
  dirty_ = false;
  depth_ = depth;
  for (const std::int32_t part : strays_) holder_[at(part)] = owners[at(part)];
  strays_.clear();
  for (const std::int32_t group : reordered_) {
    const std::int32_t first = group * redundancy_;
    for (std::int32_t place = first; place < first + redundancy_; ++place) {
      rank_[at(place)] = flow_->rank(place);
    }
  }
  reordered_.clear();
}

void RunningStep::lose(std::int32_t group, std::vector<std::int32_t>& orphans) const {
  for (std::int32_t place = group * redundancy_; place < (group + 1) * redundancy_; ++place) {
    const std::int32_t first = flow_->type_of(place) * micro_batches_;
    for (std::int32_t part = first; part < first + micro_batches_; ++part) {
      if (holder_[at(part)] == place) orphans.push_back(part);
    }
  }
}

bool RunningStep::holds(std::int32_t place) const {
  const std::int32_t group = flow_->group_of(place);
  if (!flow_->alive(group)) return false;
  return patched_[at(place)] == step_ || (joined_[at(group)] != step_ && rank_[at(place)] < depth_);
}

bool RunningStep::adopt(std::int32_t part, std::int32_t owner) {
  stray(part);
  holder_[at(part)] = owner;
  if (micro_batches_ > 1) return true;
  if (holds(owner)) return false;
  for (const std::int32_t place : flow_->places_of(part)) {
    if (holds(place)) {
      holder_[at(part)] = place;
      return false;
    }
  }
  patched_[at(owner)] = step_;
  return true;
}

void RunningStep::moved(std::int32_t part) { stray(part); }

void RunningStep::stray(std::int32_t part) {
  dirty_ = true;
  if (strayed_[at(part)] == step_) return;
  strayed_[at(part)] = step_;
  strays_.push_back(part);
}

void RunningStep::reordered(std::int32_t group) {
  dirty_ = true;
  if (micro_batches_ > 1 || reorder_[at(group)] == step_) return;
  reorder_[at(group)] = step_;
  reordered_.push_back(group);
}

void RunningStep::joined(std::int32_t group) {
  reordered(group);
  joined_[at(group)] = step_;
  if (micro_batches_ > 1) return;
  for (std::int32_t place = group * redundancy_; place < (group + 1) * redundancy_; ++place) {
    patched_[at(place)] = 0;
  }
}

}  // namespace prism::spare
