"""What went into a step: how often each micro-batch counts, of which step it is, and its loss; and whether a
member wants a boundary at which others may join.

It travels in the tail of the gradients' sheets: a loss is split in two 32-bit floats, which keep 48 bits,
and sums of one number and zeros are exact. A micro-batch that counts says so by a number that belongs to its
step, so that a sum of two steps' gradients is found out, too.

Python's own numbers and lists are used on purpose: between micro-batches, which leave nothing else in the
processor's caches, a few calls of numpy or torch take longer than all that is to be done here.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from prismcore.errors import SpareError
from prismcore.spare.reorderer import Part

__all__ = ["Tally", "loss_of"]

_STEPS = 1 << 20
"""Marks repeat after so many steps: sums of a few are exact in 32-bit floats."""


def loss_of(loss: Tensor | float) -> Tensor | float:
    """A copy that no later change of ``loss`` reaches. Does not wait for the device that computes it.

    Raises:
        SpareError: it is not one number.
    """
    if not isinstance(loss, Tensor):
        return float(loss)
    if loss.numel() != 1:
        raise SpareError(f"loss of shape {list(loss.shape)} found, expected one number")
    if loss.is_cpu:
        return float(loss.item())
    return loss.detach().to(torch.float64, copy=True).reshape(())


class Tally:
    """For N shards of m micro-batches."""

    def __init__(self, groups: int, micro_batches: int) -> None:
        self._micro_batches = micro_batches
        self.parts = groups * micro_batches

    @property
    def length(self) -> int:
        """Of a tail."""
        return 3 * self.parts + 1

    def enter(
        self, tail: Tensor, losses: Mapping[Part, Tensor | float], *, step: int, boundary_wanted: bool = False
    ) -> None:
        """What the tail says from here on: these parts of ``step``, each once, and their losses, of
        :func:`loss_of`."""
        table = [0.0] * self.length
        mark = _mark(step)
        table[-1] = float(boundary_wanted)
        there: dict[int, Tensor] = {}  # losses that only their device knows
        for part, loss in losses.items():
            at = part.type * self._micro_batches + part.part
            table[at] = mark
            if isinstance(loss, Tensor):
                there[at] = loss
                continue
            rounded = ctypes.c_float(loss).value
            table[self.parts + at] = rounded
            if math.isfinite(rounded):
                table[2 * self.parts + at] = loss - rounded
        tail.copy_(torch.tensor(table, dtype=torch.float32))
        if there:
            exact = torch.stack([loss.to(tail.device) for loss in there.values()])
            near = exact.float()
            rest = torch.where(near.isfinite(), exact - near, 0.0).float()
            tail[:-1].view(3, self.parts)[1:, list(there)] = torch.stack([near, rest])

    def read(self, tail: Tensor, *, step: int) -> tuple[float, bool]:
        """The mean loss, of a summed tail, the same on every member to the last bit; and whether any wants a
        boundary.

        Raises:
            SpareError: a micro-batch does not count exactly once, or is of another step.
        """
        values, total, mark = tail.tolist(), 0.0, _mark(step)
        wrong = [number for number in range(self.parts) if values[number] != mark]
        if wrong:
            raise SpareError(
                f"{self._names(wrong)} do not count once in step {step}, or are of another: this is a "
                "fault of prismcore"
            )
        for value in values[self.parts : -1]:
            total += value  # not sum(): how that adds depends on Python's version
        return total / self.parts, values[-1] > 0

    def _names(self, numbers: Iterable[int]) -> str:
        named = [f"({n // self._micro_batches}, {n % self._micro_batches})" for n in numbers]
        return f"{len(named)} micro-batches (shard, micro-batch): {', '.join(named[:4])}"


def _mark(step: int) -> float:
    """Above 0."""
    return float(1 + step % _STEPS)
