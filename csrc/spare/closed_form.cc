#include "spare/closed_form.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"

namespace prism::spare {
namespace {

[[noreturn]] void refuse(const std::string& what, const std::string& found,
                         const std::string& expected) {
  throw SpareError("closed form: " + what + " " + found + " found, expected " + expected);
}

void check_sizes(std::int32_t groups, std::int32_t redundancy) {
  if (groups < 1) refuse("groups", std::to_string(groups), "1 or more");
  if (redundancy < 1 || redundancy > groups) {
    refuse("redundancy", std::to_string(redundancy), "1 to " + std::to_string(groups));
  }
}

void check_micro_batches(std::int32_t micro_batches) {
  if (micro_batches < 1) refuse("micro-batches", std::to_string(micro_batches), "1 or more");
}

void check_time(const std::string& what, double value, bool positive) {
  if (!std::isfinite(value) || value < 0.0 || (positive && value == 0.0)) {
    refuse(what, std::to_string(value), positive ? "above 0" : "0 or more");
  }
}

// C(k, r) / C(n, r): r given members of n are all among k drawn.
double all_drawn(std::int32_t k, std::int32_t r, std::int32_t n) {
  if (k < r) return 0.0;
  double chance = 1.0;
  for (std::int32_t i = 0; i < r; ++i) chance *= static_cast<double>(k - i) / (n - i);
  return chance;
}

double power_of_rest(double chance, double count) {
  return chance >= 1.0 ? 0.0 : std::exp(count * std::log1p(-chance));
}

double sum_of_survival(std::int32_t groups, std::int32_t redundancy, double units,
                       const Poll& poll) {
  Pulse pulse(poll);
  double sum = 0.0;
  for (std::int32_t k = 1; k < groups; ++k) {
    pulse.beat(redundancy);
    const double endured = power_of_rest(all_drawn(k, redundancy, groups), units);
    if (endured < 1e-18) break;
    sum += endured;
  }
  return sum;
}

double depth_bound(std::int64_t groups, std::int64_t lost, std::int64_t micro_batches) {
  const std::int64_t left = groups - lost;
  return static_cast<double>((groups * micro_batches + left - 1) / left) /
         static_cast<double>(micro_batches);
}

// P(Binomial(n, p) >= a), a >= 1, summed from the small end so that small chances keep digits.
double binomial_tail(std::int32_t n, double p, std::int32_t a) {
  if (p <= 0.0) return 0.0;
  if (p >= 1.0) return 1.0;
  double sum = 0.0;
  for (std::int32_t i = n; i >= a; --i) {
    sum += std::exp(std::lgamma(n + 1.0) - std::lgamma(i + 1.0) - std::lgamma(n - i + 1.0) +
                    i * std::log(p) + (n - i) * std::log1p(-p));
  }
  return std::min(sum, 1.0);
}

// E[max(bound, most types that one of the survivors is the last host of)].
double depth_with_last_hosts(std::int32_t groups, std::int32_t redundancy, std::int32_t lost,
                             double bound, Pulse& pulse) {
  const double last = all_drawn(lost, redundancy - 1, groups - 1);
  double expected = bound;
  for (auto a = static_cast<std::int32_t>(std::floor(bound)) + 1; a <= redundancy; ++a) {
    pulse.beat(16 * std::int64_t{redundancy});
    const double some = 1.0 - power_of_rest(binomial_tail(redundancy, last, a), groups - lost);
    expected += some * (a - std::max(bound, a - 1.0));
    if (some < 1e-12) break;
  }
  return expected;
}

}  // namespace

double endured_failures(std::int32_t groups, std::int32_t redundancy) {
  check_sizes(groups, redundancy);
  const double inverse = 1.0 / redundancy;
  return std::tgamma(1.0 + inverse) * std::pow(groups, 1.0 - inverse);
}

double endured_failures_finite(std::int32_t groups, std::int32_t redundancy, const Poll& poll) {
  check_sizes(groups, redundancy);
  return redundancy == 1 ? 0.0 : sum_of_survival(groups, redundancy, groups, poll);
}

double replication_endured_failures(std::int32_t groups, std::int32_t redundancy) {
  check_sizes(groups, redundancy);
  const double inverse = 1.0 / redundancy;
  return groups * std::pow(groups * inverse, -inverse) * std::tgamma(1.0 + inverse);
}

double replication_endured_failures_finite(std::int32_t groups, std::int32_t redundancy,
                                           const Poll& poll) {
  check_sizes(groups, redundancy);
  if (redundancy == 1) return 0.0;
  return sum_of_survival(groups, redundancy, static_cast<double>(groups) / redundancy, poll);
}

double mean_depth_bound(std::int32_t groups, double endured, std::int32_t micro_batches) {
  check_sizes(groups, 1);
  check_micro_batches(micro_batches);
  if (!(endured >= 0.0 && endured <= groups)) {
    refuse("endured failures", std::to_string(endured), "0 to " + std::to_string(groups));
  }
  const auto failures = std::clamp(static_cast<std::int32_t>(endured), 1, groups);
  double sum = 0.0;
  for (std::int32_t k = 0; k < failures; ++k) sum += depth_bound(groups, k, micro_batches);
  return sum / failures;
}

double mean_depth_finite(std::int32_t groups, std::int32_t redundancy, std::int32_t micro_batches,
                         const Poll& poll) {
  check_sizes(groups, redundancy);
  check_micro_batches(micro_batches);
  if (redundancy == 1) return 1.0;
  Pulse pulse(poll);
  double depths = 0.0;
  double weights = 0.0;
  for (std::int32_t k = 1; k < groups; ++k) {
    pulse.beat(2 * std::int64_t{redundancy});
    const double endured = power_of_rest(all_drawn(k, redundancy, groups), groups);
    if (endured < 1e-18) break;
    const double bound = depth_bound(groups, k, micro_batches);
    depths += endured * depth_with_last_hosts(groups, redundancy, k, bound, pulse);
    weights += endured;
  }
  return depths / weights;
}

double best_checkpoint_interval(double save, double between_wipeouts, double restart) {
  check_time("time to write a checkpoint", save, false);
  check_time("time between wipe-outs", between_wipeouts, true);
  check_time("time of a restart", restart, false);
  return save + std::sqrt(save * save + 2.0 * save * (between_wipeouts + restart));
}

double availability(double interval, double save, double between_wipeouts, double restart) {
  check_time("checkpoint interval", interval, true);
  check_time("time to write a checkpoint", save, false);
  check_time("time between wipe-outs", between_wipeouts, true);
  check_time("time of a restart", restart, false);
  if (save > interval) {
    refuse("checkpoint interval", std::to_string(interval),
           "at least the time to write one, " + std::to_string(save));
  }
  return (1.0 - save / interval) * between_wipeouts / (between_wipeouts + restart + 0.5 * interval);
}

double time_to_train(std::int32_t groups, std::int32_t redundancy, std::int32_t micro_batches,
                     double mtbf, double save, double restart) {
  check_time("mean time between failures", mtbf, true);
  const double endured = endured_failures(groups, redundancy);
  const double between = endured * mtbf;
  const double interval = best_checkpoint_interval(save, between, restart);
  const double up = interval > 0.0 ? availability(interval, save, between, restart)
                                   : between / (between + restart);
  return mean_depth_bound(groups, endured, micro_batches) / up;
}

std::int32_t best_redundancy(std::int32_t groups) {
  check_sizes(groups, 1);
  const auto found = static_cast<std::int32_t>(std::floor(std::log2(groups) + 0.833));
  return std::clamp(found, 1, groups);
}

std::int64_t checkpoint_steps(double interval, double depth, double layer, double allreduce) {
  check_time("checkpoint interval", interval, false);
  check_time("mean depth", depth, true);
  check_time("time of a layer", layer, true);
  check_time("time of an all-reduce", allreduce, false);
  const double steps = interval / (depth * layer + allreduce);
  return std::llround(std::clamp(steps, 1.0, 1e9));
}

}  // namespace prism::spare
