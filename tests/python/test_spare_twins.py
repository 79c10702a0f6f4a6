"""Two processes that claim the same group: one trains, the other ends and says so."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from spare_training import (
    Groups,
    Lighthouse,
    Training,
    assert_same,
    run,
    wait_for,
    wait_until_heard,
)

from prismcore.spare.runtime import agreement
from prismcore.spare.runtime.inject import hang

pytestmark = pytest.mark.torch

STEPS = 11
ENDS = "MembershipError: group 3 goes on with another process"


@pytest.fixture(scope="module")
def undisturbed(lighthouse: Lighthouse, tmp_path_factory: pytest.TempPathFactory) -> Training:
    training = Training(
        folder=tmp_path_factory.mktemp("undisturbed"), lighthouse=lighthouse.address, steps=STEPS
    )
    assert set(run(training).values()) == {0}
    return training


@pytest.mark.parametrize("comes_back", ["with its successor", "behind its successor"])
def test_one_that_was_thought_dead_ends_once_another_has_its_place(
    comes_back: str, lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path
) -> None:
    """It is stopped in a sum, its supervisor starts another process of the group, and it goes on: before the
    other one has joined, or after."""
    training = Training(
        folder=tmp_path,
        lighthouse=lighthouse.address,
        steps=STEPS,
        inject=[hang(group=3).during("reduce", step=1)],
        hold_step=3,
        last_hold=6,
    )
    with Groups(training) as groups:
        stale = [groups.start(group) for group in range(4)][3]
        wait_for(training, lambda e: e["event"] == "commit" and e["step"] == 2)
        training.inject = ()
        successor = groups.start(3)
        if comes_back == "with its successor":
            os.kill(stale.pid, signal.SIGCONT)
            training.go([successor, stale])
        else:
            training.go([successor])
            wait_for(training, lambda e: e["event"] == "rejoin" and 3 in e["joined"] and e["step"] > 0)
            os.kill(stale.pid, signal.SIGCONT)
            wait_until_heard(training.lighthouse, [training.folder / f"events.{stale.pid}"])
        training.open("end")
        assert groups.wait() == {0: 0, 1: 0, 2: 0, 3: 1, 4: 0}
        assert ENDS in Path(stale.log).read_text()
    assert_same(training, undisturbed)
    told = map(json.loads, (tmp_path / f"events.{stale.pid}").read_text().splitlines())
    assert [e["step"] for e in told if e["event"] == "commit"] == [0]


def test_one_that_is_started_twice_trains_once(
    lighthouse: Lighthouse, undisturbed: Training, tmp_path: Path
) -> None:
    """The second of two that live is the one that ends: the first is in the training."""
    training = Training(folder=tmp_path, lighthouse=lighthouse.address, steps=STEPS, hold_step=2, last_hold=6)
    with Groups(training) as groups:
        for group in range(4):
            groups.start(group)
        wait_for(training, lambda e: e["event"] == "commit" and e["step"] == 1)
        second = groups.start(3)
        training.go([second])
        wait_for(training, lambda e: e["event"] == "spare" and e["group"] == 3)
        time.sleep(agreement._REFUSED_S + 0.2)  # so long it may be the first that is gone, and still counted
        training.open("end")
        assert groups.wait() == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1}
        assert ENDS in Path(second.log).read_text()
    assert_same(training, undisturbed)
    assert not [e for e in training.events() if e["event"] in ("failure", "rejoin") and e["step"] > 0]
