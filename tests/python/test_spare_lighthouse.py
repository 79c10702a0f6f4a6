"""What a member reads on the status page, and what it makes of an answer that is none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from prismcore.spare.runtime.lighthouse import Heard, Lighthouse

PAGE = b"""<li class="heartbeat old">
 group1:ab: seen 2.5s ago</li><li class="heartbeat ">group0:cd: seen 0.125s ago</li>"""
HEAD = b"HTTP/1.0 200 OK\r\ncontent-type: text/html\r\nContent-Length: %d\r\n\r\n"


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        yield server


def line_to(server: socket.socket) -> Lighthouse:
    address = f"127.0.0.1:{server.getsockname()[1]}"
    return Lighthouse(address, replica="r", host="127.0.0.1", heartbeat_s=1, timeout_s=1, told=lambda _: None)


def answer(server: socket.socket, pieces: list[bytes]) -> threading.Thread:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            asked = b""
            while not asked.endswith(b"\r\n\r\n"):
                asked += connection.recv(4096)
            assert asked.startswith(b"GET /status HTTP/1.0\r\nHost: 127.0.0.1:")
            for piece in pieces:
                connection.sendall(piece)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_page_may_come_in_pieces(server: socket.socket) -> None:
    page = HEAD % len(PAGE) + PAGE
    thread = answer(server, [page[:30], page[30:150], page[150:]])
    heard = line_to(server).heard(within_s=20)
    thread.join()
    assert heard == {
        "group0:cd": Heard(ago_s=0.125, dead=False),
        "group1:ab": Heard(ago_s=2.5, dead=True),
    }


@pytest.mark.parametrize(
    "answered",
    [
        HEAD % len(PAGE) + PAGE[:-20],  # cut: groups would be missing
        HEAD.replace(b"200 OK", b"503 Busy") % len(PAGE) + PAGE,
        b"",
        b"\x00\xff",
    ],
    ids=["cut", "refused", "empty", "no HTTP"],
)
def test_what_is_no_whole_page_is_no_answer(server: socket.socket, answered: bytes) -> None:
    thread = answer(server, [answered])
    assert line_to(server).heard(within_s=20) is None
    thread.join()


def test_a_page_that_does_not_come_is_waited_for_only_so_long(server: socket.socket) -> None:
    assert line_to(server).heard(within_s=0.05) is None


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        line = line_to(gone)
    assert line.heard() is None
