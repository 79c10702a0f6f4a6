"""What went into a step: how often each micro-batch counts, and its loss.

It travels in the tail of the gradients' sheets: a loss is split in two 32-bit floats, which keep 48 bits,
and sums of one number and zeros are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prismcore.errors import SpareError
from prismcore.spare.reorderer import Part

__all__ = ["Tally"]


class Tally:
    """For N shards of m micro-batches."""

    def __init__(self, groups: int, micro_batches: int) -> None:
        self._micro_batches = micro_batches
        self.parts = groups * micro_batches

    @property
    def length(self) -> int:
        """Of a tail."""
        return 3 * self.parts

    def enter(self, tail: Tensor, part: Part, loss: Tensor | float) -> None:
        """Does not wait for the device that computes ``loss``.

        Raises:
            SpareError: it is not one number.
        """
        if isinstance(loss, Tensor) and loss.numel() != 1:
            raise SpareError(f"loss of shape {list(loss.shape)} found, expected one number")
        at = part.type * self._micro_batches + part.part
        if tail.device.type == "cpu" and not (isinstance(loss, Tensor) and loss.device.type != "cpu"):
            self._enter_here(
                tail.detach().numpy(), at, float(loss.detach() if isinstance(loss, Tensor) else loss)
            )
            return
        exact = torch.as_tensor(loss).detach().to(tail.device, torch.float64).reshape(())
        rounded = exact.float()
        rest = torch.where(rounded.isfinite(), exact - rounded, 0.0)
        tail[at :: self.parts] = torch.stack([torch.ones_like(rounded), rounded, rest.float()])

    def _enter_here(self, values: NDArray[np.float32], at: int, loss: float) -> None:
        """The same on the processor: torch's calls would take ten times as long as the three numbers need."""
        with np.errstate(over="ignore"):
            values[at :: self.parts] = 1.0, loss, 0.0
        rounded = float(values[self.parts + at])
        if math.isfinite(rounded):
            values[2 * self.parts + at] = loss - rounded

    def mean_loss(self, tail: Tensor) -> float:
        """Of a summed tail; the same on every member to the last bit.

        Raises:
            SpareError: a micro-batch does not count exactly once.
        """
        counts, losses, rests = tail.detach().cpu().double().view(3, self.parts)
        wrong = counts.ne(1.0).nonzero().view(-1).tolist()
        if wrong:
            raise SpareError(
                f"{self._names(wrong)} do not count once in this step: this is a fault of prismcore"
            )
        return float((losses + rests).sum()) / self.parts

    def _names(self, numbers: Iterable[int]) -> str:
        named = [f"({n // self._micro_batches}, {n % self._micro_batches})" for n in numbers]
        return f"{len(named)} micro-batches (shard, micro-batch): {', '.join(named[:4])}"
