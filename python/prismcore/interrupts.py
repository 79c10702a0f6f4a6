"""Signals that wait until the work is at a point where it can stop.

Python raises KeyboardInterrupt between any two instructions, also between the start of a process and
the note that it was started. Work that starts processes holds the signals instead, and asks at points of
its choice.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["check", "held"]

_NUMBERS = (signal.SIGINT, signal.SIGTERM)
_handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
_pending: list[int] = []


@contextmanager
def held() -> Iterator[None]:
    """Within it, what Python would do at Ctrl-C (and at SIGTERM, where that has a handler) happens only
    at :func:`check`, or at the end. Inside another, and outside the main thread, it does nothing.
    """
    if _handlers or threading.current_thread() is not threading.main_thread():
        yield
        return
    for number in _NUMBERS:
        handler = signal.getsignal(number)
        if callable(handler):
            _handlers[number] = handler
            signal.signal(number, lambda number, _: _pending.append(number))
    try:
        yield
        check()
    finally:
        for held_number, original in _handlers.items():
            signal.signal(held_number, original)
        _handlers.clear()
        _pending.clear()


def check() -> None:
    """A point where the work can stop: does what the handler of a signal that came meanwhile does
    (Python's own raises KeyboardInterrupt)."""
    if _pending:
        number = _pending[0]
        _pending.clear()
        if number in _handlers:
            _handlers[number](number, None)
