"""Collectives of communicators whose members no trace tells: ranks that did the same, and whose times say
that they met.

Ranks of a communicator mostly lie evenly (beside each other, or some ranks apart), so sets of such ranks
are tried, the largest first. What no set explains is matched with nobody's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prismcore.stitch.clocks import Clocks, on_one_clock
from prismcore.stitch.rows import Ints, Rows
from prismcore.traces.agreed_groups import agreed, aligned, has_numbers
from prismcore.traces.collectives import TOLD, Collective, Group, rank_list
from prismcore.traces.meeting_times import possible, table_of

__all__ = ["guessed"]

MOST_SINGLE = 256  # lists that are tried one by one
#: So many collectives must agree on a clock that differs, before it is believed beside the members.
MANY = 8
#: How much longer, in transfers, others must wait in a smaller set before it is taken for part of a larger.
OUTSIDE = 0.5


@dataclass(kw_only=True, slots=True)
class _Guess:
    """A group, and how it came about."""

    name: str
    group: Group
    named: bool  #: all members give it that name
    split: bool = False  #: the ranks that did the same are more

    @property
    def doubtful(self) -> bool:
        """Whether other members would explain the times as well."""
        count = len(self.group.ranks)
        return count > 1 and (self.split or self.group.series[0][0].size != count)


def guessed(
    lists: Mapping[str, dict[int, list[Collective]]],
    present: int,
    warnings: list[str],
    *,
    times: Rows | None,
    clocks: Clocks | None,
) -> list[tuple[str, Group]]:
    """Groups with the names of their communicators.

    ``lists``: by name the collectives of each rank, whose kinds are all guesses or none is; ``present``: how
    many ranks have traces; ``clocks``: as far as communicators with known members tell them.
    """
    if times is None:
        return _without_times(lists, warnings)
    at = times if clocks is None else on_one_clock(times, clocks)
    guesses: list[_Guess] = []
    for alike in _alike(lists):
        guesses += _split(alike, at, clocks)
    guesses = _with_late(guesses, at)
    _tell(guesses, present, warnings)
    return [(guess.name, guess.group) for guess in guesses]


def _without_times(
    lists: Mapping[str, dict[int, list[Collective]]], warnings: list[str]
) -> list[tuple[str, Group]]:
    """By the name of the communicator alone: by numbers, else ranks that did the same."""
    out: list[tuple[str, Group]] = []
    for name, of_rank in lists.items():
        ranks = sorted(of_rank)
        if has_numbers(of_rank):
            groups = agreed(name, of_rank, ranks, warnings, times=None, doubted=of_rank[ranks[0]][0].guessed)
        else:
            sets: dict[tuple[int, ...], list[int]] = {}
            for rank in ranks:
                sets.setdefault(tuple(c.kind for c in of_rank[rank]), []).append(rank)
            groups = [Group(ranks=tuple(s), series=[of_rank[r] for r in s]) for s in sets.values()]
        out += [(name, group) for group in groups]
    return out


_List = tuple[str, int, list[Collective]]  # name, rank, what it did


def _alike(lists: Mapping[str, dict[int, list[Collective]]]) -> list[list[_List]]:
    """Lists of the same kinds, numbers and size, one a rank; with names that only their rank gives them,
    those of one name where a rank has several."""
    classes: dict[object, list[_List]] = {}
    for name, of_rank in lists.items():
        for rank, collectives in sorted(of_rank.items()):
            first = collectives[0]
            did = tuple((c.kind, c.number) for c in collectives)
            key = (name if first.named else None, first.size, did)
            classes.setdefault(key, []).append((name, rank, collectives))
    out = []
    for alike in classes.values():
        if len({rank for _, rank, _ in alike}) == len(alike):
            out.append(sorted(alike, key=lambda one: one[1]))
            continue
        by_name: dict[str, list[_List]] = {}
        for one in alike:
            by_name.setdefault(one[0], []).append(one)
        out += by_name.values()
    return out


def _split(alike: list[_List], times: Rows, clocks: Clocks | None) -> list[_Guess]:
    """Sets of ranks that met."""
    ranks = np.array([rank for _, rank, _ in alike])
    first = alike[0][2][0]
    sets: list[list[int]]
    if len(alike) == 1:
        sets = [[0]]
    else:
        start, end = table_of(times, [collectives for _, _, collectives in alike])
        linked = clocks is not None and len(set(clocks.component[np.searchsorted(clocks.ranks, ranks)])) == 1
        if first.guessed:
            # Ranks of a pipeline that send alike, some time apart or at the same time, are no members of
            # one communicator: all ranks that did so, on clocks as they are known, or none.
            sets = [[*range(len(alike))]] if possible(start, end) else [[i] for i in range(len(alike))]
        else:
            sets = _sets(start, end, size=first.size, may_differ=not linked)
    guesses = []
    for members in sets:
        group = Group(ranks=tuple(int(ranks[i]) for i in members), series=[alike[i][2] for i in members])
        guesses.append(
            _Guess(name=alike[members[0]][0], group=group, named=first.named, split=len(members) < len(alike))
        )
    return guesses


def _sets(start: Ints, end: Ints, *, size: int | None, may_differ: bool) -> list[list[int]]:
    """Sets of places in [ranks, collectives] that can have met: on clocks as they are, else on clocks that
    differ. ``size``: of the communicator, where it is known."""
    count = len(end)
    sizes = [k for k in range(count, 1, -1) if count % k == 0]
    if size is not None and size <= count:
        sizes = [k for k in sizes if k == size]
    found = next((s for k in sizes for s in _even_sets(count, k) if possible(start[s], end[s])), None)
    if found is not None and found.shape[1] == sizes[0]:
        return [[*map(int, one)] for one in found]
    if may_differ and sizes:
        for whole in _even_sets(count, sizes[0]):
            if possible(start[whole], end[whole], shifted=True, least=MANY) and (
                found is None or _waits_outside(start, end, found)
            ):
                return [[*map(int, one)] for one in whole]
    if found is not None:
        return [[*map(int, one)] for one in found]
    return _one_by_one(start, end, size)


def _even_sets(count: int, size: int) -> Iterator[Ints]:
    """Ways to split places into sets of a size that lie evenly; each of shape [sets, size]."""
    for stride in (t for t in range(1, count // size + 1) if (count // size) % t == 0):
        places = np.arange(count).reshape(-1, size, stride)
        yield places.swapaxes(1, 2).reshape(-1, size)


def _waits_outside(start: Ints, end: Ints, sets: Ints) -> bool:
    """Whether the last to come in a set still waited, by what others of the same number took: then the
    sets are parts of a larger one."""
    least = (end - start)[sets].min(axis=1)  # [sets, collectives]
    transfer = least.min(axis=0)
    waited = float((least - transfer).sum())
    return waited > OUTSIDE * max(float(transfer.sum()), 1.0) * (len(sets) - 1)


def _one_by_one(start: Ints, end: Ints, size: int | None) -> list[list[int]]:
    sets: list[list[int]] = []
    for place in range(len(end)):
        for members in sets if len(end) <= MOST_SINGLE else ():
            together = [*members, place]
            if (size is None or len(together) <= size) and possible(start[together], end[together]):
                members.append(place)
                break
        else:
            sets.append([place])
    return sets


def _with_late(guesses: list[_Guess], times: Rows) -> list[_Guess]:
    """Joins ranks that nobody met yet with others whose traces began earlier or ended later."""
    single = [g for g in guesses if len(g.group.ranks) == 1]
    if len(single) > MOST_SINGLE or len(guesses) > 4 * MOST_SINGLE:
        return guesses
    order = sorted(guesses, key=lambda g: -len(g.group.series[0]))
    out: list[_Guess] = []
    for guess in order:
        joined = None
        if len(guess.group.ranks) == 1:
            joined = next((other for other in out if _joins(other, guess, times)), None)
        if joined is None:
            out.append(guess)
            continue
        fitting = aligned([*joined.group.series, *guess.group.series], times, least=MANY)
        parts = fitting[0] if fitting else []
        ranks = (*joined.group.ranks, *guess.group.ranks)
        by_rank = sorted(range(len(ranks)), key=lambda i: ranks[i])
        kept = {id(c) for one in parts for c in one}
        for rank, one in zip(joined.group.ranks, joined.group.series, strict=True):
            left = [c for c in one if id(c) not in kept]
            if left:
                out.append(_Guess(name=joined.name, group=Group.alone(rank, left), named=joined.named))
        joined.group = Group(ranks=tuple(ranks[i] for i in by_rank), series=[parts[i] for i in by_rank])
    return out


def _joins(other: _Guess, guess: _Guess, times: Rows) -> bool:
    of, one = other.group, guess.group
    first, mine = of.series[0][0], one.series[0][0]
    if len(of.series[0]) <= len(one.series[0]) or set(of.ranks) & set(one.ranks):
        return False
    if (first.guessed, first.size) != (mine.guessed, mine.size) or (
        (other.named or guess.named) and other.name != guess.name
    ):
        return False
    if first.size is not None and len(of.ranks) >= first.size:
        return False
    return aligned([*of.series, *one.series], times, least=MANY) is not None


def _tell(guesses: Sequence[_Guess], present: int, warnings: list[str]) -> None:
    if present == 1:
        return
    joined = sorted({g.group.ranks for g in guesses if g.doubtful})
    if joined:
        sets = "; ".join(map(rank_list, joined[:TOLD])) + ("; ..." if len(joined) > TOLD else "")
        warnings.append(
            f"traces do not tell the members of communicators; by their times these ranks met: {sets}. "
            "Groups that do the same in lockstep look like one, so that each of these may be several, whose "
            "slow ranks then seem to delay all"
        )
    alone = [g.group for g in guesses if len(g.group.ranks) == 1]
    if alone:
        count = sum(len(group.series[0]) for group in alone)
        sent = sum(len(g.series[0]) for g in alone if g.series[0][0].guessed)
        of_those = f" ({sent:,} of them send and receive, to and from whom is not told)" if sent else ""
        warnings.append(
            f"{count:,} collectives of ranks {rank_list([g.ranks[0] for g in alone])} are matched with "
            f"nobody's{of_those}: the trace does not tell members, nor do times; these keep their measured "
            "times, waiting included"
        )
