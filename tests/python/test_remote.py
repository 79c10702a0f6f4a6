"""What machines of an emulation tell each other: over real connections, of one process."""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass

import pytest

from prismcore import _core
from prismcore.emulate import remote
from prismcore.emulate.machines import Machines
from prismcore.emulate.remote import OtherMachines
from prismcore.errors import DivergenceError, EmulateError, PrismError, RankFailedError


@dataclass
class Job:
    """Ranks 10, 11 and 12, one a machine."""

    others: OtherMachines  # as machine 0 sees them
    relays: list[_core.Relay]  # of machines 1 and 2

    def look_until(self, what: type[PrismError]) -> PrismError:
        while True:
            try:
                self.others.look_after()
            except what as failure:
                return failure
            time.sleep(0.01)

    def heard_by(self, machine: int) -> dict[str, object]:
        while (text := self.relays[machine - 1].take_text()) is None:
            time.sleep(0.01)
        told: dict[str, object] = json.loads(text)
        return told


@pytest.fixture
def job() -> Job:
    pairs = [socket.socketpair() for _ in range(2)]
    machines = Machines(number=0, count=3, connections=[mine for mine, _ in pairs])
    ports = _core.PortMemory.create(3, timed=False)
    others = OtherMachines(machines, [10, 11, 12], ports, silence_s=0.1)
    relays = [_core.Relay(theirs.detach(), _core.PortMemory.create(1, timed=False)) for _, theirs in pairs]
    return Job(others, relays)


@pytest.mark.parametrize(
    ("failure", "kind", "told"),
    [
        (KeyboardInterrupt(), EmulateError, "interrupted (said by machine 2)"),
        (OSError(28, "No space"), EmulateError, "internal error: OSError: [Errno 28] No space (said by"),
        (DivergenceError("rank 12 leaves"), DivergenceError, "rank 12 leaves (said by machine 2)"),
        (
            RankFailedError("rank 12 failed; its last lines:\n  one\n  two"),
            RankFailedError,
            "rank 12 failed; its last lines (said by machine 2):\n  one\n  two",
        ),
    ],
)
def test_failures_are_told_with_the_machine_that_failed(
    job: Job, failure: BaseException, kind: type[PrismError], told: str
) -> None:
    job.relays[1].send_text(json.dumps({"failed": remote._told_of(failure, 2)}))
    heard = job.look_until(kind)
    assert str(heard).startswith(told)
    job.others.stop(heard)  # also to those that did not fail, once
    passed_on = job.heard_by(1)["failed"]
    assert isinstance(passed_on, dict)
    assert str(remote._failure_of(passed_on)) == str(heard)


def test_machine_0_tells_what_it_failed_with_itself(job: Job) -> None:
    job.others.stop(KeyboardInterrupt())
    expected = {"type": "EmulateError", "text": "interrupted", "machine": 0}
    assert job.heard_by(1) == job.heard_by(2) == {"failed": expected}


def test_a_machine_that_does_not_tell_what_its_ranks_left(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job.others, "_limit_s", 0.2)
    job.others.end([])
    job.relays[0].send_text(json.dumps({"peaks": {"11": [5, 7]}}))
    with pytest.raises(EmulateError, match=r"^machine 2 has not told within 0\.2 s what rank 12 left"):
        job.others.gather()
    job.relays[1].send_text(json.dumps({"peaks": {"12": [6, 8]}}))
    assert job.others.gather() == {11: (5, 7), 12: (6, 8)}


def test_pauses_are_those_of_the_machine_of_a_rank(job: Job) -> None:
    job.relays[1].send_text(json.dumps({"paused": True}))
    while not (pauses := job.others.pauses_of(12)) or not pauses.lasts:
        job.others.look_after()
        time.sleep(0.01)
    assert pauses.within(60) >= 1
    other = job.others.pauses_of(11)
    assert other is not None
    assert other.within(60) == 0
    assert job.others.pauses_of(10) is None  # of machine 0
