"""Lives against a plain second simulator, closed forms, and conservation of time."""

from __future__ import annotations

import math
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from spare_life_oracle import oracle_life

from prismcore import _core
from prismcore.spare import placement as placements
from prismcore.spare.closed_form import endured_failures_finite
from prismcore.spare.failures import FailureTrace
from prismcore.spare.life import LifeOptions, endurance, simulate
from prismcore.spare.life_options import MODELS, POLICIES, QUIRKS

NO_FAILURES = FailureTrace(failures=((0, 10**18),))


def tenth_seconds(draw, low, high):
    return draw(st.integers(low, high)) / 10


@st.composite
def traced_lives(draw):
    """Small jobs that fail often: every quirk on or off by itself."""
    policy = draw(st.sampled_from(POLICIES))
    groups = draw(st.integers(1, 14))
    fits = [r for r in range(1, groups + 1) if policy != "spare" or placements.groups_needed(r) <= groups]
    failures = st.tuples(st.integers(0, groups - 1), st.integers(0, 4000).map(lambda t: t * 100_000_000))
    return LifeOptions(
        policy=policy,
        groups=groups,
        redundancy=draw(st.sampled_from(fits)),
        micro_batches=draw(st.integers(1, 4)) if policy == "spare" else 1,
        steps=draw(st.integers(1, 12)),
        layer_s=tenth_seconds(draw, 1, 80),
        allreduce_s=tenth_seconds(draw, 0, 30),
        restart_s=tenth_seconds(draw, 0, 300),
        load_s=tenth_seconds(draw, 0, 20),
        checkpoint_s=tenth_seconds(draw, 0, 30),
        checkpoint_steps=draw(st.integers(0, 4)),
        reorder_s=tenth_seconds(draw, 0, 3),
        shrink_s=tenth_seconds(draw, 0, 3),
        rejoin_s=tenth_seconds(draw, 0, 20),
        swap_s=tenth_seconds(draw, 0, 20),
        spares=draw(st.integers(0, 2)),
        repair_s=draw(st.none() | st.integers(0, 300).map(lambda t: t / 10)),
        jitter=0.0,
        trace=FailureTrace(failures=tuple(draw(st.lists(failures, min_size=1, max_size=60)))),
        quirks={name: draw(st.booleans()) for name in QUIRKS},
        limit_ratio=1e6,
        seeds=1,
        threads=1,
        record_events=True,
    )


@settings(max_examples=400, deadline=None)
@given(traced_lives())
def test_equals_the_plain_simulator_to_the_nanosecond(options):
    expected = oracle_life(options)
    (trial,) = simulate(options).trials
    assert [(e.time_ns, e.kind, e.value) for e in trial.events] == expected.events
    assert trial.total_ns == expected.total_ns
    assert trial.finished == expected.finished
    assert (trial.failures, trial.restart_failures) == (expected.failures, expected.restart_failures)
    assert trial.split_ns["restart"] == expected.restart_ns
    assert trial.split_ns["checkpoint"] == expected.checkpoint_ns


@settings(max_examples=60, deadline=None)
@given(
    policy=st.sampled_from(POLICIES),
    model=st.sampled_from(MODELS),
    groups=st.integers(4, 30),
    redundancy=st.integers(1, 3),
    micro_batches=st.integers(1, 4),
    jitter=st.sampled_from([0.0, 0.05, 0.3]),
    domain_share=st.sampled_from([0.0, 0.3]),
    repair_s=st.sampled_from([None, 0.0, 500.0]),
    seed=st.integers(0, 1000),
)
def test_time_adds_up(policy, model, groups, redundancy, micro_batches, jitter, domain_share, repair_s, seed):  # noqa: PLR0917
    if policy == "spare" and placements.groups_needed(redundancy) > groups:
        redundancy = 1
    result = simulate(
        LifeOptions(
            policy=policy,
            model=model,
            groups=groups,
            redundancy=redundancy,
            micro_batches=micro_batches if policy == "spare" else 1,
            steps=200,
            restart_s=600,
            mtbf_s=2000,
            jitter=jitter,
            domain_groups=4,
            domain_share=domain_share,
            repair_s=repair_s,
            seeds=2,
            first_seed=seed,
            limit_ratio=30,
        )
    )
    for trial in result.trials:
        assert sum(trial.split_ns.values()) == trial.total_ns
        assert all(ns >= 0 for name, ns in trial.split_ns.items() if name not in ("jitter", "rework"))
        if trial.finished:
            assert trial.split_ns["compute"] <= 200 * 64_000_000_000
            if micro_batches == 1 or policy != "spare":
                assert trial.split_ns["compute"] == 200 * 64_000_000_000
        assert 0 <= trial.availability <= 1
        assert trial.restarts == trial.wipeouts


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("policy", POLICIES)
def test_without_failures_only_redundancy_and_checkpoints_cost(policy, model):
    options = LifeOptions(
        policy=policy,
        model=model,
        groups=12,
        redundancy=3,
        steps=100,
        allreduce_s=2,
        jitter=0,
        trace=NO_FAILURES,
        checkpoint_steps=10,
        seeds=1,
    )
    (trial,) = simulate(options).trials
    depth = 3 if policy == "replication" else 1
    assert trial.total_ns == (100 * (64 * depth + 2) + 10 * 60) * 10**9
    assert trial.mean_depth == depth
    assert trial.mean_compute == depth
    (bare,) = simulate(
        LifeOptions(
            policy="spare",
            groups=12,
            redundancy=3,
            steps=100,
            jitter=0,
            trace=NO_FAILURES,
            checkpoint_steps=0,
            seeds=1,
            model=model,
        )
    ).trials
    assert bare.ttt_ratio == 1.0
    assert bare.availability == 1.0
    assert math.isnan(bare.endured_per_wipeout)


