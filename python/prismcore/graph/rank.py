"""What a graph holds of a rank and of a communicator."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Communicator", "MemoryPeaks", "Rank", "RankOrigin"]


class RankOrigin(IntEnum):
    """Whether a rank ran, ran to confirm its class, or took the program of its class."""

    RAN = 0
    CHECKED = 1
    INFERRED = 2


@dataclass(kw_only=True, slots=True, frozen=True)
class MemoryPeaks:
    """Largest sizes over the recording, in bytes; ``device`` is reserved + context + communicators."""

    requested_bytes: int = 0
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    device_bytes: int = 0


@dataclass(kw_only=True, slots=True, frozen=True)
class Communicator:
    """An ordered set of ranks; ``members`` is an array of shape [size]."""

    id: int
    name: str
    members: npt.NDArray[np.uint32] = field(compare=False)

    @property
    def size(self) -> int:
        return len(self.members)


@dataclass(kw_only=True, slots=True, frozen=True)
class Rank:
    """One rank of a graph.

    Ranks with equal blocks are one class, ``rank_class``: the lowest program with these blocks. Their
    ``program`` may differ, in call sites alone. ``bindings`` is an array of ``BINDING_DTYPE``, shape
    [communicator slots].
    """

    rank: int
    program: int
    rank_class: int
    origin: RankOrigin
    peaks: MemoryPeaks
    bindings: npt.NDArray[Any] = field(compare=False)
