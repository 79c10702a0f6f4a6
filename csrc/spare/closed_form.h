// Closed forms of SPARe's planning: how many failures a placement endures, how deep stacks get,
// how often to save, how much redundancy pays. SPARe (ICML 2026, arXiv 2603.00357); what the paper
// does not hold is marked as ours. All throw SpareError for values that cannot be. Sums over many
// groups take long: `poll` is called meanwhile, and what it throws ends them.
#pragma once

#include <cstdint>

#include "spare/poll.h"

namespace prism::spare {

// mu(N, r) = Gamma(1/r) / r * N^(1 - 1/r), from P(no wipe-out after k failures) = exp(-N (k/N)^r).
// Needs types that share at most one group, and large N.
double endured_failures(std::int32_t groups, std::int32_t redundancy);

// Ours: the sum over k >= 1 of (1 - q_k)^N with q_k the chance that all r hosts of
// a type are among the first k failures, C(k, r) / C(N, r); types count as independent. Exact for
// r = 1 and r = N; 1 % high at N = 100, 5 % at 31.
double endured_failures_finite(std::int32_t groups, std::int32_t redundancy, const Poll& poll = {});

// Of replication in blocks of r: N (N/r)^(-1/r) Gamma(1 + 1/r), and the sum of (1 - q_k)^(N/r).
double replication_endured_failures(std::int32_t groups, std::int32_t redundancy);
double replication_endured_failures_finite(std::int32_t groups, std::int32_t redundancy,
                                           const Poll& poll = {});

// Mean over k = 0 .. floor(endured) - 1 of ceil(N m / (N - k)) / m, in shards: a lower bound, for
// m = 1 the paper's without its patch term.
double mean_depth_bound(std::int32_t groups, double endured, std::int32_t micro_batches);

// Ours: mean over the failures until wipe-out, each k weighed by its chance to be endured, of
// max(ceil(N m / (N - k)) / m, the most types that a survivor is the last host of). Still a lower
// bound (it leaves out that two or more survivors share what they alone host).
double mean_depth_finite(std::int32_t groups, std::int32_t redundancy, std::int32_t micro_batches,
                         const Poll& poll = {});

// T_c* = T_s + sqrt(T_s^2 + 2 T_s (T_f + T_r)): maximises availability().
double best_checkpoint_interval(double save, double between_wipeouts, double restart);

// (1 - T_s / T_c) T_f / (T_f + T_r + T_c / 2): failures are rare against T_c.
double availability(double interval, double save, double between_wipeouts, double restart);

// J(r) = mean depth / availability at T_c*; times in one unit.
double time_to_train(std::int32_t groups, std::int32_t redundancy, std::int32_t micro_batches,
                     double mtbf, double save, double restart);

// floor(log2 N + 0.833), at least 1: the minimum of J(r) for integer stacks.
std::int32_t best_redundancy(std::int32_t groups);

// T_c* in whole steps of depth * layer + allreduce, at least 1.
std::int64_t checkpoint_steps(double interval, double depth, double layer, double allreduce);

}  // namespace prism::spare
