"""Which sends and receives of different ranks are one message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prismcore.graph import OpKind
from prismcore.stitch.meetings import TOLERANCE_NS, Meetings
from prismcore.stitch.rows import Ints, Rows
from prismcore.traces.collectives import Communicators, with_trace
from prismcore.traces.kineto_meetings import Side

__all__ = ["eager_sends", "match_messages"]


@dataclass(kw_only=True, slots=True)
class _Sides:
    """Of one pair of ranks on one communicator."""

    sends: list[Side]
    receives: list[Side]


def match_messages(
    of_ranks: Sequence[tuple[int, Sequence[Side]]],
    present: Sequence[int],
    ids: Ints,
    found: Communicators,
    warnings: list[str],
    *,
    times: Rows,
) -> Ints:
    """The n-th send and the n-th receive of a pair of ranks are one message; where a trace lacks some, the
    last or the first, whose ends lie apart more evenly. Numbers count the sends and receives of one
    rank, and tell nothing here.

    Enters meetings into ``ids`` and ``found``; returns the other side of each row, -1 for none.
    """
    peer = np.full(len(ids), -1)
    pairs: dict[tuple[str, tuple[int, ...], int, int], _Sides] = {}
    kept: dict[object, tuple[int, ...]] = {}
    for rank, sides in of_ranks:
        for side in sides:
            key = (side.name, side.members)
            if key not in kept:
                kept[key] = with_trace(side.members, present)
            ends = (rank, side.peer) if side.sends else (side.peer, rank)
            of = pairs.setdefault((side.name, kept[key], *ends), _Sides(sends=[], receives=[]))
            (of.sends if side.sends else of.receives).append(side)
    left = absent = 0
    for (name, members, source, target), of in pairs.items():
        matched = _matched(of, times)
        left += len(of.sends) + len(of.receives) - 2 * len(matched)
        absent += (source not in present) * len(of.receives) + (target not in present) * len(of.sends)
        for send, receive in matched:
            found.ref[[send.row, receive.row]] = found.number(name, members, send.members)
            ids[receive.row] = ids[send.row]
            peer[send.row], peer[receive.row] = target, source
    if left:
        warnings.append(
            f"{left:,} sends and receives have no other side ({absent:,} because its rank has no trace); "
            "these keep their measured times, waiting included"
        )
    return peer


def _matched(of: _Sides, times: Rows) -> list[tuple[Side, Side]]:
    sends, receives = of.sends, of.receives
    common = min(len(sends), len(receives))
    if not common:
        return []
    first = list(zip(sends[:common], receives[:common], strict=True))
    last = list(zip(sends[-common:], receives[-common:], strict=True))
    return min((last, first), key=lambda pairs: _spread(pairs, times))


def _spread(pairs: Sequence[tuple[Side, Side]], times: Rows) -> float:
    """How differently the ends of pairs lie apart; a clock that differs counts for nothing."""
    sent, received = (np.array([p[side].row for p in pairs], dtype=np.int64) for side in (0, 1))
    ahead = times.end_ns[received] - times.end_ns[sent]
    return float(np.abs(ahead - np.median(ahead)).mean())


def eager_sends(rows: Rows, meetings: Meetings, kind: Ints) -> int:
    """How many sends had ended, noise apart, before their receive began."""
    sends, receives = np.flatnonzero(kind == OpKind.SEND), np.flatnonzero(kind == OpKind.RECV)
    begin = np.full(int(meetings.id.max(initial=-1)) + 1, -1, dtype=np.int64)
    begin[meetings.id[receives]] = rows.start_ns[receives]
    return int((begin[meetings.id[sends]] > rows.end_ns[sends] + TOLERANCE_NS).sum())
