"""Who at the lighthouse is worth a step boundary at which others may join."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

__all__ = ["Newcomers"]

_LONGEST_S = 60.0


class Newcomers:
    """A process that shows signs of life there and asks for no quorum would have the members agree again and
    again, for nothing: it is passed over for a while, each time for twice as long.

    Args:
        pause_s: how often the members look.
        clock: in seconds.
    """

    def __init__(self, pause_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._pause_s = pause_s
        self._clock = clock
        self._met: set[str] = set()  # for these a boundary was wanted
        self._passed_over: dict[str, tuple[float, float]] = {}  # until when, and for how long

    def wait(self, replicas: Collection[str], *, is_vacant: bool) -> bool:
        """Whether one of these is to be met. ``replicas``: all that are alive and not in; a spare counts only
        where a place is vacant."""
        now = self._clock()
        here = {name for name in replicas if is_vacant or not name.startswith("spare:")}
        for name in self._passed_over.keys() - here:
            del self._passed_over[name]
        wanted = {name for name in here if now >= self._passed_over.get(name, (now, 0.0))[0]}
        self._met |= wanted
        return bool(wanted)

    def came(self, replicas: Iterable[str]) -> None:
        """A quorum lists these, and no others of those that were to be met."""
        listed = set(replicas)
        for name in self._met - listed:
            pause_s = min(2 * self._passed_over.get(name, (0.0, self._pause_s))[1], _LONGEST_S)
            self._passed_over[name] = self._clock() + pause_s, pause_s
        for name in listed:
            self._passed_over.pop(name, None)
        self._met.clear()
