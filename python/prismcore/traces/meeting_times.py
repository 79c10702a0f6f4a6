"""Whether measured times allow that collectives of different ranks are one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prismcore.stitch.clocks import FEW
from prismcore.stitch.meetings import DOUBTED, TOLERANCE_NS
from prismcore.stitch.rows import Ints, Rows
from prismcore.traces.collectives import Collective

__all__ = ["possible", "shifts", "table_of"]

#: Ends of one collective on one clock: 50 us apart at most (8 ranks of one node) (docs/traces.md).
TOGETHER_NS = 60_000


def table_of(times: Rows, series: Sequence[Sequence[Collective]]) -> tuple[Ints, Ints]:
    """Begins and ends, shape [ranks, collectives]."""
    rows = np.array([[c.row for c in one] for one in series], dtype=np.int64).reshape(len(series), -1)
    return times.start_ns[rows], times.end_ns[rows]


def shifts(end: Ints) -> Ints:
    """By how much the clock of each rank seems ahead of the first's; shape [..., ranks, 1]."""
    found: Ints = np.median(end - end[..., :1, :], axis=-1, keepdims=True).astype(np.int64)
    return found


def possible(start: Ints, end: Ints, *, shifted: bool = False, least: int = FEW) -> bool:
    """Whether nearly all columns of [..., ranks, collectives] can be one collective: nobody leaves before
    another comes, and all leave together.

    ``shifted``: clocks may differ, by what most of the ends say; that needs ``least`` collectives, and
    ends that then agree to a small part of the time that they lie apart.
    """
    if end.shape[-1] == 0:
        return False
    limit = TOGETHER_NS
    if shifted:
        if end.shape[-1] < least:
            return False
        start, end = start - shifts(end), end - shifts(end)
        limit = min(limit, int(np.ptp(end, axis=-1).min()) // 20)
    apart = start.max(axis=-2) > end.min(axis=-2) + TOLERANCE_NS
    uneven = end.max(axis=-2) - end.min(axis=-2) > limit
    return bool(np.mean(apart | uneven, axis=-1).max() <= DOUBTED)
