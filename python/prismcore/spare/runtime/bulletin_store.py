"""One member's end of a bulletin, as the store by which gloo's ranks find each other."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
import time
from collections.abc import Sequence
from datetime import timedelta

import torch.distributed as dist

from prismcore.spare.runtime.bulletin import GONE, Frames, frame

__all__ = ["BulletinStore"]

_CHUNK = 1 << 16
_SHORTEST_S = 0.001


class BulletinStore(dist.Store):  # type: ignore[misc]
    """The page of ``epoch`` and ``position``, of so many ``members``, on the bulletin at ``address``
    (``host:port``). What others post comes here by itself, so that reading asks nobody.

    Raises:
        RuntimeError: it is not reached, or does not give a key, within ``timeout_s``; or it is gone, or
            another member is.
    """

    def __init__(self, address: str, *, epoch: int, position: int, members: int, timeout_s: float) -> None:
        super().__init__()
        self._address = address
        self._timeout_s = timeout_s
        self._known: dict[str, bytes] = {}
        self._barriers = 0  # that this member came to
        self._through = 0
        self._is_left = False
        self._frames = Frames()
        self._reading = threading.Lock()
        host, _, port = address.rpartition(":")
        try:
            self._socket = _connect(host, int(port), timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.sendall(frame(str(epoch), f"{position} {members}".encode()))
        except OSError as error:
            raise RuntimeError(f"the member at {address} is not reached: {error}") from error

    def close(self) -> None:
        """Idempotent; ends waits in other threads."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def arrive(self) -> None:
        """At the next barrier of all members: one step to the bulletin and one back, and no thread of gloo's
        to be woken."""
        self._barriers += 1
        self._send(frame("", b""))

    def is_through(self, within_s: float) -> bool:
        """Whether all came to the barrier at which this member arrived last."""
        until = time.monotonic() + max(within_s, _SHORTEST_S)
        with self._reading:
            while self._through < self._barriers:
                if not self._read(until):
                    return False
        return True

    def set(self, key: str, value: str | bytes) -> None:
        self._send(frame(key, value.encode() if isinstance(value, str) else bytes(value)))

    def get(self, key: str) -> bytes:
        self._read_until([key], self._timeout_s)
        return self._known[key]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        self._read_until(keys, self._timeout_s if timeout is None else timeout.total_seconds())

    def posts(self) -> list[bytes]:
        """What came here so far."""
        return list(self._known.values())

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self._known for key in keys)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self._read_until(keys, self._timeout_s)
        return [self._known[key] for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise RuntimeError(f"the member at {self._address} is gone: {error}") from error

    def _read_until(self, keys: Sequence[str], timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        with self._reading:
            while missing := [key for key in keys if key not in self._known]:
                if not self._read(until):
                    raise RuntimeError(
                        f"{len(missing)} members have not come within {timeout_s:g} s to the one at "
                        f"{self._address}"
                    )

    def _read(self, until: float) -> bool:
        """Takes what comes next. False: nothing, in time."""
        if self._is_left:  # what was said before still counts
            raise RuntimeError(f"a member has left the page at {self._address}")
        left = until - time.monotonic()
        if left <= 0:
            return False
        try:
            self._socket.settimeout(left)
            data = self._socket.recv(_CHUNK)
        except TimeoutError:
            return False
        except OSError as error:
            raise RuntimeError(f"the member at {self._address} is gone: {error}") from error
        if not data:
            raise RuntimeError(f"the member at {self._address} is gone or in a later epoch")
        for key, value in self._frames.take(data):
            if key:
                self._known[key] = value
            elif value == GONE:
                self._is_left = True
            else:
                self._through += 1
        return True


def _connect(host: str, port: int, timeout_s: float) -> socket.socket:
    """The address of a name is asked for once; again where it does not serve any more."""
    try:
        return socket.create_connection((_address_of(host), port), timeout=timeout_s)
    except OSError:
        _address_of.cache_clear()
        raise


@functools.lru_cache(maxsize=4096)
def _address_of(host: str) -> str:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return str(found[0][4][0])
