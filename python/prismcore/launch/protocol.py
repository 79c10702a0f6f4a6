"""Messages between the collector and the warm parent: JSON over a socket pair, with file descriptors."""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

__all__ = ["Channel", "Values", "is_leaving", "read_record", "say_leaving", "write_record"]

# How a rank that left a record ended.
ENDED_BY_ITERATIONS = "iterations"
ENDED_BY_PROGRAM = "program"
ENDED_BY_ERROR = "error"
ENDED_OUT_OF_MEMORY = "out_of_memory"
ENDED_BY_STOP = "stopped"
ENDED_IN_NEED = "in_need"  # of an object that no rank has given yet

_LARGEST = 4 << 20
_MOST_FDS = 8
_INTS = array.array("i")


class Channel:
    """One end of a ``SOCK_SEQPACKET`` pair: a message arrives whole or not at all."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            sock.setsockopt(socket.SOL_SOCKET, option, _LARGEST)

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Channel(left), Channel(right)

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Raises OSError when the other end is gone."""
        socket.send_fds(self.socket, [json.dumps(message).encode()], list(fds))

    def receive(self, *, wait: bool = True) -> tuple[dict[str, Any], list[int]] | None:
        """The next message and its descriptors; None when the other end is gone.

        Raises BlockingIOError where there is none now and it is not to wait.
        """
        room = socket.CMSG_SPACE(_MOST_FDS * _INTS.itemsize)
        try:  # Python's recv_fds takes no notice of flags
            data, others, _, _ = self.socket.recvmsg(_LARGEST, room, 0 if wait else socket.MSG_DONTWAIT)
        except ConnectionError:
            return None
        fds = _INTS[:]
        for level, kind, given in others:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(given[: len(given) - len(given) % fds.itemsize])
        if not data:
            return None
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError(f"{type(message).__name__} found, expected an object")
        return message, fds.tolist()

    def fileno(self) -> int:
        return self.socket.fileno()

    def close(self) -> None:
        self.socket.close()


Values = dict[str, list[bytes]]
"""Objects that ranks gave to others, pickled, by call."""


def write_record(fd: int, summary: dict[str, Any], graph: bytes, values: Values | None = None) -> None:
    """What a rank leaves behind: 8 bytes of length, a JSON summary, a graph, values. Written once."""
    values = values or {}
    sizes = {key: [len(part) for part in parts] for key, parts in values.items()}
    head = json.dumps(summary | {"graph_bytes": len(graph), "value_bytes": sizes}).encode()
    tail = b"".join(part for parts in values.values() for part in parts)
    view = memoryview(len(head).to_bytes(8, "little") + head + graph + tail)
    at = 0
    while at < len(view):
        at += os.pwrite(fd, view[at:], at)


def say_leaving(fd: int) -> None:
    """The rank's program is over, one way or the other: a record will be here soon."""
    os.pwrite(fd, bytes(8), 0)


def is_leaving(fd: int) -> bool:
    """Whether a rank has said so, or has left its record already."""
    return os.fstat(fd).st_size > 0


def read_record(fd: int) -> tuple[dict[str, Any], bytes, Values] | None:
    """The summary, the graph's bytes (empty: none) and values; None where the rank ended before it had
    written them."""
    size = os.fstat(fd).st_size
    if size < 8:
        return None
    data = os.pread(fd, size, 0)
    while len(data) < size and (more := os.pread(fd, size - len(data), len(data))):
        data += more  # above 2 GiB
    start = 8 + int.from_bytes(data[:8], "little")
    try:
        summary = json.loads(data[8:start])
    except ValueError:  # killed while writing
        return None
    end = start + summary.pop("graph_bytes")
    at = end
    values: Values = {}
    for key, sizes in summary.pop("value_bytes").items():
        values[key] = []
        for length in sizes:
            values[key].append(data[at : at + length])
            at += length
    if at != len(data):
        return None
    return summary, data[start:end], values
