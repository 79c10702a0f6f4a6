"""Groups of several ranks, which compute each micro-batch together: a rank is lost, and its group with it."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from spare_reports import report
from spare_training import KILLED, PATIENCE_S, Groups, Lighthouse, Training, losses_of, run

from prismcore.errors import MembershipError
from prismcore.spare.runtime.inject import Injection, fail, hang
from prismcore.spare.runtime.membership import Refusal, Report, decide
from prismcore.spare.runtime.whole_report import NO_STATE, merge

pytestmark = pytest.mark.torch


def said(**changes: object) -> Report:
    return report(3, **changes)


def test_a_group_says_what_all_its_ranks_are() -> None:
    assert merge([said(), said()], [0, 0]) == said()
    assert not merge([said(held=True), said()], [0, 0]).held
    assert merge([said(held=True), said(held=True)], [0, 0]).held
    assert not merge([said(fresh=True), said()], [0, 0]).fresh
    assert merge([said(fresh=True), said(fresh=True)], [9, 9]).fresh


def test_one_rank_is_behind_the_barrier() -> None:
    """Of a step: the group is in the next one. Of a membership: the group is ready, all have entered."""
    whole = merge([said(held=True), said(step=6, fresh=True)], [0, 0])
    assert (whole.step, whole.held, whole.fresh) == (6, False, False)
    whole = merge([said(entered=200), said(ready=200, entered=200, members=3, quorum=9)], [0, 0])
    assert (whole.ready, whole.entered, whole.members, whole.quorum) == (200, 200, 3, 9)
    assert merge([said(entered=200), said()], [0, 0]).entered == 100
    with pytest.raises(MembershipError, match=r"ranks of group 3 are in steps \[5, 6\]"):
        merge([said(), said(step=6)], [0, 0])


def test_a_group_that_was_given_half_a_state_has_none() -> None:
    half = merge([said(step=8, fresh=True), said(step=7, held=True)], [300, 0])
    assert (half.ready, half.entered, half.step, half.fresh, half.held) == (0, 0, NO_STATE, False, False)
    alone = decide([replace(half, waited=True)], groups=4, quorum=9, created_ns=400)
    assert isinstance(alone, Refusal)
    assert "no group that is there has a state" in alone.reason


def of_pairs(folder: Path, lighthouse: Lighthouse, **options: object) -> Training:
    options = {"steps": 5} | options
    return Training(folder=folder, lighthouse=lighthouse.address, positions=2, **options)


def run_pairs(training: Training) -> dict[tuple[int, int], int]:
    """Exit codes by group and position."""
    with Groups(training) as groups:
        for group in range(training.groups):
            groups.start_ranks(group)
        groups.wait()
        return {(p.group, p.position): p.exitcode for p in groups.processes}


@pytest.fixture(scope="module")
def undisturbed(lighthouse: Lighthouse, tmp_path_factory: pytest.TempPathFactory) -> Training:
    training = of_pairs(tmp_path_factory.mktemp("undisturbed"), lighthouse)
    assert set(run_pairs(training).values()) == {0}, Groups(training).logs()
    return training


def assert_same_pairs(training: Training, undisturbed: Training) -> None:
    """Losses as without failures, the same on all ranks; at the end the ranks of a position are alike."""
    assert losses_of(training) == pytest.approx(losses_of(undisturbed), rel=1e-6)
    weights = training.weights()
    for position in range(training.positions):
        assert len({text for name, text in weights.items() if name.endswith(f"_{position}")}) == 1


def test_undisturbed_is_what_whole_models_compute(
    undisturbed: Training, lighthouse: Lighthouse, tmp_path: Path
) -> None:
    whole = Training(folder=tmp_path, lighthouse=lighthouse.address, steps=undisturbed.steps)
    assert set(run(whole).values()) == {0}
    assert losses_of(undisturbed) == pytest.approx(losses_of(whole), rel=1e-5)
    events = undisturbed.events()
    assert {(e["group"], e["position"]) for e in events if e["event"] == "commit"} == {
        (group, position) for group in range(4) for position in range(2)
    }


@pytest.mark.parametrize(
    "strikes",
    [
        [fail(group=2, position=1).during("summed", step=2)],
        [fail(group=2, position=1).during("commit", step=2)],
        [fail(group=2, position=0).during("passed", step=2)],
        [fail(group=2, position=1).during("passed", step=2)],
        [fail(group=2, position=1).during("committed", step=3)],
        [
            fail(group=2, position=1).during("compute", step=2),
            fail(group=0, position=1).during("agree", step=2),
        ],
        [
            fail(group=2, position=0).during("commit", step=2),
            fail(group=0, position=0).during("ready", step=3),  # all held it
        ],
    ],
    ids=lambda strikes: "-".join(f"{s.point}{s.position}" for s in strikes),
)
def test_a_rank_is_killed(
    strikes: Sequence[Injection], lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path
) -> None:
    """The others of its group end, and say why; other groups go on in the same step."""
    training = of_pairs(tmp_path, lighthouse, inject=strikes)
    ends = run_pairs(training)
    lost = {strike.group for strike in strikes}
    killed = {(strike.group, strike.position) for strike in strikes}
    for (group, position), code in ends.items():
        if (group, position) in killed:
            assert code == KILLED
        else:
            assert code == (1 if group in lost else 0), Groups(training).logs()
    if strikes[0].point in ("summed", "commit", "passed"):  # elsewhere gloo may say it first
        assert f"position {strikes[0].position} of this group is lost" in Groups(training).logs()
    assert_same_pairs(training, undisturbed)


def test_deterministic_to_the_last_bit(lighthouse: Lighthouse, tmp_path: Path) -> None:
    trainings = []
    for name, strikes in (("whole", []), ("broken", [fail(group=1, position=1).during("commit", step=1)])):
        (tmp_path / name).mkdir()
        trainings.append(of_pairs(tmp_path / name, lighthouse, steps=3, inject=strikes, deterministic=True))
        run_pairs(trainings[-1])
    assert losses_of(trainings[0]) == losses_of(trainings[1])
    whole, broken = (training.weights() for training in trainings)
    assert broken == {name: whole[name] for name in broken}
    assert len(broken) == 6


def test_a_rank_hangs(lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path) -> None:
    """Nobody's connection breaks: the others of its group miss its signs of life."""
    training = of_pairs(
        tmp_path, lighthouse, inject=[hang(group=3, position=1).during("commit", step=1)], inside_s=4.0
    )
    with Groups(training) as groups:
        for group in range(4):
            groups.start_ranks(group)
        hung = groups.processes.pop()
        try:
            assert set(groups.wait().values()) == {0, 1}
        finally:
            os.kill(hung.pid, signal.SIGCONT)
            hung.join(PATIENCE_S)
            groups.processes.append(hung)
        assert hung.exitcode == 1
    assert "position 1 of this group is lost (no sign of life for" in Groups(training).logs()
    assert_same_pairs(training, undisturbed)


