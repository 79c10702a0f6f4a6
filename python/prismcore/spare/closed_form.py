"""Closed forms of SPARe: what can be planned without simulating.

Sources: *paper* is SPARe (ICML 2026, arXiv 2603.00357), as secondary notes report it; *inferred* is what
fits its published figures; *ours* is derived here. How each compares with simulation stands in
``docs/spare.md``. N is the number of groups, r the redundancy, m the micro-batches of a shard, k the groups
lost since the last restart. Every function raises SpareError, with the value found and what is expected,
for values that cannot be.
"""

from __future__ import annotations

from typing import Literal

from prismcore import _core
from prismcore.errors import SpareError
from prismcore.spare.numbers import number, whole

__all__ = [
    "availability",
    "best_checkpoint_interval_s",
    "best_redundancy",
    "checkpoint_steps",
    "default_checkpoint_steps",
    "endured_failures",
    "endured_failures_finite",
    "mean_depth_bound",
    "mean_depth_finite",
    "replication_endured_failures",
    "replication_endured_failures_finite",
    "time_to_train",
]

Policy = Literal["spare", "replication", "checkpoint-only"]
POLICIES: tuple[Policy, ...] = ("spare", "replication", "checkpoint-only")


def endured_failures(groups: int, redundancy: int) -> float:
    """mu(N, r) = Gamma(1/r)/r N^(1 - 1/r): mean failures until wipe-out.

    Source: paper; it follows from P(no wipe-out after k) = exp(-N (k/N)^r) (inferred). Valid where any two
    types share at most one group and N is large: it takes the hosts of a type as drawn with replacement, so
    it is some (r - 2)/2 failures too low; within 1.4 % of simulation for r from 3 at N = 200, 600, 1,000.
    """
    return _core.spare_endured_failures(whole("groups", groups), whole("redundancy", redundancy))


def endured_failures_finite(groups: int, redundancy: int) -> float:
    """Mean failures before the one that wipes out: the sum over k >= 1 of (1 - C(k, r)/C(N, r))^N.

    Source: ours. Hosts of a type are drawn without replacement; types count as independent, which they are
    less the smaller N is: within 1 % of simulation from N = 200, 1 % high at 100, 5 % at 31. Exact at r = 1
    (0) and r = N (N - 1). For small N ask :func:`prismcore.spare.life.endurance`, which counts.
    """
    return _core.spare_endured_failures_finite(whole("groups", groups), whole("redundancy", redundancy))


def replication_endured_failures(groups: int, redundancy: int) -> float:
    """The same mean for blocks of r groups that compute the same: N (N/r)^(-1/r) Gamma(1 + 1/r).

    Source: inferred (the paper uses SPARe's mu). Valid where r divides N and N is large.
    """
    return _core.spare_replication_endured_failures(whole("groups", groups), whole("redundancy", redundancy))


def replication_endured_failures_finite(groups: int, redundancy: int) -> float:
    """Before the failure that empties a block: the sum over k >= 1 of (1 - C(k, r)/C(N, r))^(N/r).

    Source: ours; blocks count as independent.
    """
    return _core.spare_replication_endured_failures_finite(
        whole("groups", groups), whole("redundancy", redundancy)
    )


def mean_depth_bound(groups: int, endured: float, micro_batches: int = 1) -> float:
    """Mean over k = 0 .. floor(endured) - 1 of ceil(N m/(N - k))/m, in shards: a lower bound.

    Source: paper for m = 1 (its patch term is not known to us); ours for m > 1, where work moves by
    micro-batch. Counting alone: every (type, micro-batch) has one owner among N - k survivors. It leaves out
    that a survivor computes only what it hosts.
    """
    return _core.spare_mean_depth_bound(
        whole("groups", groups), number("endured failures", endured), whole("micro-batches", micro_batches)
    )


def mean_depth_finite(groups: int, redundancy: int, micro_batches: int = 1) -> float:
    """Mean planned depth in shards over the failures until wipe-out, with part of the matching gap.

    Source: ours. Each k counts by its chance to be endured; depth at k is the expectation of
    max(ceil(N m/(N - k))/m, A) with A the most types that one survivor is the last host of
    (binomial(r, C(k, r-1)/C(N-1, r-1)) a survivor). Still a lower bound: sets of two or more survivors that
    alone host too much are left out, which matters for r <= 4 and large m.
    """
    return _core.spare_mean_depth_finite(
        whole("groups", groups), whole("redundancy", redundancy), whole("micro-batches", micro_batches)
    )


