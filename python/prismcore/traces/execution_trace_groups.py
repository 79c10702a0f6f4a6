"""Ranks of execution traces, and which process groups of different ranks are one communicator.

Newer traces name their groups. Older ones have an address, which means nothing on another rank: there,
groups of equal size whose collectives of equal number are equal are one, each rank at its own place in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prismcore.errors import TraceError
from prismcore.rank_list import MAX_RANK, format_ranks
from prismcore.traces.execution_trace import ExecutionTrace
from prismcore.traces.execution_trace_calls import Call, Group, GroupKey

__all__ = ["Communicator", "Shared", "communicators_of", "place_ranks"]


@dataclass(kw_only=True, slots=True)
class Communicator:
    """A process group over all traces. ``members`` None: not told, the ranks that use it."""

    name: str
    size: int | None
    members: tuple[int, ...] | None


#: Communicators by rank and by the name that its trace has for the group.
Shared = dict[tuple[int, GroupKey], Communicator]


def place_ranks(traces: Sequence[ExecutionTrace]) -> list[ExecutionTrace]:
    """Gives every trace its rank: from the file's name (``rank3``), else from its place in the default
    group, else from the number at the end of its name (``eg_3.json``); sorts them by it.

    Raises TraceError where a rank is not told, or is that of two traces.
    """
    unknown = [t for t in traces if t.rank is None]
    for trace in unknown:
        whole = [g for k, g in trace.groups.items() if isinstance(k, tuple) and _is_default(k)]
        trace.rank = next((g.place for g in whole if g.place is not None), None)
    unknown = [t for t in unknown if t.rank is None]
    for trace in unknown:
        ending = re.search(r"(\d{1,8})\.json(?:\.gz)?$", Path(trace.path).name)
        if len(traces) > 1 and ending:
            trace.rank = int(ending[1])
        elif len(traces) == 1:
            trace.rank = 0
            trace.warnings.append(f"{trace.path}: its rank is not told, and taken as 0")
        else:
            raise TraceError(
                f"{trace.path}: its rank is told neither by its name nor by a call on the default process "
                "group; expected a name as et_rank3.json"
            )
    by_rank: dict[int, ExecutionTrace] = {}
    for trace in traces:
        rank = trace.rank or 0
        if rank > MAX_RANK:
            raise TraceError(f"{trace.path}: rank {rank:,} found, expected 0 to {MAX_RANK:,}")
        if rank in by_rank:
            raise TraceError(f"{trace.path}: rank {rank} found, which {by_rank[rank].path} is as well")
        by_rank[rank] = trace
    return [by_rank[rank] for rank in sorted(by_rank)]


def communicators_of(traces: Sequence[ExecutionTrace], warnings: list[str]) -> Shared:
    """The communicator of each group of each trace (of :func:`place_ranks`); what cannot be told apart is
    each rank's own, and told in ``warnings``."""
    found: Shared = {}
    unnamed: list[_Use] = []
    for trace in traces:
        rank = trace.rank or 0
        calls: dict[GroupKey, list[Call]] = {}
        for call in trace.calls:
            if call.name != "wait":
                calls.setdefault(call.group, []).append(call)
        for key, of in calls.items():
            group = trace.groups[key]
            if group.name is not None:
                members = group.members if group.members is None or rank in group.members else None
                found[rank, key] = Communicator(name=group.name, size=group.size, members=members)
            elif group.size == 1:
                found[rank, key] = Communicator(name=f"of rank {rank} alone", size=1, members=(rank,))
            else:
                unnamed.append(_Use(rank=rank, key=key, group=group, calls=_by_number(of)))
    shared = _joined(unnamed)
    for number, uses in enumerate(shared):
        for use, communicator in zip(uses, _named(uses, number, warnings), strict=True):
            found[use.rank, use.key] = communicator
    return found


@dataclass(kw_only=True, slots=True)
class _Use:
    """A rank's use of a group without a name."""

    rank: int
    key: GroupKey
    group: Group
    calls: dict[int, tuple[str, int]] = field(default_factory=dict)

    def like(self, other: _Use) -> bool:
        """Whether both can be one: some numbers in common, and the same calls at all of these."""
        common = self.calls.keys() & other.calls.keys()
        return (
            self.group.size == other.group.size
            and self.rank != other.rank
            and bool(common)
            and all(self.calls[n] == other.calls[n] for n in common)
        )


def _by_number(calls: Sequence[Call]) -> dict[int, tuple[str, int]]:
    """Name of each numbered call, and its bytes where members must agree on them."""
    return {c.number: (c.name, 0 if c.splits != ((), ()) else c.bytes) for c in calls}


def _joined(uses: Sequence[_Use]) -> list[list[_Use]]:
    joined: list[list[_Use]] = []
    for use in uses:
        fitting = next(
            (of for of in joined if of[0].like(use) and all(use.rank != other.rank for other in of)), None
        )
        if fitting is None:
            joined.append([use])
        else:
            fitting.append(use)
    return joined


def _named(uses: list[_Use], number: int, warnings: list[str]) -> list[Communicator]:
    size = uses[0].group.size
    ranks = [use.rank for use in uses]
    places = {use.rank: use.group.place for use in uses}
    name = f"group {number}"
    if (size is not None and len(uses) > size) or _twice(places):
        warnings.append(
            f"ranks {format_ranks(ranks)} call the same on groups of {size or 'unknown size'}, and these "
            "traces do not tell which of them share one; each keeps its own, waiting included. Traces of "
            "schema 1.0.2 and later name their groups"
        )
        return [Communicator(name=f"{name} of rank {rank}", size=size, members=None) for rank in ranks]
    if size is not None and len(uses) < size:
        warnings.append(f"{name}: {len(uses)} of its {size} ranks have traces, the others are left out")
    if None not in places.values():
        ranks.sort(key=lambda rank: places[rank] or 0)
    return [Communicator(name=name, size=size, members=tuple(ranks)) for _ in uses]


def _twice(places: dict[int, int | None]) -> bool:
    known = [place for place in places.values() if place is not None]
    return len(set(known)) < len(known)


def _is_default(key: tuple[str, str]) -> bool:
    return key[1] == "default_pg" or key[0] == "0"
