"""What a member reads on the status page, and what it makes of an answer that is none."""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from spare_reports import report

from prismcore.errors import MembershipError
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


def test_no_page_ends_a_training(server: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it says; and one of any size is not taken in."""
    garbage = PAGE.replace(b"0.125", b"1e+.-")
    whole = b"HTTP/1.0 200 OK\r\n\r\n" + PAGE  # of which nobody knows whether it was cut
    monkeypatch.setattr("prismcore.spare.runtime.lighthouse._LARGEST", 1 << 18)
    large = HEAD % (1 << 24) + b"x" * (1 << 20)
    for page in (HEAD % len(garbage) + garbage, whole, large):
        thread = answer(server, [page])
        assert line_to(server).heard(within_s=20) is None
        thread.join()


class _Page(BaseHTTPRequestHandler):
    """Answers /status, and nothing that torchft asks."""

    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None:
        pass


def test_what_does_not_speak_the_protocol_is_given_up_and_not_asked_all_the_time() -> None:
    _Page.asked = 0
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        line = Lighthouse(
            f"127.0.0.1:{server.server_port}",
            replica="group0:x",
            host="localhost",
            heartbeat_s=0.1,
            timeout_s=0.5,
            told=lambda _: None,
        )
        with pytest.raises(
            MembershipError, match=r"does not speak torchft's protocol \(.*\); expected torchft"
        ):
            line.quorum(lambda: report(0), wait_s=math.inf)
        line.close()
        server.shutdown()
    assert _Page.asked < 30
