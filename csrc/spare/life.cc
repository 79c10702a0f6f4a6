#include "spare/life.h"

#include <iterator>
#include <string>

#include "base/error.h"
#include "spare/life_run.h"
#include "spare/words.h"

namespace prism::spare {
namespace {

void check_placement(const LifeOptions& options, const Placement* placement) {
  if (options.policy != Policy::kSpare) return;
  if (placement == nullptr) {
    throw SpareError("life: policy spare without a placement, expected one");
  }
  if (placement->groups() != options.groups || placement->redundancy() != options.redundancy) {
    throw SpareError("life: placement of " + counted(placement->groups(), "group") +
                     ", redundancy " + std::to_string(placement->redundancy()) +
                     " found, expected " + counted(options.groups, "group") + ", redundancy " +
                     std::to_string(options.redundancy));
  }
}

}  // namespace

std::string_view name(TimePart part) {
  constexpr std::string_view names[] = {"compute",          "redundant", "jitter",   "allreduce",
                                        "failed_allreduce", "patch",     "recovery", "rejoin",
                                        "checkpoint",       "restart",   "rework"};
  static_assert(std::size(names) == kTimeParts);
  return names[static_cast<std::size_t>(part)];
}

std::string_view name(EventKind kind) {
  constexpr std::string_view names[] = {"failure",  "step",    "checkpoint",
                                        "wipe_out", "restart", "rejoin"};
  return names[static_cast<std::size_t>(kind)];
}

std::vector<LifeTrial> simulate_lives(const LifeOptions& options, const Placement* placement,
                                      const Poll& poll) {
  options.check();
  check_placement(options, placement);
  std::vector<LifeTrial> trials(static_cast<std::size_t>(options.seeds));
  run_trials(trials.size(), static_cast<std::size_t>(options.threads), poll,
             [&](const std::atomic<bool>& stopped) {
               return [&](std::size_t i) {
                 trials[i] = LifeRun(options, placement, options.first_seed + i, stopped).run();
               };
             });
  return trials;
}

}  // namespace prism::spare
