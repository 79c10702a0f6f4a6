"""Collectives of a communicator whose members are told: which of them all members did."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prismcore.graph import OpKind
from prismcore.stitch.clocks import FEW
from prismcore.stitch.rows import Rows
from prismcore.traces.collectives import UNEVEN, Collective, Group, rank_list
from prismcore.traces.meeting_times import possible, shifts, table_of

__all__ = ["agreed", "aligned", "has_numbers"]


def agreed(
    name: str,
    of_rank: dict[int, list[Collective]],
    members: Sequence[int],
    warnings: list[str],
    *,
    times: Rows | None,
    doubted: bool,
) -> list[Group]:
    """``members``: those that have a trace. ``doubted``: they need not have met at all, times must say."""
    if doubted and len(members) > 1 and not _meets(of_rank, members, times):
        count = sum(len(collectives) for collectives in of_rank.values())
        warnings.append(
            f"communicator {name}: {count:,} kernels send and receive, to and from whom is not told, nor do "
            "their times show all members together; these keep their measured times, waiting included"
        )
        return [Group.alone(rank, collectives) for rank, collectives in of_rank.items()]
    if has_numbers(of_rank):
        return _numbered(name, of_rank, members, warnings)
    return _in_order(name, of_rank, members, warnings, times)


def _meets(of_rank: dict[int, list[Collective]], members: Sequence[int], times: Rows | None) -> bool:
    lengths = {len(of_rank.get(rank, ())) for rank in members}
    if times is None or len(lengths) > 1:
        return False
    table = table_of(times, [of_rank[rank] for rank in members])
    return possible(*table)


def has_numbers(of_rank: dict[int, list[Collective]]) -> bool:
    """Whether every collective has a number that its rank does not give twice."""
    for collectives in of_rank.values():
        numbers = {c.number for c in collectives}
        if None in numbers or len(numbers) < len(collectives):
            return False
    return True


def aligned(
    series: Sequence[list[Collective]], times: Rows | None, *, least: int = FEW
) -> tuple[list[list[Collective]], bool] | None:
    """Of lists that differ in length the parts that can be the same collectives, and whether they are
    the last ones (a trace began later) or the first ones (it ended earlier); None: neither can.

    ``least``: collectives that must agree on clocks that differ. Without times only lists of one length
    are the same.
    """
    common = min(len(one) for one in series)
    if all(len(one) == common for one in series):
        same = len({tuple(c.kind for c in one) for one in series}) == 1
        return ([*series], True) if same else None
    found: list[tuple[float, list[list[Collective]], bool]] = []
    for last in (True, False):
        parts = [one[len(one) - common :] if last else one[:common] for one in series]
        if times is None or len({tuple(c.kind for c in one) for one in parts}) > 1:
            continue
        start, end = table_of(times, parts)
        if possible(start, end) or possible(start, end, shifted=True, least=least):
            rest = end - shifts(end)
            found.append((float(np.ptp(rest, axis=0).mean()), parts, last))
    if not found:
        return None
    _, parts, last = min(found, key=lambda one: (one[0], not one[2]))
    return parts, last


def _in_order(
    name: str,
    of_rank: dict[int, list[Collective]],
    members: Sequence[int],
    warnings: list[str],
    times: Rows | None,
) -> list[Group]:
    """All members with the collectives that they have in common, by order."""
    series = [of_rank.get(rank, []) for rank in members]
    fitting = aligned(series, times) if all(series) else None
    if fitting is None:
        counts = ", ".join(
            f"{count} on ranks {rank_list([r for r in members if len(of_rank.get(r, ())) == count])}"
            for count in sorted({len(one) for one in series}, reverse=True)[:8]
        )
        warnings.append(
            f"communicator {name}: its members did not do the same collectives in the traces ({counts}); "
            "these keep their measured times, waiting included. Traces may begin or end at different steps"
        )
        return [Group.alone(rank, collectives) for rank, collectives in of_rank.items()]
    parts, last = fitting
    groups = [Group(ranks=tuple(members), series=parts)]
    kept = {id(c) for one in parts for c in one}
    left = {rank: [c for c in of if id(c) not in kept] for rank, of in of_rank.items()}
    if any(left.values()):
        short = [rank for rank in members if not left.get(rank)]
        most = max(map(len, left.values()))
        warnings.append(
            f"communicator {name}: the traces of ranks {rank_list(short)} "
            f"{'begin later' if last else 'end earlier'}; {most:,} collectives of others "
            "keep their measured times, waiting included"
        )
    return groups + [Group.alone(rank, of) for rank, of in left.items() if of]


def _numbered(
    name: str, of_rank: dict[int, list[Collective]], members: Sequence[int], warnings: list[str]
) -> list[Group]:
    """All members with the collectives that each of them has, and each with those it cannot share."""
    at = {rank: {c.number or 0: c for c in of_rank.get(rank, ())} for rank in members}
    begin = {rank: min(of) if of else None for rank, of in at.items()}
    shared: dict[int, list[Collective]] = {rank: [] for rank in members}
    alone: dict[int, list[Collective]] = {}
    doubts: dict[str, list[int]] = {}
    for number in sorted({c.number or 0 for of in of_rank.values() for c in of}):
        found = {rank: at[rank][number] for rank in members if number in at[rank]}
        doubt = _doubt(number, found, members, begin)
        if doubt is None:
            for rank, collective in found.items():
                shared[rank].append(collective)
        else:
            doubts.setdefault(doubt, []).append(number)
            for rank, collective in found.items():
                alone.setdefault(rank, []).append(collective)
    for doubt, numbers in doubts.items():
        warnings.append(
            f"communicator {name}: {doubt} (collectives {rank_list(numbers)}); these keep the measured times "
            "of their rank, waiting included"
        )
    whole = [Group(ranks=tuple(members), series=list(shared.values()))] if shared[members[0]] else []
    return whole + [Group.alone(rank, collectives) for rank, collectives in alone.items()]


def _doubt(
    number: int,
    found: dict[int, Collective],
    members: Sequence[int],
    begin: dict[int, int | None],
) -> str | None:
    """Why these cannot be one collective of all members, in words without its number; None: they can."""
    first = next(iter(found.values()))
    late = [r for r in members if r not in found and number < (begin[r] or 0)]
    if late:
        return f"the traces of ranks {rank_list(late)} begin later"
    missing = [r for r in members if r not in found]
    if missing:
        return f"ranks {rank_list(missing)} lack what others did"
    for rank, collective in found.items():
        if collective.kind != first.kind:
            kinds = OpKind(first.kind).name.lower(), OpKind(collective.kind).name.lower()
            return f"ranks {members[0]} and {rank} did different ones, {kinds[0]} and {kinds[1]}"
        sizes = first.bytes or 0, collective.bytes or 0
        if sizes[0] != sizes[1] and first.kind not in UNEVEN and 0 not in sizes:
            return f"ranks {members[0]} and {rank} brought {sizes[0]:,} and {sizes[1]:,} bytes"
    return None
