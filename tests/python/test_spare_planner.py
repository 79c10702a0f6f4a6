"""The planner against what it plans with: every way to run a small fleet, simulated by hand."""

import dataclasses
import math
import re
from pathlib import Path

import numpy as np
import pytest

from prismcore.errors import SpareError
from prismcore.spare import closed_form
from prismcore.spare.candidate import predict, step_s
from prismcore.spare.fleet import check_gpus, paper_gpus, paper_mtbf_s
from prismcore.spare.life import LifeOptions, simulate
from prismcore.spare.planner import GIVEN_UP, TIE, PlanOptions, divisors, plan, simulate_in_rounds, words

#: Few groups that fail often: a plan takes a second.
SMALL = LifeOptions(groups=60, steps=400, mtbf_s=2_000, restart_s=1_200, seeds=3, threads=2)


@pytest.fixture(scope="module")
def small():
    return plan(PlanOptions(life=SMALL, granularities=(1, 4)))


def test_a_step_without_jitter():
    life = LifeOptions(groups=600, layer_s=64, allreduce_s=6, jitter=0)
    assert step_s(life, 1) == 70
    assert step_s(life, 2.5) == 166


@pytest.mark.parametrize("groups", [1, 2, 10, 600])
def test_a_step_waits_for_the_slowest_group(groups):
    life = LifeOptions(groups=groups, layer_s=10, allreduce_s=1, jitter=0.05)
    drawn = np.random.default_rng(1).normal(2, 0.05 * math.sqrt(2), (20_000, groups)).max(axis=1).mean()
    assert step_s(life, 2) == pytest.approx(10 * drawn + 1, rel=3e-3)


def test_a_prediction_is_the_closed_forms():
    life = LifeOptions(groups=600, jitter=0, model="corrected")
    found = predict(life, "spare", 9, 8)
    endured, depth = closed_form.endured_failures(600, 9), closed_form.mean_depth_finite(600, 9, 8)
    assert (found.endured, found.depth) == (endured, depth)
    step = 64 * depth + 6
    assert found.checkpoint_interval_s == pytest.approx(found.checkpoint_steps * step)
    up = closed_form.availability(found.checkpoint_interval_s + 60, 60, 300 * endured, 3_600)
    assert found.availability == pytest.approx(up)
    assert found.ttt_ratio == pytest.approx(step / 70 / up)


def test_predictions_of_the_other_policies():
    life = LifeOptions(groups=600, jitter=0)
    three = predict(life, "replication", 3)
    assert three.endured == closed_form.replication_endured_failures(600, 3)
    assert three.depth == 3
    alone = predict(life, "checkpoint-only", 1)
    assert (alone.endured, alone.depth) == (1, 1)
    assert alone.ttt_ratio > 10


def test_predictions_come_close_where_bursts_are_rare():
    """An exponential clock, no jitter, short restarts and small patches: what the closed forms assume."""
    life = LifeOptions(
        groups=600, distribution="exponential", jitter=0, restart_s=60, model="corrected", seeds=3, threads=2
    )
    for redundancy in (6, 12):
        found = predict(life, "spare", redundancy, 16)
        result = simulate(
            dataclasses.replace(
                life, redundancy=redundancy, micro_batches=16, checkpoint_steps=found.checkpoint_steps
            )
        )
        assert result.mean_depth.mean == pytest.approx(found.depth, rel=0.03)
        assert result.ttt_ratio.mean == pytest.approx(found.ttt_ratio, rel=0.15)
        assert result.ttt_ratio.mean > found.ttt_ratio  # patches


def test_the_best_way_is_found(small):
    """Against simulating every redundancy and granularity."""
    every = {}
    for redundancy in range(2, 8):
        for parts in (1, 4):
            candidate = predict(SMALL, "spare", redundancy, parts)
            result = simulate(
                dataclasses.replace(
                    SMALL,
                    redundancy=redundancy,
                    micro_batches=parts,
                    checkpoint_steps=candidate.checkpoint_steps,
                    limit_ratio=GIVEN_UP,
                )
            )
            every[redundancy, parts] = result.ttt_ratio.mean
    chosen = small.chosen
    assert small.chosen.best_known_ratio == every[chosen.redundancy, chosen.micro_batches]
    assert chosen.best_known_ratio <= 1.02 * min(every.values())
    for candidate in small.alternatives:
        key = candidate.redundancy, candidate.micro_batches
        assert candidate.best_known_ratio == every[key], words(candidate)


def test_alternatives_are_sorted_and_hold_the_chosen(small):
    ratios = [c.best_known_ratio for c in small.alternatives[1:]]
    assert ratios == sorted(ratios)
    assert small.alternatives[0] == small.chosen
    assert small.chosen.best_known_ratio <= (1 + TIE) * ratios[0]
    assert {c.micro_batches for c in small.alternatives} == {1, 4}
    assert small.replication
    assert small.chosen.best_known_ratio < small.replication[0].best_known_ratio
    # Neighbours of the best were looked at.
    keys = {(c.redundancy, c.micro_batches) for c in small.alternatives}
    assert {(small.chosen.redundancy + d, small.chosen.micro_batches) for d in (-1, 1)} <= keys


