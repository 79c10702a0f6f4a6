"""A program that is interrupted inside step(), survives it, and calls step() again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from spare_training import PATIENCE_S, Lighthouse

from prismcore.spare.placement import custom
from prismcore.spare.runtime.inject import Injection, fail

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

STEPS = 5


@pytest.fixture(scope="module")
def lighthouse() -> Iterator[Lighthouse]:
    """Both groups live in one process: a busy machine makes them late, and none is to count as dead."""
    with Lighthouse(heartbeat_timeout_ms=2500) as running:
        yield running


class BrokenOffError(Exception):
    """As KeyboardInterrupt, in a thread."""


class Group:
    """Its loop, in a thread: each gradient of a micro-batch of step n is n + 1."""

    def __init__(self, number: int, address: str, folder: Path, **options: Any) -> None:
        from prismcore.spare import Session, SessionOptions, Timeouts

        self.model = torch.nn.Linear(1, 1, bias=False)
        self.session = Session(
            SessionOptions(
                placement=custom([[0, 1], [1, 0]]),
                micro_batches=2,
                group=number,
                lighthouse=address,
                host="localhost",
                timeouts=Timeouts(
                    leave_s=2, meet_s=4
                ),  # one that broke off is waited for no longer than that
                **options,
            ),
            params=self.model.parameters(),
            state={"model": self.model},
            events=folder / f"events.{number}",
        )
        self.made: list[tuple[int, float, float]] = []  # step, gradient, loss
        self.broken_off = 0
        self.error: BaseException | None = None
        self.before: Callable[[Any], Any] = lambda work: None
        self.thread = threading.Thread(target=self._train)

    def _train(self) -> None:
        session = self.session
        try:
            while session.step_number < STEPS:
                try:
                    for work in session.step():
                        self.before(work)
                        loss = (self.model.weight * (work.step + 1)).sum()
                        loss.backward()
                        session.accumulate(work, float(work.step))
                    gradient = float(self.model.weight.grad)
                    self.made.append((session.step_number - 1, gradient, session.loss))
                except BrokenOffError:
                    self.broken_off += 1
        except BaseException as error:
            self.error = error
        finally:
            session.close()


def train(groups: list[Group]) -> None:
    for group in groups:
        group.thread.start()
    for group in groups:
        group.thread.join(PATIENCE_S)
        assert not group.thread.is_alive()


EXPECTED = [(step, step + 1.0, float(step)) for step in range(STEPS)]
AGAIN = ("agree", "configure", "transfer", "ready")


@pytest.mark.parametrize(
    ("points", "deterministic"),
    [
        *(((point,), False) for point in ("reduce", "summed", "commit", "passed", "committed", "boundary")),
        *(((first, then), False) for first in ("summed", "passed") for then in AGAIN),
        (("commit", "ready"), True),
        (("passed",), True),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else "deterministic" if value else "",
)
def test_no_step_is_lost_made_twice_or_mixed_with_another(
    points: tuple[str, ...],
    deterministic: bool,
    lighthouse: Lighthouse,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def strike(injection: Injection) -> None:
        raise BrokenOffError(injection.point)

    monkeypatch.setattr("prismcore.spare.runtime.inject._strike", strike)
    # What follows the first strike may belong to the next step by then.
    steps = (2, 3) if len(points) > 1 else (2 + (points == ("boundary",)),)
    inject = [fail(group=0).during(points[0], step=steps[0])]
    inject += [fail(group=0).during(point, step=step) for point in points[1:] for step in steps]
    groups = [
        Group(g, lighthouse.address, tmp_path, inject=tuple(inject), deterministic=deterministic)
        for g in range(2)
    ]
    train(groups)
    assert [group.error for group in groups] == [None, None]
    assert groups[0].broken_off >= len(points)
    assert groups[1].broken_off == 0
    for group in groups:
        assert group.made == EXPECTED


def test_while_the_sum_is_waited_for(lighthouse: Lighthouse, tmp_path: Path) -> None:
    """What is under way may still write where the sum was to be."""
    groups = [Group(g, lighthouse.address, tmp_path) for g in range(2)]
    waits = threading.Event()

    def hold(work: Any) -> None:
        if work.step == 2:
            waits.wait(PATIENCE_S)

    def break_off_once(work: Any) -> None:
        guard = groups[0].session._agreement._guard
        if work.step == 2 and not waits.is_set():
            wait = guard.wait

            def broken(*_: Any, **__: Any) -> None:
                guard.wait = wait
                time.sleep(0.05)  # gloo waits for the other one by now
                waits.set()
                raise BrokenOffError

            guard.wait = broken

    groups[0].before, groups[1].before = break_off_once, hold
    train(groups)
    assert [group.error for group in groups] == [None, None]
    assert groups[0].broken_off == 1
    for group in groups:
        assert group.made == EXPECTED


@pytest.mark.parametrize("is_divided", [False, True])
def test_while_the_mean_is_made(is_divided: bool, lighthouse: Lighthouse, tmp_path: Path) -> None:
    """A sum that is divided twice, or not at all, would be a gradient of one group alone."""
    groups = [Group(g, lighthouse.address, tmp_path, deterministic=True) for g in range(2)]
    session = groups[0].session
    divide = session._running.divide_sum

    def broken() -> None:
        if session.step_number == 2 and groups[0].broken_off == 0:
            if is_divided:
                divide()
            raise BrokenOffError
        divide()

    session._running.divide_sum = broken  # type: ignore[method-assign]
    train(groups)
    assert [group.error for group in groups] == [None, None]
    assert [group.broken_off for group in groups] == [1, 0]
    for group in groups:
        assert group.made == EXPECTED
