"""Failures on purpose, at named points of the protocol: ``fail(group=3).during("commit", step=7)``."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prismcore.errors import SpareError

__all__ = ["POINTS", "Injection", "Injector", "fail", "hang", "pause"]

POINTS = {
    "compute": "before a micro-batch of the step is handed out",
    "patch": "before a patch is handed out",
    "reduce": "before the gradients are summed",
    "summed": "once the sum is there, before the other ranks of the group are waited for",
    "commit": "all ranks of the group hold the sum, before the barrier that commits the step",
    "passed": "behind that barrier, before the other ranks of the group are waited for",
    "committed": "the step is committed, the optimizer has not made it",
    "boundary": "between two steps",
    "agree": "before the lighthouse is asked for a quorum",
    "configure": "the quorum is there, before the new communicator is made",
    "transfer": "the new communicator is there, before states are given to those who join",
    "ready": "before the barrier that makes the new membership ready",
}
"""By name, in the order of a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Injection:
    """``group``, ``position``: whom it strikes; ``action``: ``kill`` (SIGKILL), ``stop`` (SIGSTOP, until
    somebody sends SIGCONT) or ``sleep`` (the program's thread alone, for ``seconds``)."""

    group: int
    position: int
    action: str
    seconds: float = 0.0
    point: str = ""
    step: int = -1
    visit: int = 0

    def during(self, point: str, *, step: int, visit: int = 0) -> Injection:
        """At the ``visit``-th time (from 0) that the group comes by that point in that step.

        Raises:
            SpareError: no such point.
        """
        if point not in POINTS:
            raise SpareError(f"point {point!r} found, expected one of {', '.join(POINTS)}")
        return replace(self, point=point, step=step, visit=visit)


def fail(*, group: int, position: int = 0) -> Injection:
    """The process is killed."""
    return Injection(group=group, position=position, action="kill")


def hang(*, group: int, position: int = 0) -> Injection:
    """The process stops, all its threads, without ending."""
    return Injection(group=group, position=position, action="stop")


def pause(*, group: int, position: int = 0, seconds: float) -> Injection:
    """The program's thread sleeps; the process still shows signs of life."""
    return Injection(group=group, position=position, action="sleep", seconds=seconds)


class Injector:
    """Of one rank. Does nothing unless told."""

    def __init__(
        self,
        injections: Sequence[Injection] = (),
        *,
        position: int = 0,
        before: Callable[[Injection], Any] | None = None,
    ) -> None:
        self._injections = [injection for injection in injections if injection.position == position]
        self._before = before
        self._visits: dict[tuple[str, int], int] = {}

    def at(self, point: str, *, group: int, step: int) -> None:
        if not self._injections:
            return
        visit = self._visits.get((point, step), 0)
        self._visits[point, step] = visit + 1
        for injection in self._injections:
            if (injection.group, injection.point, injection.step, injection.visit) == (
                group,
                point,
                step,
                visit,
            ):
                if self._before is not None:
                    self._before(injection)
                _strike(injection)


def _strike(injection: Injection) -> None:
    if injection.action == "sleep":
        time.sleep(injection.seconds)
    else:
        os.kill(os.getpid(), signal.SIGKILL if injection.action == "kill" else signal.SIGSTOP)
