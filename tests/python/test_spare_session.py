"""Trainings in processes of their own, whose groups are killed, stopped and brought back."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spare_training import PATIENCE_S, Groups, Lighthouse, Training, run, wait_until

from prismcore.spare.placement import golomb
from prismcore.spare.reorderer import Reorderer
from prismcore.spare.runtime.inject import POINTS, Injection, fail, hang, pause

pytestmark = pytest.mark.torch

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def lighthouse() -> Iterator[Lighthouse]:
    with Lighthouse() as running:
        yield running


EIGHT = {"groups": 8, "redundancy": 3, "micro_batches": 4}


@pytest.fixture(scope="module")
def undisturbed(lighthouse: Lighthouse, tmp_path_factory: pytest.TempPathFactory) -> Training:
    training = Training(folder=tmp_path_factory.mktemp("undisturbed"), lighthouse=lighthouse.address)
    assert set(run(training).values()) == {0}
    return training


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


def losses_of(training: Training) -> list[float]:
    """One for each step: all members that committed it had the same. No step is missing."""
    commits = training.commits()
    assert sorted(commits) == list(range(training.steps))
    assert {len(losses) for losses in commits.values()} == {1}
    return [commits[step].pop() for step in range(training.steps)]


def assert_same(training: Training, undisturbed: Training) -> None:
    assert losses_of(training) == pytest.approx(losses_of(undisturbed), rel=1e-6)
    assert len(set(training.weights().values())) == 1


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
    hosts of a shard."""
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


def test_a_group_that_stops_is_left_and_catches_up_when_it_goes_on(
    lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path
) -> None:
    training = Training(
        folder=tmp_path,
        lighthouse=lighthouse.address,
        inject=[hang(group=3).during("reduce", step=1)],
        hold_step=4,
    )
    with Groups(training) as groups:
        processes = [groups.start(group) for group in range(4)]
        wait_for(training, lambda e: e["event"] == "commit" and e["step"] == 2 and e["group"] == 0)
        os.kill(processes[3].pid, signal.SIGCONT)
        training.go([processes[3]])
        assert set(groups.wait().values()) == {0}
    assert_same(training, undisturbed)
    lost = {tuple(e["lost"]) for e in training.events() if e["event"] == "failure" and e["group"] != 3}
    assert (3,) in lost
    assert any(e["event"] == "rejoin" and e["joined"] == [3] for e in training.events())


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


def test_a_new_process_and_a_spare_take_the_places_of_the_lost(
    lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path
) -> None:
    training = Training(
        folder=tmp_path,
        lighthouse=lighthouse.address,
        inject=[fail(group=0).during("commit", step=1), fail(group=2).during("commit", step=1)],
        hold_step=3,
    )
    with Groups(training) as groups:
        processes = [groups.start(group) for group in range(4)]
        spare = groups.start(None)
        for group in (0, 2):
            processes[group].join(PATIENCE_S)
        training.inject = ()
        back = groups.start(2)
        training.go([spare, back])
        ends = groups.wait()
    assert (ends[0], ends[2]) == (KILLED, KILLED)
    assert spare.exitcode == 0
    assert back.exitcode == 0
    assert_same(training, undisturbed)
    assert set(training.weights()) == set("0123")
    joined = {g for e in training.events() if e["event"] == "rejoin" and e["step"] > 0 for g in e["joined"]}
    assert joined == {0, 2}
    depths = [e["depth"] for e in training.events() if e["event"] == "plan" and e["group"] == 1]
    assert depths[0] > 2
    assert depths[-1] == 2


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


def test_a_program_that_hangs_is_left_and_catches_up(undisturbed: Training, tmp_path: Path) -> None:
    """Its process shows signs of life: what it does not do in time counts."""
    with Lighthouse(join_timeout_ms=3000) as lighthouse:
        training = Training(
            folder=tmp_path,
            lighthouse=lighthouse.address,
            stuck=(2, 1),
            collective_s=5.0,
            hold_step=2,
        )
        with Groups(training) as groups:
            for group in range(4):
                groups.start(group)
            wait_for(training, lambda e: e["event"] == "commit" and e["step"] == 1 and e["group"] == 0)
            training.go()
            assert set(groups.wait().values()) == {0}
    assert_same(training, undisturbed)
    others = [e for e in training.events() if e["event"] == "failure" and e["group"] != 2]
    assert {tuple(e["lost"]) for e in others} == {(2,)}
    assert {e["how"] for e in others} <= {"timeout", "collective"}  # gloo's limit is the same
    assert any(e["event"] == "rejoin" and e["joined"] == [2] for e in training.events())


def test_who_was_away_until_the_others_ended_does_not_go_on_alone(
    lighthouse: Lighthouse, tmp_path: Path
) -> None:
    training = Training(
        folder=tmp_path,
        lighthouse=lighthouse.address,
        steps=3,
        inject=[hang(group=3).during("reduce", step=1)],
    )
    with Groups(training) as groups:
        processes = [groups.start(group) for group in range(4)]
        for process in processes[:3]:
            process.join(PATIENCE_S)
            assert process.exitcode == 0
        os.kill(processes[3].pid, signal.SIGCONT)
        processes[3].join(PATIENCE_S)
        assert processes[3].exitcode == 1
        assert "MembershipError: group 3 was away while others went on" in groups.logs()