def best_checkpoint_interval_s(checkpoint_s: float, between_wipeouts_s: float, restart_s: float) -> float:
    """T_c* = T_s + sqrt(T_s^2 + 2 T_s (T_f + T_r)), T_f = endured failures x MTBF.

    Source: paper. It is exactly where :func:`availability` is largest (inferred, and tested).
    """
    return _core.spare_best_checkpoint_interval(
        number("time to write a checkpoint", checkpoint_s),
        number("time between wipe-outs", between_wipeouts_s),
        number("time of a restart", restart_s),
    )


def availability(
    interval_s: float, checkpoint_s: float, between_wipeouts_s: float, restart_s: float
) -> float:
    """(1 - T_s/T_c) T_f/(T_f + T_r + T_c/2): share of time in which work is done that lasts.

    Source: inferred from T_c*. Valid where an interval is short against the time between wipe-outs.
    """
    return _core.spare_availability(
        number("checkpoint interval", interval_s),
        number("time to write a checkpoint", checkpoint_s),
        number("time between wipe-outs", between_wipeouts_s),
        number("time of a restart", restart_s),
    )


def time_to_train(
    groups: int,
    redundancy: int,
    micro_batches: int = 1,
    *,
    mtbf_s: float = 300.0,
    checkpoint_s: float = 60.0,
    restart_s: float = 3600.0,
) -> float:
    """J(r) = mean depth bound / availability at T_c*: time over that without failures.

    Source: paper for m = 1; the all-reduce, jitter and patches are left out.
    """
    return _core.spare_time_to_train(
        whole("groups", groups),
        whole("redundancy", redundancy),
        whole("micro-batches", micro_batches),
        number("mean time between failures", mtbf_s),
        number("time to write a checkpoint", checkpoint_s),
        number("time of a restart", restart_s),
    )


def best_redundancy(groups: int) -> int:
    """r* = floor(log2 N + 0.833), at least 1.

    Source: paper (0.833 = Euler's gamma/ln 2 is inferred). For whole shards (m = 1); micro-batches move the
    best redundancy up, because extra redundancy no longer costs whole layers.
    """
    return _core.spare_best_redundancy(whole("groups", groups))


def checkpoint_steps(interval_s: float, depth: float, layer_s: float, allreduce_s: float) -> int:
    """The interval in whole steps of ``depth x layer_s + allreduce_s``, the nearest, at least 1."""
    return _core.spare_checkpoint_steps(
        number("checkpoint interval", interval_s),
        number("mean depth", depth),
        number("time of a layer", layer_s),
        number("time of an all-reduce", allreduce_s),
    )


def default_checkpoint_steps(
    policy: Policy,
    groups: int,
    redundancy: int,
    micro_batches: int = 1,
    *,
    mtbf_s: float = 300.0,
    checkpoint_s: float = 60.0,
    restart_s: float = 3600.0,
    layer_s: float = 64.0,
    allreduce_s: float | None = None,
    replication_by_spare_mu: bool = True,
) -> int:
    """Steps between checkpoints by T_c*: that over a step of the mean depth bound (SPARe), of r layers
    (replication) or of one layer (checkpoint-only).

    Source: inferred from the published list of intervals, which it meets within 1. There replication's T_f
    comes from SPARe's mu(N, r); ``replication_by_spare_mu=False`` takes replication's own mean.
    ``allreduce_s`` defaults to the paper's 0.01 s a group.
    """
    if policy not in POLICIES:
        raise SpareError(f"policy {policy!r} found, expected {', '.join(POLICIES)}")
    if allreduce_s is None:
        allreduce_s = 0.01 * whole("groups", groups)
    mtbf_s = number("mean time between failures", mtbf_s)
    if policy == "checkpoint-only":
        endured, depth = 1.0, 1.0
    elif policy == "replication" and not replication_by_spare_mu:
        endured, depth = replication_endured_failures(groups, redundancy), float(redundancy)
    else:
        endured = endured_failures(groups, redundancy)
        depth = (
            float(redundancy) if policy == "replication" else mean_depth_bound(groups, endured, micro_batches)
        )
    interval_s = best_checkpoint_interval_s(checkpoint_s, endured * mtbf_s, restart_s)
    return checkpoint_steps(interval_s, depth, layer_s, allreduce_s)
