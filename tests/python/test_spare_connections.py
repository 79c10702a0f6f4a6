"""What ends a collective that waits for a process which is stopped."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("torchft")

import torch

from prismcore.spare.runtime.bulletin import Bulletin
from prismcore.spare.runtime.bulletin_store import BulletinStore
from prismcore.spare.runtime.communicator import _Gloo
from prismcore.spare.runtime.connections import address_in, end_connections

pytestmark = pytest.mark.torch


@pytest.fixture
def pair() -> Iterator[list[_Gloo]]:
    """Two ranks of one communicator in this process."""
    bulletin = Bulletin("localhost")
    groups = [_Gloo(timeout=timedelta(seconds=120)) for _ in range(2)]

    def meet(rank: int) -> None:
        page = BulletinStore(f"localhost:{bulletin.port}", epoch=1, position=0, members=2, timeout_s=30.0)
        groups[rank].meet(page, rank, 2)

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield groups
    for group in groups:
        group.store.close()
    bulletin.close()


def all_reduce(group: _Gloo) -> Any:
    return group.backend.allreduce([torch.ones(1 << 16)])


def test_a_wait_ends_with_its_connections_and_no_other_does(pair: list[_Gloo]) -> None:
    works = [all_reduce(group) for group in pair]
    for work in works:
        work.wait()
    work = all_reduce(pair[0])  # the other rank does not come
    time.sleep(0.2)
    assert not work.is_completed()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as ours,
        server.accept()[0] as theirs,
    ):
        ended = end_connections(filter(None, map(address_in, pair[0].store.posts())))
        assert ended in (1, 2)  # both ends are here; gloo may close the second as soon as the first is shut
        with pytest.raises(RuntimeError):
            work.wait()
        ours.sendall(b"still there")
        assert theirs.recv(100) == b"still there"
        pair[0].store.set("so is", b"the page")
        assert pair[1].store.get("so is") == b"the page"


@given(st.binary(max_size=300))
def test_what_is_no_address_is_none(post: bytes) -> None:
    found = address_in(post)
    assert found is None or (len(found[0]) in (4, 16) and 0 <= found[1] < 1 << 16)


@pytest.mark.parametrize(
    ("family", "packed", "at", "expected"),
    [
        (socket.AF_INET, bytes([10, 0, 0, 7]), 4, bytes([10, 0, 0, 7])),
        (socket.AF_INET6, b"\0" * 10 + b"\xff\xff" + bytes([10, 0, 0, 7]), 8, bytes([10, 0, 0, 7])),
        (socket.AF_INET6, bytes(range(16)), 8, bytes(range(16))),
        (socket.AF_UNIX, b"", 4, None),
    ],
)
def test_addresses_of_both_versions(family: int, packed: bytes, at: int, expected: bytes | None) -> None:
    storage = bytearray(136)
    storage[:4] = struct.pack("=H", family) + struct.pack("!H", 4242)
    storage[at : at + len(packed)] = packed
    post = struct.pack("<Q", 4) + b"host" + struct.pack("<Q", len(storage)) + bytes(storage)
    assert address_in(post) == (None if expected is None else (expected, 4242))
    assert address_in(post[:-1]) is None
