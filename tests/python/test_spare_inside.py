"""The ranks of one group: who is let in, and what becomes of a round that a rank leaves."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from prismcore.errors import MembershipError
from prismcore.spare.runtime.guard import MembersLostError
from prismcore.spare.runtime.inside import Ranks, _greeted


@pytest.fixture
def pair() -> Iterator[list[socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    with near, far:
        yield [near, far]


@pytest.mark.parametrize(
    ("greeting", "position"),
    [
        (["token", 2], 2),
        (["é", 1], None),
        (["other", 1], None),
        (["token", "1"], None),
        (["token", 1.5], None),
        (["token", True], None),
        ([["token"], 1], None),
        ({"token": 1}, None),
        (7, None),
    ],
)
def test_who_is_let_in(pair: list[socket.socket], greeting: object, position: int | None) -> None:
    near, far = pair
    near.sendall(json.dumps(greeting, ensure_ascii=False).encode() + b"\n")
    assert _greeted(far, "token") == position


def test_a_rank_that_leaves_a_round_ends_the_group(pair: list[socket.socket]) -> None:
    lost = threading.Event()
    first, second = (
        Ranks({1 - position: pair[position]}, position=position, positions=2, silent_s=10, lost=lost.set)
        for position in range(2)
    )
    waits = threading.Thread(target=lambda: errors.append(outcome(first)))
    errors: list[BaseException | list[object]] = []
    waits.start()
    second.break_off()
    waits.join(20)
    assert isinstance(errors[0], MembershipError)
    assert "position 1 of this group is lost" in str(errors[0])
    with pytest.raises(MembershipError, match="position 1 has left step"):
        second.gather(1, "the next round")
    assert lost.is_set()
    first.close()


def outcome(ranks: Ranks) -> BaseException | list[object]:
    try:
        return ranks.gather(1, "a round")
    except (MembershipError, MembersLostError) as error:
        return error
