"""What a node of a rank has to wait for: clocks of host and streams as the nodes that they stand for.

A clock is the latest end of some nodes, at most one launch a lane (host or stream): of two launches of one
lane the later one ends later. The rules are those of docs/architecture.md, "Clocks".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

__all__ = ["HOST", "Clock", "Lanes"]

HOST = -1

#: By lane: ids of the nodes of its launch that the clock waits for, rising.
Clock = dict[int, tuple[int, ...]]


class Lanes:
    """Clocks of one rank."""

    def __init__(self, distances: Mapping[int, int]) -> None:
        """``distances``: by stream, how many of its event records back ops look."""
        self.host: Clock = {}
        self._streams: dict[int, Clock] = {}
        self._records: dict[int, deque[Clock]] = {s: deque(maxlen=n) for s, n in distances.items()}

    def ready(self, streams: Iterable[int]) -> list[int]:
        """Nodes that a launch on these streams waits for."""
        ids = {id for launch in self.host.values() for id in launch}
        for stream in streams:
            for launch in self._streams.get(stream, {}).values():
                ids.update(launch)
        return sorted(ids)

    def ran(self, streams: Iterable[int], ids: tuple[int, ...]) -> None:
        """A launch of these nodes: all of its streams end with its last part."""
        for stream in streams:
            self._streams[stream] = {stream: ids}

    def host_ran(self, id: int) -> None:
        """A node of the host, which waited for what :attr:`host` holds."""
        self.host = {HOST: (id,)}

    def record(self, stream: int) -> None:
        if stream in self._records:
            self._records[stream].append(dict(self._streams.get(stream, {})))

    def recorded(self, stream: int, ago: int) -> Clock:
        """The `ago`-th newest record of a stream (1 = newest); nothing where there is none."""
        records = self._records.get(stream, ())
        return records[-ago] if 0 < ago <= len(records) else {}

    def wait(self, stream: int, clock: Clock) -> None:
        """The stream waits for a record."""
        _join(self._streams.setdefault(stream, {}), clock)

    def host_waits(self, clock: Clock) -> None:
        _join(self.host, clock)

    def of(self, stream: int) -> Clock:
        return self._streams.get(stream, {})

    def all(self) -> Clock:
        """Of all streams together."""
        clock: Clock = {}
        for one in self._streams.values():
            _join(clock, one)
        return clock


def _join(clock: Clock, other: Clock) -> None:
    for lane, ids in other.items():
        if lane not in clock or clock[lane][-1] < ids[-1]:
            clock[lane] = ids