def test_checkpoint_only_meets_the_renewal_formula():
    """One group, exponential failures, restarts that cannot fail and cost nothing, no redone step: a stretch
    of work w against rate a takes (e^(a w) - 1)/a, plus what a step takes to notice the failure."""
    step_s, every, mtbf_s = 10.0, 20, 600.0
    options = LifeOptions(
        policy="checkpoint-only",
        model="corrected",
        groups=1,
        steps=4000,
        layer_s=9.999,
        allreduce_s=0.001,
        restart_s=0,
        checkpoint_s=0,
        reorder_s=0,
        shrink_s=0,
        jitter=0,
        mtbf_s=mtbf_s,
        distribution="exponential",
        checkpoint_steps=every,
        seeds=200,
    )
    result = simulate(options)
    # With no survivor left, time stands where the last group failed: nothing is added for noticing.
    stretch_s = mtbf_s * (math.exp(every * step_s / mtbf_s) - 1)
    expected = stretch_s / (every * step_s)
    assert result.ttt_ratio.mean == pytest.approx(expected, abs=2 * result.ttt_ratio.ci95)
    assert result.ttt_ratio.ci95 < 0.01 * expected


def test_a_restart_needs_its_window_undisturbed():
    """Mean time until a gap of length w in a Poisson process of rate a: (e^(a w) - 1)/a."""
    mtbf_s, window_s = 500.0, 700.0
    result = simulate(
        LifeOptions(
            policy="checkpoint-only",
            groups=1,
            steps=500,
            layer_s=20,
            allreduce_s=0,
            restart_s=window_s,
            checkpoint_s=0,
            checkpoint_steps=1,
            jitter=0,
            mtbf_s=mtbf_s,
            distribution="exponential",
            seeds=100,
            limit_ratio=1e4,
        )
    )
    mean_s = result.over_seeds(lambda trial: trial.split_ns["restart"] / trial.restarts / 1e9)
    assert mean_s.mean == pytest.approx(mtbf_s * (math.exp(window_s / mtbf_s) - 1), abs=2 * mean_s.ci95)


@pytest.mark.parametrize("policy", POLICIES)
def test_equal_for_any_number_of_threads(policy):
    def trials(threads):
        options = LifeOptions(
            policy=policy,
            groups=60,
            redundancy=3,
            micro_batches=2 if policy == "spare" else 1,
            steps=300,
            seeds=7,
            threads=threads,
            record_events=True,
        )
        return simulate(options).trials

    assert trials(1) == trials(4)
    first = simulate(
        LifeOptions(
            policy=policy,
            groups=60,
            redundancy=3,
            steps=300,
            seeds=1,
            first_seed=3,
            micro_batches=2 if policy == "spare" else 1,
            record_events=True,
        )
    ).trials[0]
    assert first == trials(2)[3]


