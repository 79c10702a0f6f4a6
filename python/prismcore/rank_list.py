"""Rank lists as users write them: ``0,8,16-31``."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["MAX_RANK", "format_ranks", "named_ranks", "parse_ranks"]

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


def format_ranks(ranks: Iterable[int]) -> str:
    """The inverse of :func:`parse_ranks`: ``[0, 1, 2, 5]`` as ``0-2,5``."""
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans)


def named_ranks(ranks: Iterable[int]) -> str:
    """``[3]`` as ``rank 3``, ``[0, 1, 2]`` as ``ranks 0-2``."""
    found = set(ranks)
    return f"{'rank' if len(found) == 1 else 'ranks'} {format_ranks(found)}"
