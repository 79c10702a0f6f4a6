"""Where members of an epoch find each other."""

from __future__ import annotations

import os
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("torchft")

import torch.distributed as dist

from prismcore.spare.runtime import bulletin_store
from prismcore.spare.runtime.bulletin import Bulletin, Frames, frame
from prismcore.spare.runtime.bulletin_store import BulletinStore


@pytest.fixture
def bulletin() -> Iterator[Bulletin]:
    made = Bulletin("localhost")
    yield made
    made.close()


def page(bulletin: Bulletin, epoch: int = 1, position: int = 0, members: int = 1) -> BulletinStore:
    return BulletinStore(
        f"localhost:{bulletin.port}", epoch=epoch, position=position, members=members, timeout_s=20.0
    )


@given(st.lists(st.tuples(st.text(), st.binary(max_size=300)), max_size=8), st.randoms())
def test_frames_come_however_they_are_cut(sent: list[tuple[str, bytes]], rng: random.Random) -> None:
    data = b"".join(frame(key, value) for key, value in sent)
    frames, came = Frames(), []
    while data:
        cut = rng.randint(1, len(data))
        came += list(frames.take(data[:cut]))
        data = data[cut:]
    assert came == sent


def test_all_read_what_all_posted_whenever_they_came(bulletin: Bulletin) -> None:
    members = 12
    seen: dict[int, list[bytes]] = {}

    def member(number: int) -> None:
        rng = random.Random(number)
        time.sleep(rng.random() / 20)
        store = page(bulletin)
        store.set(f"at/{number}", f"address {number}" * rng.randint(1, 2000))
        seen[number] = [store.get(f"at/{other}") for other in range(members)]
        store.close()

    threads = [threading.Thread(target=member, args=(number,)) for number in range(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == members
    assert all(values == seen[0] for values in seen.values())
    assert all(value.startswith(b"address %d" % number) for number, value in enumerate(seen[0]))


def test_pages_are_apart_and_a_later_epoch_ends_the_earlier(bulletin: Bulletin) -> None:
    first, other = page(bulletin, 3, 0), page(bulletin, 3, 1)
    first.set("key", "first")
    other.set("key", "other")
    assert (first.get("key"), other.get("key")) == (b"first", b"other")
    later = page(bulletin, 4, 0)
    later.set("key", "later")
    stranger = page(bulletin, 1 << 62, 0)
    assert later.get("key") == b"later"
    first.set("more", b"")
    first.get("more")  # until the member says so
    bulletin.begin(4)
    with pytest.raises(RuntimeError, match="gone or in a later epoch"):
        first.get("another")
    with pytest.raises(RuntimeError, match="gone"):
        page(bulletin, 3, 0).get("key")
    assert later.get("key") == b"later"
    stranger.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!II", 1 << 31, 1 << 31),
        frame("not a number", b"0 1"),
        frame("-5", b"0 1"),
        frame("1", b"\xff"),
        frame("1", b"0"),
        frame("1", b"0 1 2"),
        struct.pack("!II", 2, 0) + b"\xff\xfe",
        b"\x00",
    ],
)
def test_strangers_harm_nobody(bulletin: Bulletin, garbage: bytes) -> None:
    store = page(bulletin)
    with socket.create_connection(("localhost", bulletin.port)) as stranger:
        stranger.sendall(garbage)
        stranger.shutdown(socket.SHUT_WR)
        stranger.settimeout(20)
        try:
            while stranger.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
    store.set("key", b"value")
    assert store.get("key") == b"value"


def test_who_does_not_come_is_waited_for_within_the_limit(bulletin: Bulletin) -> None:
    store = page(bulletin)
    store.set("here", b"")
    with pytest.raises(RuntimeError, match="1 members have not come within"):
        store.wait(["here", "absent"], timedelta(seconds=0.05))


