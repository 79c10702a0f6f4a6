"""Trainings in processes of their own, whose groups are killed, stopped and brought back."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spare_training import (
    KILLED,
    PATIENCE_S,
    Groups,
    Lighthouse,
    Training,
    assert_same,
    losses_of,
    run,
    wait_for,
)

from prismcore.spare.placement import golomb
from prismcore.spare.reorderer import Reorderer
from prismcore.spare.runtime.inject import POINTS, Injection, fail, hang, pause

pytestmark = pytest.mark.torch


EIGHT = {"groups": 8, "redundancy": 3, "micro_batches": 4}


@pytest.fixture(scope="module")
def undisturbed_eight(lighthouse: Lighthouse, tmp_path_factory: pytest.TempPathFactory) -> Training:
    training = Training(folder=tmp_path_factory.mktemp("eight"), lighthouse=lighthouse.address, **EIGHT)
    assert set(run(training).values()) == {0}
    return training


@pytest.fixture(scope="module")
def deterministic_eight(lighthouse: Lighthouse, tmp_path_factory: pytest.TempPathFactory) -> Training:
    folder = tmp_path_factory.mktemp("deterministic")
    training = Training(folder=folder, lighthouse=lighthouse.address, deterministic=True, **EIGHT)
    assert set(run(training).values()) == {0}
    return training


def test_undisturbed_is_what_one_process_computes(undisturbed: Training) -> None:
    """Against plain torch: all micro-batches of a step, one after the other."""
    import torch
    from spare_training import samples_of

    from prismcore.spare.runtime.seeds import seed_for
    from prismcore.spare.runtime.work import Work

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for step in range(undisturbed.steps):
        total = 0.0
        parts = undisturbed.groups * undisturbed.micro_batches
        for shard in range(undisturbed.groups):
            for micro_batch in range(undisturbed.micro_batches):
                torch.manual_seed(seed_for(0, Work(step, shard, micro_batch)))
                x, y = samples_of(undisturbed, step, shard, micro_batch)
                loss = torch.nn.functional.mse_loss(model(x), y)
                (loss / parts).backward()
                total += float(loss.detach())
        losses.append(total / parts)
        optimizer.step()
        optimizer.zero_grad()
    assert losses_of(undisturbed) == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("point", [point for point in POINTS if point not in ("patch", "transfer")])
def test_a_group_is_killed_at(
    point: str, lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path
) -> None:
    """Points of the recovery itself strike a second group, while the first one's loss is dealt with."""
    first = fail(group=2).during("compute", step=3, visit=1)
    strikes = {
        "agree": [first, fail(group=0).during("agree", step=3)],
        "configure": [first, fail(group=0).during("configure", step=3)],
        "ready": [first, fail(group=0).during("ready", step=3)],
    }.get(point, [fail(group=0).during(point, step=3)])
    training = Training(folder=tmp_path, lighthouse=lighthouse.address, inject=strikes)
    ends = run(training)
    assert {group for group, code in ends.items() if code == KILLED} == {s.group for s in strikes}
    assert set(ends.values()) == {0, KILLED}
    assert_same(training, undisturbed)


def test_a_group_is_killed_while_it_patches(
    lighthouse: Lighthouse, undisturbed_eight: Training, tmp_path: Path
) -> None:
    plan = Reorderer(golomb(8, 3), micro_batches=4).fail([7])
    patching = int(plan.patches[0][0])
    strikes = [fail(group=7).during("reduce", step=2), fail(group=patching).during("patch", step=2)]
    training = Training(folder=tmp_path, lighthouse=lighthouse.address, inject=strikes, **EIGHT)
    ends = run(training)
    assert {group for group, code in ends.items() if code == KILLED} == {7, patching}
    assert_same(training, undisturbed_eight)


SEEDS = int(os.environ.get("PRISM_SPARE_SEEDS", "0"))
"""None: a few, in the default run."""


def three_losses(seed: int, strike: Callable[..., Any] = fail) -> list[Injection]:
    """Three groups at random points of random steps, some in the recovery from another's loss; never all
    hosts of a shard. Whom, at which visit of which point in which step, is the seed's alone to say; how far
    the others are by then, and so whether a recovery is in that step or the next, is the machine's."""
    rng = random.Random(seed)
    hosts = golomb(8, 3).hosts()
    while True:
        groups = rng.sample(range(8), 3)
        if not any(set(groups) == set(of.tolist()) for of in hosts):
            break
    points = ("compute", "reduce", "summed", "commit", "passed", "committed", "boundary")
    steps = [rng.randrange(1, 6) for _ in groups]
    strikes = [
        strike(group=group).during(point, step=step, visit=rng.randrange(2) if point == "compute" else 0)
        for group, step in zip(groups, steps, strict=True)
        for point in [rng.choice(points)]
    ]
    # Where another is lost before the barrier, the step is committed by agreement: nobody passes it.
    strikes += [replace(s, point="committed") for s in strikes[:2] if s.point == "passed"]
    if (
        strikes[2].point == "passed" or rng.random() < 0.5
    ):  # whether the recovery is in that step or the next is the first one's point to say
        point = rng.choice(("agree", "configure", "transfer", "ready", "reduce"))
        visit = int(point == "reduce")
        again = strike(group=groups[2]).during(point, step=steps[0], visit=visit)
        strikes[2] = again
        strikes.append(replace(again, step=steps[0] + 1))
        strikes.append(strike(group=groups[2]).during("reduce", step=5 if steps[0] < 4 else 1))
    return strikes


