"""How errors and durations are told."""

from __future__ import annotations

import time

__all__ = ["first_line", "ms_since"]


def first_line(error: BaseException) -> str:
    """Of its text; its type where it has none."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def ms_since(began: float) -> float:
    """Of time.perf_counter(), to the microsecond."""
    return round((time.perf_counter() - began) * 1e3, 3)