def test_a_bulletin_that_is_gone_is_told(bulletin: Bulletin) -> None:
    store = page(bulletin)
    port = bulletin.port
    waiting: list[BaseException] = []

    def wait() -> None:
        try:
            store.get("never")
        except RuntimeError as error:
            waiting.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    bulletin.close()
    thread.join(20)
    assert "is gone" in str(waiting[0])
    with pytest.raises(RuntimeError, match=f"localhost:{port} is not reached"):
        BulletinStore(f"localhost:{port}", epoch=1, position=0, members=1, timeout_s=1.0)


def test_the_name_of_a_machine_is_asked_for_once(bulletin: Bulletin, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = socket.getaddrinfo

    def counted(host: str, *args: object, **kwargs: object) -> object:
        asked.append(host)
        return real(host, *args, **kwargs)  # type: ignore[arg-type]

    bulletin_store._address_of.cache_clear()
    monkeypatch.setattr(socket, "getaddrinfo", counted)
    for epoch in range(1, 6):
        page(bulletin, epoch).close()
    assert asked.count("localhost") == 1


def test_epochs_leave_no_descriptors(bulletin: Bulletin) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    page(bulletin, 1).close()
    before = descriptors()
    for epoch in range(2, 30):
        bulletin.begin(epoch)
        stores = [page(bulletin, epoch) for _ in range(4)]
        for number, store in enumerate(stores):
            store.set(str(number), b"x")
        for store in stores:
            store.wait(["0", "1", "2", "3"])
            store.close()
    bulletin.begin(31)
    last = page(bulletin, 31)  # whoever is left is sent away
    last.set("key", b"")
    last.get("key")
    last.close()
    assert descriptors() <= before + 2


def test_torch_takes_it_for_a_store(bulletin: Bulletin) -> None:
    pages = page(bulletin), page(bulletin)  # torch does not keep what is Python's
    one, other = (dist.PrefixStore("a", each) for each in pages)
    one.set("key", "value")
    other.wait(["key"])
    assert other.get("key") == b"value"
    assert other.check(["key"])
    assert not other.check(["none"])


def test_who_is_through_a_barrier_knows_that_all_had_come(bulletin: Bulletin) -> None:
    members, rounds = 6, 50
    came = [0] * members
    wrong: list[str] = []

    def member(number: int) -> None:
        rng = random.Random(number)
        store = page(bulletin, members=members)
        for barrier in range(rounds):
            if rng.random() < 0.1:
                time.sleep(0.002)
            came[number] = barrier + 1
            store.arrive()
            while not store.is_through(0.5):
                pass
            if min(came) <= barrier:
                wrong.append(f"{number} is through {barrier}, others came to {came}")
        store.get("end") if number else store.set("end", b"")

    threads = [threading.Thread(target=member, args=(number,)) for number in range(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert came == [rounds] * members
    assert wrong == []


def test_a_barrier_that_somebody_misses_holds_and_then_fails(bulletin: Bulletin) -> None:
    stores = [page(bulletin, members=3) for _ in range(3)]
    for store in stores[:2]:
        store.arrive()
    assert not stores[0].is_through(0.05)
    stores[2].close()
    for store in stores[:2]:
        with pytest.raises(RuntimeError, match="a member has left"):
            store.is_through(20)


def test_who_leaves_behind_a_barrier_holds_up_nobody(bulletin: Bulletin) -> None:
    stores = [page(bulletin, members=3) for _ in range(3)]
    for store in stores:
        store.arrive()
    assert stores[0].is_through(20)
    stores[0].close()
    assert stores[1].is_through(20)
    stores[1].close()
    assert stores[2].is_through(20)


def test_a_process_that_was_forked_holds_up_no_end() -> None:
    made = Bulletin("localhost")
    store = page(made)
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        made.close()
        with pytest.raises(RuntimeError, match="is gone"):
            store.get("key")
        assert not any(thread.name == "prism_spare_bulletin" for thread in threading.enumerate())
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
