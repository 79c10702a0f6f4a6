#include "spare/endurance.h"

#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "spare/random_stream.h"
#include "spare/reorderer.h"

namespace prism::spare {
namespace {

class EnduranceTrial {
 public:
  EnduranceTrial(const Placement& placement, std::int32_t micro_batches)
      : placement_(placement),
        order_(static_cast<std::size_t>(placement.groups())),
        hosts_left_(order_.size()) {
    if (micro_batches > 0) reorderer_.emplace(placement, micro_batches);
  }

  Endurance run(std::uint64_t seed, std::uint64_t trial, const std::atomic<bool>& stopped) {
    RandomStream stream(seed, Purpose::kOrder, trial);
    std::iota(order_.begin(), order_.end(), 0);
    std::fill(hosts_left_.begin(), hosts_left_.end(), placement_.redundancy());
    if (reorderer_) reorderer_->restart();
    Endurance result;
    double depths = 0.0;
    for (std::size_t k = 0; k < order_.size() && !stopped; ++k) {
      const auto rest = static_cast<std::int32_t>(order_.size() - k);
      std::swap(order_[k], order_[k + static_cast<std::size_t>(stream.below(rest))]);
      const bool wiped_out = lose(order_[k]);
      if (reorderer_) {
        reorderer_->fail(std::span(&order_[k], 1));
        PRISM_CHECK(reorderer_->wiped_out() == wiped_out);
      }
      if (wiped_out) break;
      ++result.endured;
      if (reorderer_) {
        reorderer_->commit();
        depths += static_cast<double>(reorderer_->depth()) / reorderer_->micro_batches();
      }
    }
    if (result.endured > 0) result.mean_depth = depths / result.endured;
    return result;
  }

 private:
  bool lose(std::int32_t group) {
    bool wiped_out = false;
    for (const std::int32_t type : placement_.stack(group)) {
      if (--hosts_left_[static_cast<std::size_t>(type)] == 0) wiped_out = true;
    }
    return wiped_out;
  }

  const Placement& placement_;
  std::vector<std::int32_t> order_;  // groups; the first k have failed
  std::vector<std::int32_t> hosts_left_;
  std::optional<Reorderer> reorderer_;
};

void check(const char* what, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return;
  throw SpareError("endurance: " + std::string(what) + " " + std::to_string(value) +
                   " found, expected " + std::to_string(low) + " to " + std::to_string(high));
}

}  // namespace

std::vector<Endurance> endurance(const Placement& placement, std::int32_t micro_batches,
                                 std::int32_t trials, std::uint64_t seed, std::int32_t threads,
                                 const Poll& poll) {
  check("trials", trials, 1, 100'000'000);
  check("micro-batches", micro_batches, 0, 1 << 16);
  check("threads", threads, 1, 4096);
  std::vector<Endurance> results(static_cast<std::size_t>(trials));
  run_trials(results.size(), static_cast<std::size_t>(threads), poll,
             [&](const std::atomic<bool>& stopped) {
               return [&, trial = EnduranceTrial(placement, micro_batches)](std::size_t i) mutable {
                 results[i] = trial.run(seed, i, stopped);
               };
             });
  return results;
}

}  // namespace prism::spare
