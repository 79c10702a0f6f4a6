"""Times of the calls in flight recorder dumps, which are seen late, and on clocks of several machines.

Durations come from events on the device and are exact. Ends come from torch's watchdog, which looks about
every 100 ms, so that several calls may seem to end at once; begins that were seen are as late.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from prismcore.rank_list import format_ranks
from prismcore.stitch.clocks import find_clocks, set_clocks
from prismcore.stitch.meetings import Meetings
from prismcore.stitch.rows import Ints, Rows, segment_reduce
from prismcore.stitch.timing import Timing, time_rows
from prismcore.stitch.waits import Waits
from prismcore.traces.collectives import NAMED

__all__ = ["WATCHDOG_NS", "time_calls"]

#: By how much ends may be seen late; clocks that differ by less cannot be told from that.
WATCHDOG_NS = 100_000_000

_UNKNOWN = -1


def time_calls(
    rows: Rows,
    waits: Waits,
    meetings: Meetings,
    *,
    durations: Mapping[int, int],
    untimed: Ints,
    warnings: list[str],
) -> Timing:
    """Gaps and durations of the rows. Each call stands behind the row of its host, whose begin is the time
    of the call.

    ``durations``: of the rows that the device timed. Where it timed all members, the transfer is the
    shortest of them (who came last did not wait), and they end together, when the first was seen to, as
    far as that can be. ``untimed``: shape [rows], 1 where no begin and end are known.
    """
    _share_clock(rows, meetings, untimed, warnings)
    exact = np.full(len(rows.rank), _UNKNOWN, dtype=np.int64)
    exact[list(durations)] = list(durations.values())
    shortest = segment_reduce(np.minimum, exact, meetings.id)
    timed = shortest > _UNKNOWN
    called = np.zeros(len(rows.rank), dtype=np.int64)
    called[1:] = rows.start_ns[:-1]
    end = np.maximum(
        segment_reduce(np.minimum, rows.end_ns, meetings.id),
        segment_reduce(np.maximum, called, meetings.id) + shortest,
    )
    rows.end_ns[timed] = end[timed]
    rows.start_ns[timed] = np.maximum(end - exact, called)[timed]
    timing = time_rows(rows, waits, meetings)
    timing.duration_ns[timed] = shortest[timed]
    return timing


def _share_clock(rows: Rows, meetings: Meetings, untimed: Ints, warnings: list[str]) -> None:
    known = segment_reduce(np.maximum, untimed, meetings.id) == 0
    apart = Meetings(
        id=np.where(known, meetings.id, len(known) + np.arange(len(known))),
        size=np.where(known, meetings.size, 1),
    )
    clocks = find_clocks(rows, apart)
    if not len(clocks.offset_ns) or np.abs(clocks.offset_ns).max() <= WATCHDOG_NS:
        return
    moved = set_clocks(rows, clocks)
    differ = clocks.ranks[np.abs(moved) > 0]
    warnings.append(
        f"clocks of ranks {format_ranks(differ.tolist(), most=NAMED)} differ from that of the lowest rank "
        "they meet; they are moved so that calls end together"
    )
    earliest = int(rows.start_ns.min())
    rows.start_ns -= earliest
    rows.end_ns -= earliest
