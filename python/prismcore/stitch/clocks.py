"""Clocks of ranks that differ, from the ends of what they did together, which they share.

Two ranks that met know how far their clocks are apart: the median over their meetings. Over the graph of
ranks this reaches those that never met: from neighbour to neighbour, along the pairs that are known best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from prismcore.errors import TraceError
from prismcore.stitch.meetings import TOLERANCE_NS, Meetings
from prismcore.stitch.rows import Ints, Rows

__all__ = ["Clocks", "find_clocks", "on_one_clock", "set_clocks"]

#: Of fewer meetings than that the spread says nothing.
FEW = 3
MOST_NS = 2**61


@dataclass(kw_only=True, slots=True)
class Clocks:
    """Shape [ranks]."""

    ranks: Ints  #: rising
    offset_ns: Ints  #: how far the clock is ahead of that of the lowest rank of its component
    component: Ints  #: the lowest rank that it is linked to by meetings; itself for none

    @property
    def moves(self) -> npt.NDArray[np.bool_]:
        """Ranks of components in which clocks differ by more than noise."""
        differ = self.component[np.abs(self.offset_ns) > TOLERANCE_NS]
        moved: npt.NDArray[np.bool_] = np.isin(self.component, differ)
        return moved


def find_clocks(rows: Rows, meetings: Meetings, loose: npt.NDArray[np.bool_] | None = None) -> Clocks:
    """Clocks of the ranks of ``rows``.

    ``loose``: rows of meetings whose members need not end together (the sender of a message may leave
    first): they count only where nothing else links two ranks. Raises TraceError for clocks that differ
    beyond what 64 bits hold.
    """
    ranks = np.unique(rows.rank)
    edges = _edges(rows, meetings, loose)
    root = {rank: rank for rank in ranks.tolist()}

    def find(rank: int) -> int:
        while root[rank] != rank:
            root[rank] = root[root[rank]]
            rank = root[rank]
        return rank

    links: dict[int, list[tuple[int, int]]] = {}
    for _, a, b, offset in sorted(edges):
        if find(a) != find(b):
            root[find(b)] = find(a)
            links.setdefault(a, []).append((b, offset))
            links.setdefault(b, []).append((a, -offset))
    offsets: dict[int, int] = {}
    component: dict[int, int] = {}
    for lowest in ranks.tolist():
        if lowest in offsets:
            continue
        offsets[lowest], component[lowest] = 0, lowest
        reached = [lowest]
        for rank in reached:  # grows
            for other, offset in links.get(rank, ()):
                if other not in offsets:
                    if abs(offsets[rank] + offset) > MOST_NS:
                        raise TraceError(
                            f"ranks {lowest} and {other}: clocks more than {MOST_NS:,} ns apart found, "
                            "expected clocks of one time"
                        )
                    offsets[other], component[other] = offsets[rank] + offset, lowest
                    reached.append(other)
    return Clocks(
        ranks=ranks,
        offset_ns=np.array([offsets[rank] for rank in ranks.tolist()], dtype=np.int64),
        component=np.array([component[rank] for rank in ranks.tolist()], dtype=np.int64),
    )


def set_clocks(rows: Rows, clocks: Clocks) -> Ints:
    """Moves the times of ranks whose component has clocks that differ to the clock of its lowest rank;
    returns by how much each rank of ``clocks`` was moved back."""
    moved = np.where(clocks.moves, clocks.offset_ns, 0)
    if moved.any():
        back = moved[np.searchsorted(clocks.ranks, rows.rank)]
        rows.start_ns -= back
        rows.end_ns -= back
    return moved


def on_one_clock(rows: Rows, clocks: Clocks) -> Rows:
    """The rows as :func:`set_clocks` would move them; those given stay as they are."""
    moved = replace(rows, start_ns=rows.start_ns.copy(), end_ns=rows.end_ns.copy())
    set_clocks(moved, clocks)
    return moved


def _edges(
    rows: Rows, meetings: Meetings, loose: npt.NDArray[np.bool_] | None
) -> list[tuple[tuple[bool, float], int, int, int]]:
    """Pairs of ranks that met: how little is known of their offset, the ranks, how far the second's
    clock is ahead."""
    shared = np.flatnonzero(meetings.size > 1)
    if not len(shared):
        return []
    first = np.full(int(meetings.id.max()) + 1, -1)
    first[meetings.id[shared[::-1]]] = shared[::-1]  # the row of the lowest rank
    with_first = first[meetings.id[shared]]
    others = shared[shared != with_first]
    with_first = first[meetings.id[others]]
    ahead = rows.end_ns[others] - rows.end_ns[with_first]
    a, b = rows.rank[with_first], rows.rank[others]
    soft = np.zeros(len(others), dtype=bool) if loose is None else loose[others]
    order = np.lexsort((ahead, b, a, soft))
    new = np.zeros(len(order), dtype=bool)
    for key in (soft, a, b):
        new[1:] |= key[order][1:] != key[order][:-1]
    edges = []
    for group in np.split(order, np.flatnonzero(new)):
        values = ahead[group]
        median = int(values[(len(values) - 1) // 2])
        spread = float(np.median(np.abs(values - median))) if len(values) >= FEW else float(TOLERANCE_NS)
        doubt = (bool(soft[group[0]]), max(spread, 1.0) / len(values) ** 0.5)
        edges.append((doubt, int(a[group[0]]), int(b[group[0]]), median))
    return edges
