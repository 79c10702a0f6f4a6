"""Which op waited for which of its rank, as far as rules of the job and the times themselves tell.

Between lanes of a rank nothing in a trace says who waits for whom. Two sources are used: rules that the
job's program must obey (a compute op needs what was received for it), given by the caller, and what the
times show: where ops of a type never begin before the latest earlier op of another lane has ended, over
a whole trace, the host waits there. Overlap anywhere in the trace is the proof of the contrary.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prismcore.stitch.meetings import TOLERANCE_NS
from prismcore.stitch.rows import Ints, Rows, last_before, segment_reduce

__all__ = ["Waits", "launch_ends", "shown_waits"]

#: An array [rows, lanes]: the row waited for on that lane, -1 for none.
Waits = Ints

#: The share of ops of a type that may begin earlier than they should, by noise, where a wait is seen.
EARLY = 0.01


def launch_ends(rows: Rows, end_ns: Ints) -> Ints:
    """For each row when its launch ended; shape [rows]."""
    number = np.cumsum(rows.launch == np.arange(len(rows.launch))) - 1
    return segment_reduce(np.maximum, end_ns, number)


def early(rows: Rows, waited: Ints, noise_ns: int = TOLERANCE_NS) -> npt.NDArray[np.bool_]:
    """Rows that began before the one they are said to wait for had ended (clocks are noisy: half of a
    short op, ``noise_ns`` of a long one)."""
    end = launch_ends(rows, rows.end_ns)
    allowed = np.minimum(noise_ns, (end - rows.start_ns) // 2)
    found: npt.NDArray[np.bool_] = (waited >= 0) & (end[waited] - allowed[waited] > rows.start_ns)
    return found


def shown_waits(rows: Rows, types: Ints, lanes: int, *, noise_ns: int = TOLERANCE_NS) -> Waits:
    """Waits that the times show, and that of each op for the one before it on its lane.

    ``types``: shape [rows], small numbers from 0 on; what holds for nearly all ops of a type is taken
    to hold for all but those that contradict it. ``noise_ns``: of times of one rank.
    """
    waits = np.full((len(types), lanes), -1, dtype=np.int64)
    kinds = int(types.max(initial=0)) + 1
    for lane in range(lanes):
        before = last_before(rows, rows.lane == lane)
        own = rows.lane == lane
        contradicts = early(rows, before, noise_ns)
        found = np.bincount(types[before >= 0], minlength=kinds)
        contradicted = np.bincount(types[contradicts], minlength=kinds)
        holds = (contradicted <= EARLY * found)[types]
        waits[:, lane] = np.where(own | (holds & ~contradicts), before, -1)
    return waits


def add_rule(rows: Rows, waits: Waits, lane: int, waited: Ints) -> int:
    """Lets rows wait for ``waited`` (shape [rows], -1: no rule) on another lane where they do not wait
    there yet. Returns how many rows contradict the rule; they are left as they are."""
    contradicts = early(rows, waited) & (rows.lane != lane)
    takes = (waited >= 0) & ~contradicts & (rows.lane != lane) & (waits[:, lane] < 0)
    waits[takes, lane] = waited[takes]
    return int(contradicts.sum())
