"""Rank lists as users write them: ``0,8,16-31``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["MAX_RANK", "absent_words", "format_absent", "format_ranks", "named_ranks", "parse_ranks"]

MAX_RANK = 2**24 - 1  # a typing error must not become a list of billions

_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")


def parse_ranks(text: str, *, most: int = MAX_RANK) -> list[int]:
    """``0,8,16-31`` as ascending ranks without duplicates.

    Raises:
        ValueError: names the part that is no rank or range, runs backwards, or is above `most`.
    """
    if not text.strip():
        raise ValueError("found no rank, expected ranks and ranges such as 0,8,16-31")
    spans: list[tuple[int, int]] = []
    for part in map(str.strip, text.split(",")):
        match = _RANGE.fullmatch(part)
        if match is None:
            found = f"{part!r}" if part == text.strip() else f"{part!r} in {text!r}"
            raise ValueError(f"found {found}, expected ranks and ranges such as 0,8,16-31")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first:
            raise ValueError(f"range {part} runs backwards, expected {last}-{first}")
        if last > most:
            raise ValueError(f"rank {last} in {text!r} is above the largest, {most}")
        spans.append((first, last))
    ranks: list[int] = []
    for first, last in sorted(spans):
        ranks.extend(range(max(first, ranks[-1] + 1 if ranks else 0), last + 1))
    return ranks


def format_ranks(ranks: Iterable[int], *, most: int | None = None) -> str:
    """The inverse of :func:`parse_ranks`: ``[0, 1, 2, 5]`` as ``0-2,5``; no more than ``most`` ranges."""
    spans: list[tuple[int, int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], rank)
        else:
            spans.append((rank, rank))
    return _spans(spans, most)


def format_absent(present: Sequence[int], members: range, *, most: int | None = None) -> str:
    """Those of ``members`` that are not ``present``, as :func:`format_ranks` writes them; work follows
    the number of those that are present."""
    places = sorted({members.index(rank) for rank in present if rank in members})
    spans = []
    for before, after in zip([-1, *places], [*places, len(members)], strict=True):
        if after - before > 1:
            gap = members[before + 1 : after]
            shown = gap if most is None else gap[: most + 1]
            spans += [(gap[0], gap[-1])] if gap.step == 1 else [(rank, rank) for rank in shown]
    return _spans(spans, most)


def _spans(spans: Sequence[tuple[int, int]], most: int | None) -> str:
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:most]]
    return ",".join([*shown, "..."] if len(shown) < len(spans) else shown)


def absent_words(absent: str, of: str, lacking: str) -> str:
    """``0``, ``2``, ``a trace`` as ``rank 0 (of 2) has no trace``; ``absent`` as :func:`format_absent`
    writes it."""
    one = absent.isdigit()
    return f"{'rank' if one else 'ranks'} {absent} (of {of}) {'has' if one else 'have'} no {lacking}"


def named_ranks(ranks: Iterable[int], *, most: int | None = None) -> str:
    """``[3]`` as ``rank 3``, ``[0, 1, 2]`` as ``ranks 0-2``; no more than ``most`` ranges."""
    found = set(ranks)
    return f"{'rank' if len(found) == 1 else 'ranks'} {format_ranks(found, most=most)}"