def test_savings_are_days_and_gpu_hours(small):
    other = small.replication[0]
    saving = small.saving(other, gpus=400)
    ideal_days = 400 * (64 + 0.6) / 86_400
    ratio = other.best_known_ratio - small.chosen.best_known_ratio
    assert saving.ratio == ratio
    assert saving.days == pytest.approx(ratio * ideal_days)
    assert saving.gpu_hours == pytest.approx(saving.days * 24 * 400)


def test_what_never_ends_is_infinitely_long():
    life = dataclasses.replace(SMALL, groups=600, mtbf_s=300, restart_s=3_600, seeds=1, steps=200)
    found = plan(PlanOptions(life=life, granularities=(4,), redundancy=8))
    assert math.isinf(found.checkpoint_only.best_known_ratio)
    assert math.isinf(found.saving(found.checkpoint_only, 600).days)


def test_plans_do_not_depend_on_threads(small):
    again = plan(PlanOptions(life=dataclasses.replace(SMALL, threads=1), granularities=(1, 4)))
    assert [c.key for c in again.alternatives] == [c.key for c in small.alternatives]
    assert [c.best_known_ratio for c in again.alternatives] == [
        c.best_known_ratio for c in small.alternatives
    ]


def test_rounds_of_seeds_are_one_simulation():
    life = dataclasses.replace(SMALL, redundancy=4, micro_batches=2, seeds=5)
    whole, told = simulate(life), []
    rounds = simulate_in_rounds(life, lambda done, total, what: told.append((done, total)), "x")
    assert rounds.trials == whole.trials
    assert rounds.ttt_ratio == whole.ttt_ratio
    assert rounds.options == life
    assert told == [(0, 5), (2, 5), (4, 5)]


def test_of_equal_ways_the_one_that_stores_least():
    """Repaired at once: no redundancy beyond 2 is of use."""
    life = dataclasses.replace(SMALL, mtbf_s=20_000, repair_s=0, jitter=0, seeds=1)
    found = plan(PlanOptions(life=life, granularities=(8,), whole_curves=True))
    ratios = {c.redundancy: c.best_known_ratio for c in found.alternatives}
    assert max(ratios.values()) < 1.1
    as_good = [r for r, ratio in ratios.items() if ratio <= (1 + TIE) * min(ratios.values())]
    assert found.chosen.redundancy == min(as_good)
    assert found.alternatives[0] == found.chosen


def test_a_given_redundancy_is_kept():
    found = plan(PlanOptions(life=SMALL, granularities=(1, 2), redundancy=5))
    assert {c.redundancy for c in found.alternatives} == {5}


def test_whole_curves_hold_every_redundancy():
    life = dataclasses.replace(SMALL, steps=50, seeds=1)
    found = plan(PlanOptions(life=life, granularities=(1, 2), whole_curves=True))
    for parts in {1, found.chosen.micro_batches}:
        shown = sorted(c.redundancy for c in found.alternatives if c.micro_batches == parts)
        assert shown == list(range(2, 8))


def test_divisors():
    assert divisors(1) == (1,)
    assert divisors(12) == (1, 2, 3, 4, 6, 12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"life": LifeOptions(groups=1)}, "groups 1 found, expected at least 3"),
        ({"life": LifeOptions(groups=2)}, "groups 2 found, expected at least 3"),
        (
            {"life": LifeOptions(groups=30), "redundancy": 9},
            "redundancy 9 and groups 30 found, expected 89 groups or redundancy",
        ),
        ({"life": LifeOptions(groups=2000), "redundancy": 1000}, "redundancy 1000 and groups 2000 found"),
        ({"life": LifeOptions(model="mine")}, "model 'mine' found"),
        ({"life": LifeOptions(distribution="gamma")}, "distribution 'gamma' found"),
    ],
)
def test_what_cannot_be_planned(options, message):
    with pytest.raises(SpareError, match=message):
        plan(PlanOptions(**options))


def test_the_guides_program():
    guide = Path(__file__).resolve().parents[2] / "docs" / "guide-spare.md"
    (program,) = re.findall(r"```python\n(.*?)```", guide.read_text(), re.S)
    names = {}
    exec(program, names)
    assert names["best"].redundancy >= 2


def test_the_papers_fleet_scaled():
    assert paper_gpus(600) == paper_gpus(9_375) == 600_000
    assert paper_gpus(7) == 599_998
    assert paper_mtbf_s(600_000) == 300
    assert paper_mtbf_s(8_192) == pytest.approx(21_972.65625)
    check_gpus(1200, 600)
    for gpus in (599, 601, 1):
        with pytest.raises(SpareError, match=f"GPUs {gpus} and groups 600 found, expected"):
            check_gpus(gpus, 600)