def test_a_group_comes_back_and_a_spare_comes_in(
    lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path
) -> None:
    training = of_pairs(
        tmp_path,
        lighthouse,
        inject=[
            fail(group=0, position=0).during("commit", step=1),
            fail(group=2, position=1).during("compute", step=1),
        ],
        sleep_s=0.1,
        hold_step=3,
        checkpoint_steps=2,
    )
    with Groups(training) as groups:
        started = [groups.start_ranks(group) for group in range(4)]
        spare = groups.start_ranks(None)
        for process in [*started[0], *started[2]]:
            process.join(PATIENCE_S)
        training.inject = ()
        back = groups.start_ranks(2)
        training.go([*spare, *back])
        groups.wait()
        assert [process.exitcode for process in (*spare, *back)] == [0] * 4, groups.logs()
    assert_same_pairs(training, undisturbed)
    assert len(training.weights()) == 8
    joined = {
        (g, e["position"])
        for e in training.events()
        if e["event"] == "rejoin" and e["step"] > 0
        for g in e["joined"]
    }
    assert joined == {(0, 0), (0, 1), (2, 0), (2, 1)}
    saved = [e for e in training.events() if e["event"] == "checkpoint"]
    assert {(e["step"], e["position"]) for e in saved} >= {(2, 0), (2, 1)}


def test_all_groups_begin_again_from_a_checkpoint(
    lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path
) -> None:
    training = of_pairs(tmp_path, lighthouse, checkpoint_steps=2, steps=3)
    assert set(run_pairs(training).values()) == {0}
    training.steps = undisturbed.steps
    for path in tmp_path.glob("events.*"):
        path.unlink()
    assert set(run_pairs(training).values()) == {0}
    commits = training.commits()
    assert sorted(commits) == list(range(2, undisturbed.steps))
    expected = losses_of(undisturbed)[2:]
    assert [commits[step].pop() for step in sorted(commits)] == pytest.approx(expected, rel=1e-6)
