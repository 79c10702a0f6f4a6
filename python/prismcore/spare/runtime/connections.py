"""Ends gloo's connections from below, where a collective waits for a process that is stopped.

gloo has no call that ends such a wait (torch 2.14.1: abort() returns, the work goes on until its own limit).
It fails at once where its connections end, and a process whose works are over can end as it should.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterable

__all__ = ["address_in", "end_connections"]

_COUNT = struct.Struct("<Q")
_STORAGE = 128  # bytes of a sockaddr_storage

Address = tuple[bytes, int]
"""As the kernel has it, a version 4 one in four bytes; and the port."""


def address_in(post: bytes) -> Address | None:
    """Where a member listens, of what gloo posts for it: the length of the host's name, the name, the length
    of an address, a ``sockaddr_storage`` with more behind it. None: that is something else."""
    try:
        (name_bytes,) = _COUNT.unpack_from(post)
        (address_bytes,) = _COUNT.unpack_from(post, _COUNT.size + name_bytes)
        at = 2 * _COUNT.size + name_bytes
        if address_bytes < _STORAGE or len(post) < at + address_bytes:
            return None
        (family,) = struct.unpack_from("=H", post, at)
        (port,) = struct.unpack_from("!H", post, at + 2)
    except (struct.error, OverflowError):
        return None
    if family == socket.AF_INET:
        return post[at + 4 : at + 8], port
    if family == socket.AF_INET6:
        return _short(post[at + 8 : at + 24]), port
    return None


def end_connections(listeners: Iterable[Address]) -> int:
    """Shuts down this process's connections to these addresses, and those that came in at one of them; says
    how many. To be called while no communicator that is still wanted uses them."""
    known, ended = set(listeners), 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError), socket.socket(fileno=os.dup(int(name))) as copy:
            if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM:
                ends = {_address(copy.family, end) for end in (copy.getpeername(), copy.getsockname())}
                if known & ends:
                    copy.shutdown(socket.SHUT_RDWR)
                    ended += 1
    return ended


def _address(family: int, name: tuple[object, ...]) -> Address:
    return _short(socket.inet_pton(family, str(name[0]).partition("%")[0])), int(str(name[1]))


def _short(address: bytes) -> bytes:
    """A version 4 address in the form of version 6 is the same."""
    return address[12:] if address[:12] == b"\0" * 10 + b"\xff\xff" else address