def test_who_was_away_does_not_go_on_alone_from_its_old_step(lighthouse: Lighthouse, tmp_path: Path) -> None:
    """The others went on without it, and die as they are to give it their state."""
    training = Training(
        folder=tmp_path,
        lighthouse=lighthouse.address,
        groups=3,
        steps=40,
        hold_step=4,
        inject=[
            hang(group=0).during("reduce", step=2),
            *(fail(group=group).during("transfer", step=step) for step in range(4, 40) for group in (1, 2)),
        ],
    )
    with Groups(training) as groups:
        away, *others = (groups.start(group) for group in range(3))
        wait_for(training, lambda e: e["event"] == "commit" and e["step"] == 3)
        os.kill(away.pid, signal.SIGCONT)
        training.go([away])
        for process in (*others, away):
            process.join(PATIENCE_S)
        assert [other.exitcode for other in others] == [KILLED, KILLED]
        assert away.exitcode == 1
        assert "MembershipError: group 0 was away while others went on" in groups.logs()
    steps = [
        {e["step"] for e in training.events() if (e["event"], e["group"]) == ("commit", g)} for g in (0, 1)
    ]
    assert steps[0] == {0, 1}
    assert steps[1] >= {0, 1, 2, 3, 4}


@pytest.mark.parametrize("point", ["agree", "configure", "transfer", "ready"])
def test_one_that_gives_its_state_is_killed(
    point: str, lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path
) -> None:
    """Between two steps, where one comes back: the others give it theirs, and tell who is lost."""
    training = Training(
        folder=tmp_path,
        lighthouse=lighthouse.address,
        inject=[fail(group=2).during("commit", step=1), fail(group=0).during(point, step=4)],
        hold_step=3,
    )
    with Groups(training) as groups:
        processes = [groups.start(group) for group in range(4)]
        processes[2].join(PATIENCE_S)
        wait_for(training, lambda e: e["event"] == "commit" and e["step"] == 2)
        back = groups.start(2)
        training.go([back])
        ends = groups.wait()
    assert ends == {0: KILLED, 1: 0, 2: KILLED, 3: 0, 4: 0}
    assert_same(training, undisturbed)
    # On a machine that is late for its heartbeats others may be lost, and come back, as well.
    for group in (1, 3):
        mine = [e for e in training.events() if e["group"] == group]
        lost = {g for e in mine if e["event"] == "failure" for g in e["lost"]}
        assert lost >= {0, 2}
    gave = next(e for e in training.events() if e["event"] == "rejoin" and 2 in e["joined"])
    before = [
        e
        for e in training.events()
        if e["event"] == "plan" and e["group"] == gave["group"] and e["time_ns"] < gave["time_ns"]
    ]
    assert gave["depth"] == before[-1]["depth"]  # with the one that came back


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"options": {"seed": 7}}, "seed = 7 found, the others have 0"),
        ({"deterministic": True}, "deterministic = True found, the others have False"),
        ({"micro_batches": 4}, "micro_batches = 4 found, the others have 2"),
        ({"groups": 6}, "placement = golomb of 6 groups"),
    ],
)
def test_one_that_comes_with_other_options_ends_alone(
    changes: dict[str, Any], words: str, lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path
) -> None:
    training = Training(
        folder=tmp_path,
        lighthouse=lighthouse.address,
        inject=[fail(group=3).during("commit", step=1)],
        hold_step=3,
    )
    with Groups(training) as groups:
        processes = [groups.start(group) for group in range(4)]
        processes[3].join(PATIENCE_S)
        other = groups.start(3, training=replace(training, inject=(), **changes))
        training.go([other])
        assert groups.wait() == {0: 0, 1: 0, 2: 0, 3: KILLED, 4: 1}
        assert "MembershipError: group 3 has other options than the training" in groups.logs()
        assert words in groups.logs()
    assert_same(training, undisturbed)


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


def test_all_groups_are_started_again_from_the_checkpoint(
    lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path
) -> None:
    """After a wipe-out, while one process of the old training is there still: stopped, it goes on late."""
    hosts = golomb(4, 2).hosts()[0].tolist()
    away = min(set(range(4)) - set(hosts))
    training = Training(
        folder=tmp_path,
        lighthouse=lighthouse.address,
        checkpoint_steps=2,
        inject=[
            hang(group=away).during("reduce", step=4),
            *(fail(group=group).during("reduce", step=4) for group in hosts),
        ],
    )
    with Groups(training) as groups:
        processes = [groups.start(group) for group in range(4)]
        for group in set(range(4)) - {away}:
            processes[group].join(PATIENCE_S)
            assert processes[group].exitcode == (KILLED if group in hosts else 1)
        logs = groups.logs()  # the group that writes them may be killed within the last
        assert "the last committed step is 3: start all groups again from the checkpoint of step" in logs
        training.inject = ()
        again = [groups.start(group) for group in range(4)]
        for process in again:
            wait_for_start(training, process.pid)
        os.kill(processes[away].pid, signal.SIGCONT)
        for process in again:
            process.join(PATIENCE_S)
            assert process.exitcode == 0
    assert_same(training, undisturbed)


def wait_for_start(training: Training, pid: int) -> None:
    log = training.folder / f"events.{pid}"
    wait_until(lambda: log.exists() and b"\n" in log.read_bytes(), f"{log} is there")


def wait_for(training: Training, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Until there is such an event."""

    def has_happened() -> bool:
        try:
            return any(map(holds, training.events()))
        except ValueError:
            return False  # a line is being written

    wait_until(has_happened, "an event")
