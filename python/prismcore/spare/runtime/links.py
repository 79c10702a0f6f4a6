"""Connections between the ranks of one group, with signs of life on each.

A message is one line of JSON; an empty line is a sign of life.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Links"]

_BEATS = 5
"""Signs of life in the time after which silence counts as loss."""
_DRAIN_S = 1.0
_CHUNK = 1 << 16


class _Link:
    __slots__ = ("heard", "lock", "over", "position", "rest", "socket")

    def __init__(self, position: int, connection: socket.socket) -> None:
        self.position = position
        self.socket = connection
        self.lock = threading.Lock()
        self.rest = b""
        self.heard = time.monotonic()
        self.over = False


class Links:
    """Reads in a thread of its own.

    Args:
        sockets: connected ones, by the position of the other end.
        silent_s: so long may the other end be silent.
        took: is called with position and message, in that thread.
        lost: is called with position and reason where a connection ends, once for each, in any thread.
    """

    def __init__(
        self,
        sockets: Mapping[int, socket.socket],
        *,
        silent_s: float,
        took: Callable[[int, dict[str, Any]], Any],
        lost: Callable[[int, str], Any],
    ) -> None:
        self._links = {position: _Link(position, each) for position, each in sockets.items()}
        self._silent_s = silent_s
        self._took = took
        self._lost = lost
        self._closed_at: float | None = None
        for link in self._links.values():
            link.socket.settimeout(silent_s)
            link.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        threading.Thread(target=self._run, name="prism_spare_links", daemon=True).start()

    def send(self, message: Mapping[str, Any], position: int | None = None) -> None:
        """To all where no position is given. One that cannot be reached is lost."""
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        for link in self._links.values() if position is None else [self._links[position]]:
            self._write(link, line)

    def close(self) -> None:
        """What was sent still arrives. Nobody is lost from here on. Idempotent."""
        if self._closed_at is None:
            self._closed_at = time.monotonic()
            for link in self._links.values():
                with contextlib.suppress(OSError):
                    link.socket.shutdown(socket.SHUT_WR)

    def _run(self) -> None:
        beat_s = self._silent_s / _BEATS
        beat_at = turned = time.monotonic()
        with selectors.DefaultSelector() as selector:
            for link in self._links.values():
                selector.register(link.socket, selectors.EVENT_READ, link)
            while not self._is_through():
                for key, _ in selector.select(beat_s):
                    if not self._read(key.data):
                        selector.unregister(key.fileobj)
                now = time.monotonic()
                self._look(now, was_away=now - turned > self._silent_s / 2)
                turned = now
                if now >= beat_at and self._closed_at is None:
                    beat_at = now + beat_s
                    for link in self._links.values():
                        self._write(link, b"\n")
        for link in self._links.values():
            link.socket.close()

    def _is_through(self) -> bool:
        if self._closed_at is None:
            return False
        return (
            all(link.over for link in self._links.values()) or time.monotonic() > self._closed_at + _DRAIN_S
        )

    def _look(self, now: float, *, was_away: bool) -> None:
        for link in self._links.values():
            if was_away:  # this process was stopped: what others have sent meanwhile is yet to be read
                link.heard = now
            elif now - link.heard > self._silent_s:
                self._end(link, f"no sign of life for {now - link.heard:.1f} s")

    def _read(self, link: _Link) -> bool:
        try:
            data = link.socket.recv(_CHUNK)
        except OSError as error:
            self._end(link, f"its connection broke: {error}")
            return False
        if not data:
            self._end(link, "its connection has ended")
            return False
        link.heard = time.monotonic()
        *lines, link.rest = (link.rest + data).split(b"\n")
        for line in filter(None, lines):
            self._took(link.position, json.loads(line))
        return True

    def _write(self, link: _Link, line: bytes) -> None:
        if link.over:
            return
        try:
            with link.lock:
                link.socket.sendall(line)
        except OSError as error:
            self._end(link, f"its connection broke: {error}")

    def _end(self, link: _Link, why: str) -> None:
        with link.lock:
            told, link.over = link.over, True
        if not told and self._closed_at is None:
            self._lost(link.position, why)
