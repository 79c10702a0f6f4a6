"""Times and counts for people, with the unit beside them."""

from __future__ import annotations

__all__ = ["format_exact_ns", "format_ns", "format_s", "plural"]

TIMES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))


def format_ns(value: int | float) -> str:
    """``1234567`` as ``1.235 ms``."""
    for scale, unit in TIMES:
        if abs(value) >= scale:
            return f"{value / scale:.3f} {unit}"
    return f"{value:.0f} ns"


def format_exact_ns(value: int) -> str:
    """As a command line takes it, in the largest unit that keeps it whole: ``1500000`` as ``1500us``."""
    for scale, unit in TIMES:
        if value and value % scale == 0:
            return f"{value // scale}{unit}"
    return f"{value}ns"


def format_s(seconds: float) -> str:
    """A limit: ``300.0`` as ``300 s``, ``1e-9`` as ``1 ns``."""
    return f"{seconds:g} s" if seconds >= 0.1 else format_ns(seconds * 1e9)


def plural(count: int, noun: str) -> str:
    """``(1, "rank")`` as ``1 rank``, ``(2000, "rank")`` as ``2,000 ranks``; for nouns that take an s."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
