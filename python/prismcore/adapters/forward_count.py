"""Which micro-batch a forward pass of a layer belongs to."""

from __future__ import annotations

from collections import deque

__all__ = ["EVALUATION", "ForwardCount"]

#: Micro-batches of evaluation are counted from here on, so that they take none of training's.
EVALUATION = 1 << 32


class ForwardCount:
    """Of one layer. Layers see the micro-batches of a step in order, in every pipeline schedule, and
    so do their backward passes; what is computed again in a backward pass is the oldest that waits.

    A forward without gradients in training is one that will be computed again (a reentrant
    checkpoint). Where there is none of those, any forward may be (a checkpoint that is not reentrant
    runs with gradients the first time).
    """

    def __init__(self) -> None:
        self._step = -1
        self._trained = 0
        self._evaluated = 0
        self._without_gradients: deque[int] = deque()
        self._with_gradients: deque[int] = deque()

    def forward(self, step: int, *, training: bool, gradients: bool) -> int:
        """The micro-batch, counted from 0 in each step, of a forward pass that begins now."""
        self._begin(step)
        if not training:
            self._evaluated += 1
            return EVALUATION + self._evaluated - 1
        waiting = self._with_gradients if gradients else self._without_gradients
        waiting.append(self._trained)
        self._trained += 1
        return self._trained - 1

    def again(self, step: int) -> int:
        """The micro-batch of a forward pass that a backward pass computes again now."""
        self._begin(step)
        for waiting in (self._without_gradients, self._with_gradients):
            if waiting:
                return waiting.popleft()
        return max(self._trained - 1, 0)

    def _begin(self, step: int) -> None:
        if step != self._step:
            self.__init__()  # type: ignore[misc]
            self._step = step
