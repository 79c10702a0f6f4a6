"""Which collectives of different ranks are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from prismcore.graph import DataType, OpKind
from prismcore.rank_list import absent_words, format_absent, format_ranks
from prismcore.stitch.clocks import find_clocks, on_one_clock
from prismcore.stitch.meetings import Meetings
from prismcore.stitch.rows import Ints, Rows

__all__ = [
    "Collective",
    "Communicators",
    "Group",
    "Members",
    "find_meetings",
    "kind_of_call",
    "rank_list",
    "with_trace",
]

#: Kinds whose members may bring different sizes (tables of splits); the largest counts for all.
UNEVEN = (OpKind.ALL_TO_ALL, OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER, OpKind.GATHER, OpKind.SCATTER)
TOLD = 10  # warnings of one kind
NAMED = 20  # ranges of ranks in a warning

#: A range where ranks lie evenly, so that as many as there may be cost nothing.
Members = range | tuple[int, ...]

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


@dataclass(kw_only=True, slots=True)
class Collective:
    """A collective, as one rank saw it."""

    row: int
    communicator: tuple[str, Members | None]  #: name; members, where the trace tells them
    kind: int
    bytes: int | None  #: of all members where kinds are uneven, once meetings are found
    dtype: DataType = DataType.NONE
    number: int | None = None  #: in the order of its communicator, where the trace tells it
    named: bool = True  #: the name is one that all members give it
    size: int | None = None  #: of the communicator, where the trace tells it
    guessed: bool = False  #: the kind is a guess: it is no meeting of all members unless their times say so


@dataclass(kw_only=True, slots=True)
class Group:
    """Ranks and what each of them did together with the others: equally many, in one order."""

    ranks: tuple[int, ...]
    series: list[list[Collective]]

    @staticmethod
    def alone(rank: int, collectives: list[Collective]) -> Group:
        """Collectives that are matched with nobody's."""
        return Group(ranks=(rank,), series=[collectives])


@dataclass(kw_only=True, slots=True)
class Communicators:
    """``ref`` has shape [rows]: into ``communicators``; -1 where a row is no part of a meeting.

    ``told``: of each communicator, members as the trace has them, those without a trace among them; None
    where it does not tell."""

    ref: Ints
    communicators: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    told: list[Members | None] = field(default_factory=list)
    _numbers: dict[tuple[str, tuple[int, ...], Members | None], int] = field(default_factory=dict)

    def number(self, name: str, members: tuple[int, ...], told: Members | None) -> int:
        """Of a communicator, new or known."""
        number = self._numbers.setdefault((name, members, told), len(self.communicators))
        if number == len(self.communicators):
            self.communicators.append((name, members))
            self.told.append(told)
        return number

    def add(self, name: str, told: Members | None, group: Group, ids: Ints) -> None:
        """Enters what a group did, and its meetings into ``ids``."""
        if len(group.ranks) > 1:
            for meeting in zip(*group.series, strict=True):
                most = max(c.bytes or 0 for c in meeting)
                for collective in meeting:
                    ids[collective.row] = meeting[0].row
                    collective.bytes = most if most else collective.bytes
        self.ref[[c.row for one in group.series for c in one]] = self.number(name, group.ranks, told)


def find_meetings(
    of_ranks: Sequence[tuple[int, Sequence[Collective]]],
    rows: int,
    warnings: list[str],
    *,
    times: Rows | None = None,
) -> tuple[Meetings, Communicators]:
    """Collectives of one number on a communicator are one; without numbers the n-th on all its members.

    ``of_ranks``: rank and its collectives in order, ``row`` counted over all ranks. ``times``: of the rows,
    where they were measured. Where a trace does not tell members, they are ranks with the same kinds of
    collectives whose times say that they met (``traces.guessed_groups``); without times, those on the
    communicator of that name. Members without a trace are left out, and told; what members do not agree
    on is not matched (each has it on a communicator of its own), and told.
    """
    from prismcore.traces.agreed_groups import agreed
    from prismcore.traces.guessed_groups import guessed

    present = [rank for rank, _ in of_ranks]
    lists: dict[tuple[str, Members | None, bool], dict[int, list[Collective]]] = {}
    for rank, collectives in of_ranks:
        for c in collectives:
            lists.setdefault((*c.communicator, c.guessed), {}).setdefault(rank, []).append(c)
    ids = np.arange(rows)
    found = Communicators(ref=np.full(rows, -1))
    said: list[str] = []
    for name, members in {(name, told): None for name, told, _ in lists if told is not None}:
        _tell_absent(name, members, present, said)
    for doubted in (False, True):  # these need clocks that the others tell
        clocks = None if times is None else find_clocks(times, _meetings(ids))
        at = times if times is None or clocks is None else on_one_clock(times, clocks)
        untold: dict[str, dict[int, list[Collective]]] = {}
        for (name, told, is_guess), of_rank in lists.items():
            if is_guess != doubted:
                continue
            if told is None:
                untold[name] = of_rank
                continue
            here = with_trace(told, present)
            for group in agreed(name, of_rank, here, said, times=at, doubted=doubted):
                found.add(name, told, group, ids)
        if untold:
            clocks = None if times is None else find_clocks(times, _meetings(ids))
            for name, group in guessed(untold, len(present), warnings, times=times, clocks=clocks):
                found.add(name, None, group, ids)
    warnings += said[:TOLD]
    if len(said) > TOLD:
        warnings.append(f"{len(said) - TOLD:,} more of what communicators lack, or do not agree on")
    return _meetings(ids), found


def _meetings(ids: Ints) -> Meetings:
    numbers = np.unique(ids, return_inverse=True)[1].reshape(-1)
    return Meetings(id=numbers, size=np.bincount(numbers, minlength=1)[numbers])


def with_trace(told: Members, present: Sequence[int]) -> tuple[int, ...]:
    """Members that have a trace, in the order of the communicator."""
    if isinstance(told, range):
        return tuple(sorted(r for r in present if r in told))
    here = set(present)
    return tuple(r for r in told if r in here)


def told_of_many(texts: Sequence[str]) -> list[str]:
    """Warnings of one kind, as many as can be read, and how many more there are."""
    more = [f"{len(texts) - TOLD:,} more of these warnings"] if len(texts) > TOLD else []
    return [*texts[:TOLD], *more]


def rank_list(ranks: Sequence[int]) -> str:
    """Ranks as a warning names them."""
    return format_ranks(ranks, most=NAMED)


def _tell_absent(name: str, told: Members, present: Sequence[int], warnings: list[str]) -> None:
    absent = (
        format_absent(present, told, most=NAMED)
        if isinstance(told, range)
        else rank_list(sorted(set(told).difference(present)))
    )
    if absent:
        warnings.append(
            f"communicator {name}: {absent_words(absent, f'{len(told):,}', 'trace')}, left out of its "
            "collectives; what was measured of these holds the waiting for the missing"
        )