@pytest.mark.parametrize("seed", range(SEEDS or 6))
@pytest.mark.parametrize("deterministic", [False, True], ids=["", "deterministic"])
def test_three_of_eight_groups_are_killed(
    seed: int, deterministic: bool, lighthouse: Lighthouse, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """To the last bit in deterministic mode."""
    name = "deterministic_eight" if deterministic else "undisturbed_eight"
    undisturbed: Training = request.getfixturevalue(name)
    training = Training(
        folder=tmp_path,
        lighthouse=lighthouse.address,
        inject=three_losses(seed),
        deterministic=deterministic,
        **EIGHT,
    )
    ends = run(training)
    assert sorted(ends.values()) == [KILLED] * 3 + [0] * 5
    assert_same(training, undisturbed)
    if deterministic:
        assert losses_of(training) == losses_of(undisturbed)
        assert set(training.weights().values()) == set(undisturbed.weights().values())


@pytest.mark.parametrize("seed", range(SEEDS or 1))
def test_three_of_eight_groups_are_stopped(
    seed: int, lighthouse: Lighthouse, undisturbed_eight: Training, tmp_path: Path
) -> None:
    """They never go on."""
    strikes = three_losses(seed, hang)
    training = Training(folder=tmp_path, lighthouse=lighthouse.address, inject=strikes, **EIGHT)
    stopped = {strike.group for strike in strikes}
    with Groups(training) as groups:
        processes = [groups.start(group) for group in range(8)]
        for group in set(range(8)) - stopped:
            processes[group].join(PATIENCE_S)
            assert processes[group].exitcode == 0
        assert [processes[group].exitcode for group in stopped] == [None] * 3
    assert_same(training, undisturbed_eight)


def test_whole_shards_as_in_the_paper(lighthouse: Lighthouse, tmp_path: Path) -> None:
    """m = 1: groups compute shards that others count, and give them once those are gone."""
    trainings = []
    for name, strikes in (
        ("whole", []),
        ("broken", [fail(group=1).during("compute", step=1), fail(group=6).during("reduce", step=3)]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        training = Training(
            folder=folder,
            lighthouse=lighthouse.address,
            groups=8,
            redundancy=3,
            micro_batches=1,
            steps=5,
            inject=strikes,
        )
        ends = run(training)
        assert sum(code == KILLED for code in ends.values()) == len(strikes)
        trainings.append(training)
    assert losses_of(trainings[1]) == pytest.approx(losses_of(trainings[0]), rel=1e-6)


def test_a_group_whose_program_sleeps_is_waited_for(undisturbed: Training, tmp_path: Path) -> None:
    """It shows signs of life: nobody is lost."""
    with Lighthouse(heartbeat_timeout_ms=2000) as lighthouse:
        training = Training(
            folder=tmp_path,
            lighthouse=lighthouse.address,
            inject=[pause(group=3, seconds=3).during("reduce", step=1)],
        )
        assert set(run(training).values()) == {0}
    assert_same(training, undisturbed)
    assert not [e for e in training.events() if e["event"] == "failure"]


def test_the_lighthouse_is_killed_and_comes_back(undisturbed_eight: Training, tmp_path: Path) -> None:
    """Nobody needs it while nobody is lost; a loss while it is away waits for it."""
    with Lighthouse(heartbeat_timeout_ms=5000) as lighthouse:
        training = Training(
            folder=tmp_path,
            lighthouse=lighthouse.address,
            inject=[fail(group=3).during("reduce", step=3)],
            hold_step=3,
            **EIGHT,
        )
        with Groups(training) as groups:
            for group in range(8):
                groups.start(group)
            wait_for(training, lambda e: e["event"] == "commit" and e["step"] == 2)
            lighthouse.end()
            training.go()
            for group in set(range(8)) - {3}:
                wait_for(training, lambda e, g=group: e["group"] == g and e.get("state") == "lost")
            lighthouse.begin()
            ends = groups.wait()
    assert sorted(ends.values()) == [KILLED] + [0] * 7
    assert_same(training, undisturbed_eight)
    assert any(e["event"] == "lighthouse" and e["state"] == "found" for e in training.events())
    failures = [e for e in training.events() if e["event"] == "failure"]
    assert {tuple(e["lost"]) for e in failures} == {(3,)}  # nobody who is alive
    assert {e["how"] for e in failures} == {"collective"}  # each by its own connections


def test_all_hosts_of_a_shard_are_lost(lighthouse: Lighthouse, tmp_path: Path) -> None:
    hosts = golomb(4, 2).hosts()[0].tolist()
    training = Training(
        folder=tmp_path,
        lighthouse=lighthouse.address,
        inject=[fail(group=group).during("reduce", step=2) for group in hosts],
    )
    ends = run(training)
    assert {group for group, code in ends.items() if code == KILLED} == set(hosts)
    logs = Groups(training).logs()
    assert "WipeOutError: no group that is left hosts shard 0" in logs
    assert "the last committed step is 1" in logs
    assert sorted(training.commits()) == [0, 1]