def test_largest_of_n_normals():
    """One draw by the inverse of F^n, against the same distribution from scipy."""
    for count in (1, 2, 9, 200, 1000):
        drawn = _core.spare_largest_normals(7, float(count), 20_000)
        assert stats.kstest(drawn, lambda z, n=count: stats.norm.cdf(z) ** n).pvalue > 1e-4
    tails = np.concatenate([np.logspace(-300, -1, 200), np.linspace(0.1, 0.9999, 200)])
    ours = np.array([_core.spare_normal_quantile_above(float(t)) for t in tails])
    np.testing.assert_allclose(ours, stats.norm.isf(tails), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("micro_batches", [1, 4])
def test_slowest_by_order_statistics_equals_drawing_every_group(micro_batches):
    def totals(every_group):
        return [
            trial.total_ns / 1e9
            for trial in simulate(
                LifeOptions(
                    groups=40,
                    redundancy=4,
                    micro_batches=micro_batches,
                    steps=150,
                    mtbf_s=3000,
                    seeds=200,
                    jitter_every_group=every_group,
                    first_seed=1000 * every_group,
                )
            ).trials
        ]

    assert stats.ks_2samp(totals(False), totals(True)).pvalue > 1e-3


def test_lifetimes_have_the_mean_and_shape_asked_for():
    """First failures of a fleet that never computes long: Weibull by group, and rack failures together."""
    result = simulate(
        LifeOptions(
            policy="checkpoint-only",
            groups=1,
            steps=1,
            layer_s=1e5,
            jitter=0,
            allreduce_s=0,
            restart_s=0,
            distribution="weibull:0.78",
            mtbf_s=1000,
            seeds=4000,
            record_events=True,
            limit_ratio=1e-9,
        )
    )
    first = np.array([trial.events[0].time_ns / 1e9 for trial in result.trials])
    scale = 1000 / math.gamma(1 + 1 / 0.78)
    assert stats.kstest(first, stats.weibull_min(0.78, scale=scale).cdf).pvalue > 1e-4


def test_a_domain_fails_together():
    options = LifeOptions(
        policy="replication",
        groups=12,
        redundancy=12,
        steps=400,
        mtbf_s=3000,
        restart_s=0,
        domain_groups=4,
        domain_share=1.0,
        seeds=3,
        jitter=0,
        record_events=True,
        model="corrected",
        checkpoint_steps=0,
    )
    for trial in simulate(options).trials:
        at: dict[int, set[int]] = {}
        for event in trial.events:
            if event.kind == "failure":
                at.setdefault(event.time_ns, set()).add(event.value)
        assert at
        for groups in at.values():
            assert all({4 * (g // 4) + i for i in range(4)} <= groups for g in groups)


def test_racks_wipe_out_golomb_but_not_a_domain_placement():
    def endured(placement):
        found = simulate(
            LifeOptions(
                groups=120,
                redundancy=4,
                placement=placement,
                mtbf_s=2000,
                domain_groups=6,
                domain_share=0.3,
                steps=3000,
                seeds=6,
            )
        )
        assert found.finished
        return found.endured_per_wipeout.mean

    aware = placements.domains(4, [group // 6 for group in range(120)])
    assert endured(aware) > 1.1 * endured(placements.golomb(120, 4))


def test_endurance_meets_the_finite_sum():
    for groups, redundancy in ((100, 6), (200, 5), (200, 12), (600, 8)):
        placement = placements.golomb(groups, redundancy)
        found = endurance(placement, trials=4000, seed=5).endured
        error = found.std() / math.sqrt(len(found))
        expected = endured_failures_finite(groups, redundancy)
        assert abs(found.mean() - expected) < 0.01 * expected + 4 * error
    assert (endurance(placements.golomb(9, 1), trials=50).endured == 0).all()
    everywhere = placements.cyclic(6, 6)
    assert (endurance(everywhere, trials=50).endured == 5).all()


def test_endurance_with_depths_counts_the_same_failures():
    placement = placements.golomb(60, 4)
    for micro_batches in (1, 4):
        with_depth = endurance(placement, trials=40, seed=3, micro_batches=micro_batches, threads=2)
        assert (with_depth.endured == endurance(placement, trials=40, seed=3, threads=1).endured).all()
        assert (with_depth.mean_depth >= 1).all()
    whole = endurance(placement, trials=40, seed=3, micro_batches=1).mean_depth
    parts = endurance(placement, trials=40, seed=3, micro_batches=8).mean_depth
    assert (parts <= whole + 1e-12).all()


def test_edges():
    alone = simulate(
        LifeOptions(groups=1, redundancy=1, steps=50, mtbf_s=2000, restart_s=1, seeds=2, limit_ratio=1000)
    )
    assert alone.finished
    # Everything fails in one step: a wipe-out, then the job goes on.
    at_once = FailureTrace(failures=tuple((group, 5 * 10**9) for group in range(12)))
    (trial,) = simulate(
        LifeOptions(groups=12, redundancy=3, steps=5, jitter=0, trace=at_once, seeds=1)
    ).trials
    assert trial.finished
    assert (trial.wipeouts, trial.failures) == (1, 12)
    assert trial.endured_per_wipeout < 12


def test_a_life_without_progress_ends_and_says_so():
    begin = time.monotonic()
    result = simulate(LifeOptions(policy="checkpoint-only", groups=50, steps=1000, seeds=2))
    assert not result.finished
    assert result.to_dict()["finished"] is False
    assert result.ttt_ratio.mean >= 100
    # Failures far denser than restarts: bounded by their number.
    assert not simulate(LifeOptions(groups=4, redundancy=1, steps=10, mtbf_s=1e-9, seeds=1)).finished
    assert time.monotonic() - begin < 120


def test_the_gil_is_free_meanwhile():
    ticks = 0
    done = threading.Event()

    def work():
        simulate(LifeOptions(groups=200, redundancy=9, steps=2000, seeds=4, threads=1))
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 3


def test_result_as_json():
    found = simulate(LifeOptions(groups=60, redundancy=4, steps=400, seeds=3)).to_dict()
    keys = {"ttt_ratio", "availability", "mean_depth", "mean_compute", "failures", "endured_per_wipeout"}
    keys |= {"wipeouts", "restarts", "reorders"}
    assert keys <= found.keys()
    assert set(found["ci95"]) == keys
    assert found["seeds"] == 3
    assert found["wall_time_s"] > 0
    assert sum(found["time_split"].values()) == pytest.approx(1)
