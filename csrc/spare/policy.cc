#include "spare/policy.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "spare/reorderer.h"

namespace prism::spare {
namespace {

std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }

class SparePolicy final : public FaultPolicy {
 public:
  SparePolicy(const LifeOptions& options, const Placement& placement)
      : reorderer_(placement, options.micro_batches),
        parts_(options.micro_batches),
        one_layer_(options.quirks.one_layer_per_patch),
        hosts_left_(at(options.groups)),
        work_(options.groups, options.redundancy * options.micro_batches),
        patch_(options.groups, options.redundancy * options.micro_batches) {
    restart();
  }

  Reaction fail(std::span<const std::int32_t> groups) override {
    const std::int32_t endured = strike_hosts(groups);
    for (const std::int32_t group : groups) {
      work_.set(group, Workload::kOut);
      patch_.set(group, Workload::kOut);
    }
    const Plan& plan = reorderer_.fail(groups);
    PRISM_CHECK((plan.outcome == Outcome::kWipeOut) ==
                (endured < static_cast<std::int32_t>(groups.size())));
    if (plan.outcome == Outcome::kWipeOut) return {Reaction::Kind::kWipeOut, endured};
    follow(plan);
    for (std::int32_t group = 0; group < work_.groups(); ++group) {
      if (reorderer_.alive(group)) patch_.set(group, 0);
    }
    if (plan.outcome == Outcome::kKept) return {Reaction::Kind::kCovered, endured};
    if (one_layer_ && plan.outcome == Outcome::kDeepened && parts_ == 1) {
      // The published model: the added layer, on every survivor.
      for (std::int32_t group = 0; group < work_.groups(); ++group) {
        if (reorderer_.alive(group)) patch_.set(group, 1);
      }
    } else {
      for (const Patch& patch : plan.patches) {
        const std::int32_t load = patch_.load(patch.group) + 1;
        if (!one_layer_ || load <= parts_) patch_.set(patch.group, load);
      }
    }
    return {Reaction::Kind::kPatch, endured};
  }

  void rejoin(std::span<const std::int32_t> groups) override {
    for (const std::int32_t group : groups) {
      for (const std::int32_t type : reorderer_.placement().stack(group)) ++hosts_left_[at(type)];
    }
    for (const std::int32_t group : groups) {
      work_.set(group, 0);
      patch_.set(group, 0);
    }
    follow(reorderer_.rejoin(groups));
  }

  void commit() override { reorderer_.commit(); }

  void restart() override {
    reorderer_.restart();
    std::fill(hosts_left_.begin(), hosts_left_.end(), reorderer_.placement().redundancy());
    for (std::int32_t group = 0; group < work_.groups(); ++group) {
      work_.set(group, parts_);
      patch_.set(group, 0);
    }
  }

  std::int32_t parts() const override { return parts_; }
  std::int32_t depth() const override { return reorderer_.depth(); }
  Workload& work() override { return work_; }
  Workload& patch() override { return patch_; }

 private:
  std::int32_t strike_hosts(std::span<const std::int32_t> groups) {
    std::int32_t endured = 0;
    bool wiped_out = false;
    for (const std::int32_t group : groups) {
      for (const std::int32_t type : reorderer_.placement().stack(group)) {
        if (--hosts_left_[at(type)] == 0) wiped_out = true;
      }
      if (!wiped_out) ++endured;
    }
    return endured;
  }

  // What survivors compute from the next step on: with one micro-batch the first depth() types of
  // their stacks, otherwise the parts that they own.
  void follow(const Plan& plan) {
    if (parts_ == 1) {
      for (std::int32_t group = 0; group < work_.groups(); ++group) {
        if (reorderer_.alive(group)) work_.set(group, plan.depth);
      }
      return;
    }
    for (const Move& move : plan.moves) {
      if (reorderer_.alive(move.from)) work_.set(move.from, work_.load(move.from) - 1);
      work_.set(move.to, work_.load(move.to) + 1);
    }
  }

  Reorderer reorderer_;
  std::int32_t parts_;
  bool one_layer_;
  std::vector<std::int32_t> hosts_left_;
  Workload work_;
  Workload patch_;
};

// Blocks of r consecutive groups compute the same r shards; with N no multiple of r the last block
// is smaller. Redundancy 1 is plain data parallelism: every failure is a wipe-out.
class ReplicationPolicy final : public FaultPolicy {
 public:
  ReplicationPolicy(std::int32_t groups, std::int32_t redundancy)
      : redundancy_(redundancy),
        left_(at((groups + redundancy - 1) / redundancy)),
        work_(groups, redundancy),
        patch_(groups, redundancy) {
    restart();
  }

  Reaction fail(std::span<const std::int32_t> groups) override {
    std::int32_t endured = 0;
    bool wiped_out = false;
    for (const std::int32_t group : groups) {
      work_.set(group, Workload::kOut);
      patch_.set(group, Workload::kOut);
      if (--left_[at(group / redundancy_)] == 0) wiped_out = true;
      if (!wiped_out) ++endured;
    }
    return {wiped_out ? Reaction::Kind::kWipeOut : Reaction::Kind::kCovered, endured};
  }

  void rejoin(std::span<const std::int32_t> groups) override {
    for (const std::int32_t group : groups) {
      work_.set(group, redundancy_);
      patch_.set(group, 0);
      ++left_[at(group / redundancy_)];
    }
  }

  void commit() override {}

  void restart() override {
    std::fill(left_.begin(), left_.end(), 0);
    for (std::int32_t group = 0; group < work_.groups(); ++group) {
      work_.set(group, redundancy_);
      patch_.set(group, 0);
      ++left_[at(group / redundancy_)];
    }
  }

  std::int32_t parts() const override { return 1; }
  std::int32_t depth() const override { return redundancy_; }
  Workload& work() override { return work_; }
  Workload& patch() override { return patch_; }

 private:
  std::int32_t redundancy_;
  std::vector<std::int32_t> left_;
  Workload work_;
  Workload patch_;
};

}  // namespace

std::unique_ptr<FaultPolicy> make_policy(const LifeOptions& options, const Placement* placement) {
  switch (options.policy) {
    case Policy::kSpare:
      PRISM_CHECK(placement != nullptr);
      return std::make_unique<SparePolicy>(options, *placement);
    case Policy::kReplication:
      return std::make_unique<ReplicationPolicy>(options.groups, options.redundancy);
    case Policy::kCheckpointOnly:
      return std::make_unique<ReplicationPolicy>(options.groups, 1);
  }
  PRISM_CHECK(false);
}

}  // namespace prism::spare
