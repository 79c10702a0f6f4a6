"""Groups that come back, were away, or come new: in processes of their own."""

from __future__ import annotations

import os
import signal
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
    wait_for,
    wait_for_start,
)

from prismcore.spare.placement import golomb
from prismcore.spare.runtime.inject import fail, hang

pytestmark = pytest.mark.torch


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
