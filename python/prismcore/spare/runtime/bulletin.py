"""Where the members of an epoch post how they are reached, and read what others posted.

torch's TCPStore asks the name server who each connection comes from, at both of its ends and by both of its
servers (torch 2.14.1, seen by strace). An answer that is lost costs 5 s, and a meeting of n members asks 2 n
times or more: too often where members have to be back within half a second.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["GONE", "THROUGH", "Bulletin", "Frames", "frame", "listen"]

THROUGH = b"through"
GONE = b"gone"

_HEADER = struct.Struct("!II")
_MOST_BYTES = 1 << 20
"""Of a frame. Addresses are some hundred bytes."""
_CHUNK = 1 << 16
_LOOK, _END = b"l", b"e"
_END_S = 5.0
_MOST_PAGES = 4096


def frame(key: str, value: bytes) -> bytes:
    """What goes over a connection: two lengths, a key, a value. The first of a connection has the epoch for a
    key, and the position in its groups and the number of members. Later ones are posts, or have no key: from
    a member, it has come to the barrier; to a member, it is through (:data:`THROUGH`) or will never be,
    since another is gone (:data:`GONE`)."""
    name = key.encode()
    return _HEADER.pack(len(name), len(value)) + name + value


class Frames:
    """Takes the bytes of a connection as they come, and gives the frames that are whole."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """
        Raises:
            ValueError: that is no frame.
        """
        self._rest += data
        while len(self._rest) >= _HEADER.size:
            name_bytes, value_bytes = _HEADER.unpack_from(self._rest)
            if name_bytes + value_bytes > _MOST_BYTES:
                raise ValueError(f"a frame of {name_bytes + value_bytes} bytes")
            value_at = _HEADER.size + name_bytes
            end = value_at + value_bytes
            if len(self._rest) < end:
                return
            whole, self._rest = self._rest[:end], self._rest[end:]
            yield whole[_HEADER.size : value_at].decode(), whole[value_at:]


@dataclass(slots=True, eq=False)
class _Page:
    members: int
    posts: bytearray = field(default_factory=bytearray)
    readers: list[_Reader] = field(default_factory=list)
    arrived: int = 0  # at the barrier


@dataclass(slots=True, eq=False)
class _Reader:
    connection: socket.socket
    frames: Frames = field(default_factory=Frames)
    page: _Page | None = None
    due: bytearray = field(default_factory=bytearray)  # to be sent


class Bulletin:
    """Serves in a thread of its own until it is closed. A page for each epoch and position: what one member
    posts there goes to all that have come to it and will come, and all may wait for each other.

    Args:
        host: name under which others reach this machine; loopback's name keeps it to itself.
    """

    def __init__(self, host: str) -> None:
        self._server = listen(host)
        self._server.setblocking(False)
        self.port: int = self._server.getsockname()[1]
        self._wake, self._woken = socket.socketpair()
        self._pages: dict[tuple[int, int], _Page] = {}  # by epoch and position
        self._epoch = 0
        self._begun = 0
        self._readers: dict[socket.socket, _Reader] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="prism_spare_bulletin", daemon=True)
        self._thread.start()

    def begin(self, epoch: int) -> None:
        """The pages of earlier epochs go, and who is still there is sent away. Only the member itself says
        so: what strangers send must not end an epoch."""
        self._begun = epoch
        self._tell(_LOOK)

    def close(self) -> None:
        """Idempotent."""
        self._tell(_END)
        self._thread.join(_END_S)

    def _tell(self, what: bytes) -> None:
        """Not by closing the socket: a process that was forked meanwhile may hold it open."""
        with contextlib.suppress(OSError):  # it has ended
            self._wake.send(what)

    def _run(self) -> None:
        while True:
            for key, events in self._selector.select():
                if key.fileobj is self._woken:
                    if _END in self._woken.recv(_CHUNK):
                        self._end()
                        return
                    self._clear()
                elif key.fileobj is self._server:
                    self._accept()
                elif events & selectors.EVENT_READ and key.data.connection in self._readers:
                    self._read(key.data)
            for reader in tuple(self._readers.values()):
                self._write(reader)

    def _end(self) -> None:
        for reader in tuple(self._readers.values()):
            self._drop(reader)
        self._selector.close()
        self._server.close()
        self._woken.close()
        self._wake.close()

    def _clear(self) -> None:
        self._epoch = self._begun
        for page in [page for (epoch, _), page in self._pages.items() if epoch < self._epoch]:
            for reader in tuple(page.readers):
                self._drop(reader)
        self._pages = {at: page for at, page in self._pages.items() if at[0] >= self._epoch}

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:  # it is gone already, or there are no descriptors: others are served meanwhile
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = self._readers[connection] = _Reader(connection)
        self._selector.register(connection, selectors.EVENT_READ, reader)

    def _read(self, reader: _Reader) -> None:
        try:
            data = reader.connection.recv(_CHUNK)
            if not data:
                self._drop(reader)
                return
            for key, value in reader.frames.take(data):
                if reader.page is None:
                    position, members = value.split()
                    self._come(reader, int(key), int(position), int(members))
                elif key:
                    self._post(reader.page, frame(key, value))
                else:
                    self._arrive(reader.page)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            self._drop(reader)

    def _come(self, reader: _Reader, epoch: int, position: int, members: int) -> None:
        if epoch < self._epoch:
            raise ValueError(f"epoch {epoch} is over")
        if (epoch, position) not in self._pages and len(self._pages) >= _MOST_PAGES:
            raise ValueError(f"{len(self._pages)} pages")
        page = reader.page = self._pages.setdefault((epoch, position), _Page(members))
        page.readers.append(reader)
        reader.due += page.posts

    def _post(self, page: _Page, whole: bytes) -> None:
        page.posts += whole
        for reader in page.readers:
            reader.due += whole

    def _arrive(self, page: _Page) -> None:
        page.arrived += 1
        if page.arrived == page.members:
            page.arrived = 0
            for reader in page.readers:
                reader.due += frame("", THROUGH)

    def _write(self, reader: _Reader) -> None:
        if reader.due:
            try:
                del reader.due[: reader.connection.send(reader.due)]
            except BlockingIOError:
                pass
            except OSError:
                self._drop(reader)
                return
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if reader.due else 0)
        if self._selector.get_key(reader.connection).events != wanted:
            self._selector.modify(reader.connection, wanted, reader)

    def _drop(self, reader: _Reader) -> None:
        if self._readers.pop(reader.connection, None) is None:
            return
        self._selector.unregister(reader.connection)
        with contextlib.suppress(OSError):  # a process that was forked may hold it
            reader.connection.shutdown(socket.SHUT_RDWR)
        reader.connection.close()
        if reader.page is not None:
            reader.page.readers.remove(reader)
            for other in reader.page.readers:
                other.due += frame("", GONE)


def listen(host: str) -> socket.socket:
    """At a port of the system's choice; only for this machine where others would not reach it by ``host``."""
    if host in ("localhost", "127.0.0.1"):
        return socket.create_server(("127.0.0.1", 0))
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))
