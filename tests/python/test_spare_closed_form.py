"""Closed forms against golden values, limits, numeric optima and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from prismcore.errors import SpareError
from prismcore.spare import closed_form
from prismcore.spare import placement as placements
from prismcore.spare.life import endurance
from prismcore.spare.numbers import estimate, student_t_quantile

# Groups, redundancy: endured failures, depth bound, T_c* in s at a fleet MTBF of 300 s.
CHECK_VALUES = {
    (200, 9): (105.1, 2.03, 2114),
    (600, 8): (254.0, 2.00, 3155),
    (600, 20): (424.2, 2.34, 4023),
    (1000, 9): (439.5, 2.00, 4092),
    (1000, 26): (750.7, 2.44, 5300),
}


def rows(*parts):
    """('r', replication, spare) by r."""
    return {r: (a, b) for first, last, a, b in parts for r in range(first, last + 1)}


# The published list of checkpoint intervals, in steps.
PUBLISHED_STEPS = {
    200: rows((2, 2, 8, 8), (3, 3, 6, 10), (4, 4, 6, 12), (5, 5, 5, 13), (6, 6, 5, 14),
              (7, 8, 4, 15), (9, 12, 3, 15)),
    600: rows((2, 2, 9, 9), (3, 3, 8, 13), (4, 4, 8, 16), (5, 5, 7, 18), (6, 6, 7, 20), (7, 7, 6, 22),
              (8, 8, 6, 23), (9, 9, 5, 24), (10, 11, 5, 25), (12, 16, 4, 25), (17, 20, 3, 25)),
    1000: rows((2, 2, 9, 10), (3, 3, 10, 15), (4, 4, 9, 19), (5, 5, 9, 22), (6, 6, 8, 25), (7, 7, 8, 27),
               (8, 8, 7, 29), (9, 9, 7, 30), (10, 10, 6, 31), (11, 11, 6, 32), (12, 15, 5, 32),
               (16, 21, 4, 32),
               (22, 26, 3, 32)),
}  # fmt: skip


@pytest.mark.parametrize(("groups", "redundancy"), CHECK_VALUES)
def test_check_values(groups, redundancy):
    endured, depth, interval_s = CHECK_VALUES[groups, redundancy]
    mu = closed_form.endured_failures(groups, redundancy)
    assert mu == pytest.approx(endured, abs=0.05)
    assert closed_form.mean_depth_bound(groups, mu) == pytest.approx(depth, abs=0.005)
    assert closed_form.best_checkpoint_interval_s(60, 300 * mu, 3600) == pytest.approx(interval_s, abs=0.5)


def test_best_redundancy():
    assert [closed_form.best_redundancy(n) for n in (1, 2, 4, 200, 600, 1000)] == [1, 1, 2, 8, 10, 10]


def test_replications_own_mean():
    assert closed_form.replication_endured_failures(200, 3) == pytest.approx(44.0, abs=0.05)
    assert closed_form.endured_failures(200, 3) == pytest.approx(30.5, abs=0.05)


@pytest.mark.parametrize("policy", ["replication", "spare"])
@pytest.mark.parametrize("groups", PUBLISHED_STEPS)
def test_checkpoint_rule_is_within_one_of_the_published_list(groups, policy):
    for redundancy, (replication, spare) in PUBLISHED_STEPS[groups].items():
        found = closed_form.default_checkpoint_steps(policy, groups, redundancy)
        assert abs(found - (replication if policy == "replication" else spare)) <= 1


@given(st.floats(0.1, 1e3), st.floats(1.0, 1e6), st.floats(0, 1e5))
def test_interval_is_where_availability_is_largest(save_s, between_s, restart_s):
    best_s = closed_form.best_checkpoint_interval_s(save_s, between_s, restart_s)

    def lost(log_interval):
        return -closed_form.availability(math.exp(log_interval), save_s, between_s, restart_s)

    found = optimize.minimize_scalar(
        lost,
        bounds=(math.log(save_s * 1.0001), math.log(best_s) + 5),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert -found.fun <= closed_form.availability(best_s, save_s, between_s, restart_s) * (1 + 1e-9)


@given(st.integers(2, 400), st.integers(1, 12), st.integers(1, 32))
def test_depth_bounds_by_counting(groups, redundancy, micro_batches):
    redundancy = min(redundancy, groups)
    endured = closed_form.endured_failures(groups, redundancy)
    bound = closed_form.mean_depth_bound(groups, endured, micro_batches)
    failures = max(1, min(groups, math.floor(endured)))
    exact = np.mean([-(-groups * micro_batches // (groups - k)) / micro_batches for k in range(failures)])
    assert bound == pytest.approx(exact, rel=1e-12)
    assert bound <= closed_form.mean_depth_bound(groups, endured, 1) + 1e-12
    finer = closed_form.mean_depth_bound(groups, endured, 2 * micro_batches)
    assert finer <= bound + 1e-12


@given(st.integers(1, 300), st.integers(1, 20))
def test_finite_sum_by_fractions(groups, redundancy):
    redundancy = min(redundancy, groups)
    total = sum(
        (1 - math.comb(k, redundancy) / math.comb(groups, redundancy)) ** groups for k in range(1, groups)
    )
    found = closed_form.endured_failures_finite(groups, redundancy)
    assert found == pytest.approx(0 if redundancy == 1 else total, rel=1e-9, abs=1e-12)


def test_ends():
    assert closed_form.endured_failures_finite(50, 1) == 0
    assert closed_form.endured_failures_finite(50, 50) == 49
    assert closed_form.replication_endured_failures_finite(50, 50) == pytest.approx(49)
    assert closed_form.mean_depth_finite(50, 1) == 1
    assert closed_form.checkpoint_steps(10, 2, 64, 6) == 1


@pytest.mark.parametrize("micro_batches", [1, 4, 16])
@pytest.mark.parametrize("redundancy", [3, 5, 9])
def test_depth_against_the_solver(redundancy, micro_batches):
    """Both forms bound from below; the finite one is near where survivors share little alone."""
    groups = 200
    runs = endurance(placements.golomb(groups, redundancy), trials=150, seed=2, micro_batches=micro_batches)
    # Pooled over failures, as the form is.
    measured = float((runs.mean_depth * runs.endured).sum() / runs.endured.sum())
    spread = 4 * runs.mean_depth.std() / math.sqrt(150)
    finite = closed_form.mean_depth_finite(groups, redundancy, micro_batches)
    bound = closed_form.mean_depth_bound(
        groups, closed_form.endured_failures(groups, redundancy), micro_batches
    )
    assert bound < measured + spread
    assert finite < measured + spread
    assert finite > measured * (0.9 if redundancy == 3 else 0.95) - spread


def test_time_to_train_is_depth_over_availability():
    mu = closed_form.endured_failures(600, 9)
    interval_s = closed_form.best_checkpoint_interval_s(60, 300 * mu, 3600)
    expected = closed_form.mean_depth_bound(600, mu, 8) / closed_form.availability(
        interval_s, 60, 300 * mu, 3600
    )
    assert closed_form.time_to_train(600, 9, 8) == pytest.approx(expected, rel=1e-12)
    # Whole shards: the least near the paper's rule; micro-batches: no less redundancy.
    whole = min(range(2, 21), key=lambda r: closed_form.time_to_train(600, r))
    parts = min(range(2, 21), key=lambda r: closed_form.time_to_train(600, r, 16))
    assert abs(whole - closed_form.best_redundancy(600)) <= 2
    assert closed_form.time_to_train(600, parts, 16) < closed_form.time_to_train(600, whole)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: closed_form.endured_failures(0, 1), "groups 0 found"),
        (lambda: closed_form.endured_failures(5, 6), "redundancy 6 found, expected 1 to 5"),
        (lambda: closed_form.mean_depth_bound(5, 6.0), "expected 0 to 5"),
        (lambda: closed_form.mean_depth_bound(5, math.nan), "nan found"),
        (lambda: closed_form.mean_depth_bound(5, 2.0, 0), "micro-batches 0 found"),
        (lambda: closed_form.best_checkpoint_interval_s(-1, 2, 3), "-1"),
        (lambda: closed_form.best_checkpoint_interval_s(1, 0, 3), "above 0"),
        (lambda: closed_form.availability(1, 2, 3, 4), "at least the time to write one"),
        (lambda: closed_form.time_to_train(5, 2, mtbf_s=0), "above 0"),
        (lambda: closed_form.endured_failures(2**40, 2), "at most"),
        (lambda: closed_form.endured_failures(True, 1), "True"),
    ],
)
def test_values_that_cannot_be(call, words):
    with pytest.raises(SpareError, match=words):
        call()


def test_student_t():
    for freedom in (1, 2, 3, 4, 5, 10, 99, 1000):
        assert student_t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)
    low, high = stats.t.interval(0.95, 4, loc=3.0, scale=stats.sem([1, 2, 3, 4, 5]))
    found = estimate([1, 2, 3, 4, 5])
    assert (found.mean - found.ci95, found.mean + found.ci95) == pytest.approx((low, high))
    assert math.isnan(estimate([]).mean)
    assert math.isnan(estimate([2.0]).ci95)
