"""Which collectives of different ranks are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from prismcore.graph import OpKind
from prismcore.rank_list import format_absent, format_ranks
from prismcore.stitch.meetings import Meetings
from prismcore.stitch.rows import Ints

__all__ = ["Collective", "Communicators", "Members", "find_meetings", "kind_of_call"]

#: Kinds whose members may bring different sizes (tables of splits); the largest counts for all.
UNEVEN = (OpKind.ALL_TO_ALL, OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER, OpKind.GATHER, OpKind.SCATTER)


_CALLS = (
    ("all_reduce", OpKind.ALL_REDUCE),
    ("allreduce", OpKind.ALL_REDUCE),
    ("barrier", OpKind.ALL_REDUCE),
    ("all_gather", OpKind.ALL_GATHER),
    ("allgather", OpKind.ALL_GATHER),
    ("reduce_scatter", OpKind.REDUCE_SCATTER),
    ("reducescatter", OpKind.REDUCE_SCATTER),
    ("all_to_all", OpKind.ALL_TO_ALL),
    ("alltoall", OpKind.ALL_TO_ALL),
    ("broadcast", OpKind.BROADCAST),
    ("reduce", OpKind.REDUCE),
    ("gather", OpKind.GATHER),
    ("scatter", OpKind.SCATTER),
    ("send", OpKind.SEND),
    ("recv", OpKind.RECV),
)


def kind_of_call(name: str) -> OpKind | None:
    """What a call of torch.distributed does, by any of its names: ``allreduce``, ``_allgather_base``,
    ``nccl:reduce_scatter_tensor_coalesced``, ``all_to_allv``; None: not known."""
    text = name.lower()
    return next((kind for key, kind in _CALLS if key in text), None)


#: A range where ranks lie evenly, so that as many as there may be cost nothing.
Members = range | tuple[int, ...]

TOLD = 10  # warnings of one kind
NAMED = 20  # ranges of ranks in a warning


@dataclass(kw_only=True, slots=True)
class Collective:
    """A collective, as one rank saw it."""

    row: int
    communicator: tuple[str, Members | None]  #: name; members, where the trace tells them
    kind: int
    bytes: int | None  #: of all members where kinds are uneven, once meetings are found
    number: int | None = None  #: in the order of its communicator, where the trace tells it


@dataclass(kw_only=True, slots=True)
class Communicators:
    """``ref`` has shape [rows]: into ``communicators``; -1 where a row is no part of a meeting.

    ``told``: of each communicator, members as the trace has them, those without a trace among them; None
    where it does not tell."""

    ref: Ints
    communicators: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    told: list[Members | None] = field(default_factory=list)


def find_meetings(
    of_ranks: Sequence[tuple[int, Sequence[Collective]]], rows: int, warnings: list[str]
) -> tuple[Meetings, Communicators]:
    """Collectives of one number on a communicator are one; without numbers the n-th on all its members.

    ``of_ranks``: rank and its collectives in order, ``row`` counted over all ranks. Where a trace does
    not tell members, they are the ranks with the same kinds of collectives on the communicator of that
    name. Members without a trace are left out, and told; what members do not agree on is not matched
    (each has it on a communicator of its own), and told.
    """
    ids = np.arange(rows)
    ref = np.full(rows, -1)
    present = [rank for rank, _ in of_ranks]
    lists: dict[tuple[str, Members | None], dict[int, list[Collective]]] = {}
    for rank, collectives in of_ranks:
        for collective in collectives:
            lists.setdefault(collective.communicator, {}).setdefault(rank, []).append(collective)
    found = Communicators(ref=ref)
    said: list[str] = []
    for (name, told), of_rank in lists.items():
        if told is not None:
            _tell_absent(name, told, present, said)
        alike = _numbered if _has_numbers(of_rank) else _in_order
        for members, series in alike(name, told, of_rank, present, said):
            if len(members) > 1:
                for meeting in zip(*series, strict=True):
                    most = max(c.bytes or 0 for c in meeting)
                    for collective in meeting:
                        ids[collective.row] = meeting[0].row
                        collective.bytes = most if most else collective.bytes
            for collective in (c for one in series for c in one):
                ref[collective.row] = len(found.communicators)
            found.communicators.append((name, members))
            found.told.append(told)
    warnings += said[:TOLD]
    if len(said) > TOLD:
        warnings.append(f"{len(said) - TOLD:,} more of what communicators lack, or do not agree on")
    numbers = np.unique(ids, return_inverse=True)[1].reshape(-1)
    meetings = Meetings(id=numbers, size=np.bincount(numbers)[numbers])
    return meetings, found


_Alike = list[tuple[tuple[int, ...], list[list[Collective]]]]


def _tell_absent(name: str, told: Members, present: Sequence[int], warnings: list[str]) -> None:
    absent = (
        format_absent(present, told, most=NAMED)
        if isinstance(told, range)
        else format_ranks(set(told).difference(present), most=NAMED)
    )
    if absent:
        warnings.append(
            f"communicator {name}: ranks {absent} of its {len(told):,} have no trace, and "
            "are left out of its collectives"
        )


def _has_numbers(of_rank: dict[int, list[Collective]]) -> bool:
    """Whether every collective has a number that its rank does not give twice."""
    for collectives in of_rank.values():
        numbers = {c.number for c in collectives}
        if None in numbers or len(numbers) < len(collectives):
            return False
    return True


def _in_order(
    name: str,
    told: Members | None,
    of_rank: dict[int, list[Collective]],
    present: Sequence[int],
    warnings: list[str],
) -> _Alike:
    """Members with their collectives, for each set of ranks that went through the same kinds."""
    sets: dict[tuple[int, ...], list[int]] = {}
    for rank, collectives in sorted(of_rank.items()):
        sets.setdefault(tuple(c.kind for c in collectives), []).append(rank)
    if len(sets) == 1 or told is None:
        return [(tuple(ranks), [of_rank[rank] for rank in ranks]) for ranks in sets.values()]
    counts = ", ".join(
        f"{len(kinds)} on ranks {format_ranks(ranks, most=NAMED)}"
        for kinds, ranks in list(sets.items())[:NAMED]
    )
    warnings.append(
        f"communicator {name}: its members did not do the same collectives in the traces ({counts}); these "
        "keep their measured times, waiting included. Traces may begin or end at different steps"
    )
    return [((rank,), [collectives]) for rank, collectives in of_rank.items()]


def _numbered(
    name: str,
    told: Members | None,
    of_rank: dict[int, list[Collective]],
    present: Sequence[int],
    warnings: list[str],
) -> _Alike:
    """All members with the collectives that each of them has, and each with those it cannot share."""
    members = _present(told, present) if told is not None else tuple(sorted(of_rank))
    at = {rank: {c.number: c for c in of_rank.get(rank, ())} for rank in members}
    shared: dict[int, list[Collective]] = {rank: [] for rank in members}
    alone: dict[int, list[Collective]] = {}
    doubts: dict[str, list[int]] = {}
    for number in sorted({c.number or 0 for of in of_rank.values() for c in of}):
        found = {rank: at[rank][number] for rank in members if number in at[rank]}
        doubt = _doubt(name, found, members, at)
        if doubt is None:
            for rank, collective in found.items():
                shared[rank].append(collective)
        else:
            doubts.setdefault(doubt, []).append(number)
            for rank, collective in found.items():
                alone.setdefault(rank, []).append(collective)
    for doubt, numbers in doubts.items():
        warnings.append(
            f"communicator {name}: {doubt} (collectives {format_ranks(numbers, most=NAMED)}); these keep the "
            "times of their rank"
        )
    whole: _Alike = [(members, list(shared.values()))] if members and shared[members[0]] else []
    return whole + [((rank,), [collectives]) for rank, collectives in alone.items()]


def _present(told: Members, present: Sequence[int]) -> tuple[int, ...]:
    """Members that have a trace, in the order of the communicator."""
    if isinstance(told, range):
        return tuple(sorted(r for r in present if r in told))
    here = set(present)
    return tuple(r for r in told if r in here)


def _doubt(
    name: str,
    found: dict[int, Collective],
    members: tuple[int, ...],
    at: dict[int, dict[int | None, Collective]],
) -> str | None:
    """Why these cannot be one collective of all members, in words without its number; None: they can."""
    first = next(iter(found.values()))
    number = first.number or 0
    late = [r for r in members if r not in found and at[r] and number < min(n or 0 for n in at[r])]
    if late:
        return f"the traces of ranks {format_ranks(late, most=NAMED)} begin later"
    missing = [r for r in members if r not in found]
    if missing:
        return f"ranks {format_ranks(missing, most=NAMED)} lack what others did"
    for rank, collective in found.items():
        if collective.kind != first.kind:
            kinds = OpKind(first.kind).name.lower(), OpKind(collective.kind).name.lower()
            return f"ranks {members[0]} and {rank} did different ones, {kinds[0]} and {kinds[1]}"
        sizes = first.bytes or 0, collective.bytes or 0
        if sizes[0] != sizes[1] and first.kind not in UNEVEN and 0 not in sizes:
            return f"ranks {members[0]} and {rank} brought {sizes[0]:,} and {sizes[1]:,} bytes"
    return None
