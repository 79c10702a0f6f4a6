"""Values of foreign documents, which may be of any type."""

from __future__ import annotations

from typing import Any

from prismcore.rank_list import MAX_RANK

__all__ = ["distinct_ranks", "group_size", "listed", "whole", "wholes"]


def whole(value: Any) -> int | None:
    """A whole number from 0 to 2^63 - 1, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None


def wholes(value: Any) -> tuple[int, ...]:
    """A list of whole numbers; nothing where it is something else."""
    numbers = [whole(v) for v in value] if isinstance(value, (list, tuple)) else []
    return tuple(n for n in numbers if n is not None) if None not in numbers else ()


def distinct_ranks(value: Any) -> tuple[int, ...] | None:
    """A list of different ranks, at least one; else None: no group can have them."""
    ranks = wholes(value)
    return ranks if ranks and len(set(ranks)) == len(ranks) and max(ranks) <= MAX_RANK else None


def group_size(value: Any) -> int | None:
    """The size of a group of ranks; None: no group can have it."""
    size = whole(value)
    return size if size is not None and 1 <= size <= MAX_RANK + 1 else None


def listed(value: Any) -> list[Any]:
    """A list; empty where it is something else."""
    return value if isinstance(value, list) else []
