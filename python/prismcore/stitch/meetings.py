"""Which ops of different ranks are one collective or one message, and how long its transfer took.

A measured duration holds the waiting for peers. What the last to arrive saw is the transfer: end less
the latest begin of the group (StragglerAnalysis, OSDI 2025; the same as the minimum of durations where
ends agree).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore.stitch.rows import Ints, Rows, segment_reduce

__all__ = ["TOLERANCE_NS", "Meetings", "apart", "meet"]

#: What clocks of ranks, and the ends and begins of ops that follow each other, may disagree by.
TOLERANCE_NS = 200_000

#: Of all meetings of a kind, how many may look impossible before the grouping is not believed.
DOUBTED = 0.01


@dataclass(kw_only=True, slots=True)
class Meetings:
    """Who met whom; arrays have shape [rows]."""

    id: Ints  #: numbered from 0 on, every row has one; who met nobody stands alone in it
    size: Ints  #: rows of the meeting


def meet(*keys: Ints) -> Meetings:
    """Rows with equal keys are one meeting."""
    order = np.lexsort(keys)
    new = np.zeros(len(order), dtype=bool)
    for key in keys:
        ordered = key[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    id = np.empty(len(order), dtype=np.int64)
    id[order] = np.cumsum(new)
    return Meetings(id=id, size=np.bincount(id)[id])


def apart(rows: Rows, meetings: Meetings) -> npt.NDArray[np.bool_]:
    """Rows of meetings that some member left before another came: they cannot be one."""
    latest = segment_reduce(np.maximum, rows.start_ns, meetings.id)
    earliest = segment_reduce(np.minimum, rows.end_ns, meetings.id)
    impossible: npt.NDArray[np.bool_] = latest > earliest + TOLERANCE_NS
    return impossible


def believed(rows: Rows, meetings: Meetings) -> bool:
    """Whether nearly all of these meetings can be."""
    impossible = apart(rows, meetings)
    return len(impossible) == 0 or float(impossible.mean()) <= DOUBTED


def first_believed(rows: Rows, groupings: Mapping[str, Sequence[Ints]]) -> tuple[str, Meetings] | None:
    """The first of the named groupings (each a list of keys) that the times allow; None: none does."""
    for name, keys in groupings.items():
        meetings = meet(*keys)
        if believed(rows, meetings):
            return name, meetings
    return None
