"""What went into a step: how often each micro-batch counts, and its loss.

It travels in the tail of the gradients' sheets: a loss is split in two 32-bit floats, which keep 48 bits,
and sums of one number and zeros are exact.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
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
        exact = torch.as_tensor(loss).detach().to(tail.device, torch.float64).reshape(())
        rounded = exact.float()
        rest = torch.where(rounded.isfinite(), exact - rounded, 0.0)
        at = part.type * self._micro_batches + part.part
        tail[at :: self.parts] = torch.stack([torch.ones_like(rounded), rounded, rest.float()])

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
