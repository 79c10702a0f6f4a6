"""When work stood still through no fault of its own, so that no limit counts that time."""

from __future__ import annotations

import threading
import time
from collections import deque

__all__ = ["Pauses"]

_LEAST_S = 1.0
"""Shorter ones are how things go: a terminal takes its time to draw a screenful."""

_MOST_KEPT = 4096


class Pauses:
    """Spans of time, one of which may last. Any thread may add to them and ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: deque[tuple[float, float]] = deque(maxlen=_MOST_KEPT)  # by their ends
        self._began: float | None = None

    def begin(self) -> None:
        with self._lock:
            self._began = time.monotonic()

    def end(self) -> None:
        with self._lock:
            if self._began is not None:
                self._add(self._began)
            self._began = None

    def add(self, seconds: float) -> None:
        """One that ends now."""
        with self._lock:
            self._add(time.monotonic() - seconds)

    @property
    def lasts(self) -> bool:
        """Whether one has begun that is no short one already."""
        with self._lock:
            return self._began is not None and time.monotonic() - self._began >= _LEAST_S

    def within(self, seconds: float) -> float:
        """How many of the last ``seconds`` were pauses."""
        now = covered = time.monotonic()
        with self._lock:
            spans = list(self._spans)
            if self._began is not None and now - self._began >= _LEAST_S:
                spans.append((self._began, now))
        found = 0.0
        for began, ended in reversed(spans):
            found += max(min(ended, covered) - max(began, now - seconds), 0)
            covered = min(covered, began)
        return found

    def _add(self, began: float) -> None:
        now = time.monotonic()
        if now - began >= _LEAST_S:
            self._spans.append((began, now))
