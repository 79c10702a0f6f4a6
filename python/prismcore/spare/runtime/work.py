"""What a training step is made of."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Work"]


class Work(NamedTuple):
    """Micro-batch ``micro_batch`` (0 to m - 1) of shard ``shard`` (0 to N - 1) in step ``step``.

    Whoever computes it takes the same samples and the same random numbers: they depend on these three
    alone, not on the rank.
    """

    step: int
    shard: int
    micro_batch: int
