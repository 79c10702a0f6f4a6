"""Measured begins and ends as what a graph holds: durations without waiting, and gaps.

An op becomes ready when all that it waits for has ended and its *gap* has passed: host time, and
whatever else the trace does not say. It begins when the last member of its meeting is ready.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismcore.stitch.meetings import TOLERANCE_NS, Meetings
from prismcore.stitch.rows import Ints, Rows, segment_reduce
from prismcore.stitch.waits import Waits, launch_ends

__all__ = ["Timing", "drop_circles", "time_rows"]

MOST_PASSES = 50


@dataclass(kw_only=True, slots=True)
class Timing:
    """Shape [rows], ns, none negative. Rows of a launch have one gap, rows of a meeting one duration."""

    gap_ns: Ints
    duration_ns: Ints
    late: int = 0  #: rows that cannot end when they were measured to, noise apart
    settled: bool = True  #: whether what an op that is moved moves in turn came to an end

    @property
    def warnings(self) -> list[str]:
        """What a replay of these times does not do as measured."""
        told = []
        if self.late:
            told.append(
                f"{self.late:,} ops end later than measured: what they wait for in the graph ends too late"
            )
        if not self.settled:
            told.append(
                f"times did not settle in {MOST_PASSES} passes over all ops: many begin before what they "
                "wait for has ended, and end later than measured"
            )
        return told


@dataclass(kw_only=True, slots=True)
class _Placed:
    """Shape [rows], ns."""

    free: Ints  #: when all that the launch waits for has ended
    begin: Ints  #: of the launch: as measured, or later where it is not free yet
    met: Ints  #: latest begin of the meeting
    duration: Ints
    ends: Ints  #: of the launch
    settled: bool


def time_rows(rows: Rows, waits: Waits, meetings: Meetings) -> Timing:
    """Durations and gaps with which the rows end when they were measured to.

    Clocks of ranks and of ops that follow each other disagree by noise: a begin before what was waited
    for is moved there, which shortens that op and none behind it. A meeting ends with the first of its
    members.
    """
    placed = _place(rows, waits, meetings)
    late = placed.ends > launch_ends(rows, rows.end_ns) + TOLERANCE_NS
    return Timing(
        gap_ns=np.maximum(placed.begin - placed.free, 0),
        duration_ns=placed.duration,
        late=int(late.sum()),
        settled=placed.settled,
    )


def drop_circles(rows: Rows, waits: Waits, meetings: Meetings, *, hosts: int = 0) -> int:
    """Takes away waits between streams that could close a circle over several ranks, and returns their
    number: those for an op whose meeting was complete no earlier than that of the op that waits. They
    show where a transfer is shorter than clocks are exact. What is left runs forward in time.

    ``hosts``: how many of the lanes, the first, are no streams. Their waits stay: a device op cannot come
    before its launch, nor a host behind what it saw the end of.
    """
    own = np.full_like(waits, -1)
    index = np.arange(len(waits))
    own[index, rows.lane] = waits[index, rows.lane]
    own[:, :hosts] = waits[:, :hosts]
    own[rows.lane < hosts] = waits[rows.lane < hosts]
    complete = _place(rows, own, meetings).met
    number = np.cumsum(rows.launch == index) - 1
    first, last = (segment_reduce(f, complete, number) for f in (np.minimum, np.maximum))
    backward = (waits >= 0) & (last[waits] >= first[:, None]) & (own < 0)
    waits[backward] = -1
    return int(backward.sum())


def _place(rows: Rows, waits: Waits, meetings: Meetings) -> _Placed:
    number = np.cumsum(rows.launch == np.arange(len(rows.launch))) - 1
    ends = launch_ends(rows, segment_reduce(np.minimum, rows.end_ns, meetings.id))
    settled = False
    for _ in range(MOST_PASSES):
        free = segment_reduce(np.maximum, _free(waits, ends), number)
        begin = segment_reduce(np.maximum, np.maximum(rows.start_ns, free), number)
        met = segment_reduce(np.maximum, begin, meetings.id)
        # Parts of a launch end together: what they take counts from when the last of them could begin.
        left = rows.end_ns - segment_reduce(np.maximum, met, number)
        duration = np.maximum(segment_reduce(np.minimum, left, meetings.id), 0)
        found = launch_ends(rows, met + duration)
        settled = np.array_equal(found, ends)
        if settled:
            break
        ends = found
    return _Placed(free=free, begin=begin, met=met, duration=duration, ends=ends, settled=settled)


def _free(waits: Waits, ends: Ints) -> Ints:
    """When the last of what each row waits for has ended; 0, the begin of the step, for none."""
    free = np.zeros(len(ends), dtype=np.int64)
    for lane in range(waits.shape[1]):
        waited = waits[:, lane]
        np.maximum(free, np.where(waited >= 0, ends[waited], 0), out=free)
    return free
