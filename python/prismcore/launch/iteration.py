"""Where an iteration ends: the program says so, or an optimizer steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from prismcore.errors import CollectError

__all__ = ["IterationEnds", "mark_iteration"]

_listener: Callable[[], None] | None = None


def mark_iteration() -> None:
    """Ends an iteration of the training program; does nothing outside ``prism collect``.

    A program that calls it is not watched for optimizer steps.
    """
    if _listener is not None:
        _listener()


class IterationEnds:
    """Calls ``on_end`` at each end of an iteration.

    Without marks of the program, an iteration ends where the optimizer that stepped first steps
    again: a chain of optimizers steps once each in an iteration.
    """

    def __init__(self, on_end: Callable[[], None], *, program_marks: bool) -> None:
        self._on_end = on_end
        self._program_marks = program_marks
        self._leader: weakref.ref[Any] | None = None
        self.source = ""

    def install(self) -> None:
        """Listens to the program's marks and to every optimizer of torch."""
        global _listener  # noqa: PLW0603
        from torch.optim.optimizer import register_optimizer_step_post_hook

        _listener = self._marked
        if not self._program_marks:
            register_optimizer_step_post_hook(self._stepped)

    def _marked(self) -> None:
        if self.source == "optimizer":
            raise CollectError(
                "prismcore.mark_iteration() was called after iterations had been counted by optimizer "
                "steps; expected its name in the script itself, so that steps are not counted"
            )
        self.source = "mark"
        self._on_end()

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._leader is None or self._leader() is None:
            self._leader = weakref.ref(optimizer)
        if self._leader() is not optimizer:
            return
        self.source = "optimizer"
        self._on_end()
