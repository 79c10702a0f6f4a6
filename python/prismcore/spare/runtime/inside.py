"""The ranks of one group: towards other groups they act as one.

Ranks of a group go through the same *rounds*, one after the other. In each, every rank says something, or
that it failed; all get what all said, or that one failed, whichever comes first. Position 0 keeps the
count, and alone asks the lighthouse. A group that loses a rank is lost as a whole: the others notice and
end.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import torch.distributed as dist

from prismcore.errors import MembershipError
from prismcore.spare.runtime.bulletin import listen
from prismcore.spare.runtime.guard import MembersLostError
from prismcore.spare.runtime.links import Links
from prismcore.spare.runtime.words import first_line

__all__ = ["Alone", "Inside", "Ranks"]

_LOOK_S = 0.2
_AGENT = "TORCHELASTIC_USE_AGENT_STORE"
_ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
_log = logging.getLogger(__name__)


class Inside(Protocol):
    """One rank's side of its group."""

    position: int

    def gather(self, mine: Any, what: str, look: Callable[[], Any] | None = None) -> list[Any]:
        """What all ranks of the group say in this round, by position: plain JSON values.

        Args:
            look: at position 0, is called now and then; its MembersLostError ends the round.

        Raises:
            MembersLostError: one of them failed.
            MembershipError: one of them is lost: this group is to end.
        """

    def fail(self) -> None:
        """This rank fails in this round, and so the group does."""

    def check(self) -> None:
        """Raises as :meth:`gather` where that is certain already."""

    def break_off(self) -> None:
        """This rank has left a round, or what belongs to it, halfway: the group ends."""

    def close(self) -> None:
        """Leaves the others; where they do not leave as well, they are lost. Idempotent."""


class Alone:
    """A group of one rank."""

    position = 0

    def gather(self, mine: Any, what: str, look: Callable[[], Any] | None = None) -> list[Any]:
        return [mine]

    def fail(self) -> None:
        pass

    def check(self) -> None:
        pass

    def break_off(self) -> None:
        pass

    def close(self) -> None:
        pass


class Ranks:
    """One of several ranks. Made by :meth:`meet`.

    Args:
        silent_s: so long may another rank show no sign of life. A program that does not come to the session
            for so long after a loss is ended: it may be waiting for the lost rank.
        lost: is called once a rank is lost, in another thread.
    """

    def __init__(
        self,
        sockets: dict[int, socket.socket],
        *,
        position: int,
        positions: int,
        silent_s: float,
        lost: Callable[[], Any],
    ) -> None:
        self.position = position
        self._positions = positions
        self._silent_s = silent_s
        self._tell_lost = lost
        self._changed = threading.Condition()
        self._round = 0
        self._said: dict[int, dict[int, Any]] = {}  # at position 0: by round and position
        self._results: dict[int, list[Any] | None] = {}  # by round; None: one failed
        self._decided = -1  # at position 0: the last round with a result
        self._loss = ""
        self._loss_is_known = False  # to the program
        self._closed = False
        self._store: Any = None
        self._links = Links(sockets, silent_s=silent_s, took=self._take, lost=self._lose)
        self._links.start()

    @classmethod
    def meet(
        cls,
        address: str,
        *,
        position: int,
        positions: int,
        host: str,
        within_s: float,
        silent_s: float,
        lost: Callable[[], Any],
    ) -> Ranks:
        """
        Args:
            address: of the group's own store, ``host:port``; empty: that of torchrun's variables. Position 0
                opens it where nobody else has.
            host: name under which the others reach position 0.

        Raises:
            MembershipError: they do not all come within ``within_s``.
        """
        until = time.monotonic() + within_s
        try:
            if position == 0:
                store, key = _open_store(address, position, within_s)
                sockets = _host(store, key, host, positions, until)
            else:
                store, connection = _join(address, position, until)
                sockets = {0: connection}
        except (OSError, RuntimeError, ValueError) as error:
            raise MembershipError(
                f"position {position} has not met the {positions} ranks of its group within {within_s:g} s "
                f"({first_line(error)}); expected all of them to begin a session with the same store"
            ) from error
        ranks = cls(sockets, position=position, positions=positions, silent_s=silent_s, lost=lost)
        ranks._store = store  # others of the program may use it
        return ranks

    def gather(self, mine: Any, what: str, look: Callable[[], Any] | None = None) -> list[Any]:
        number = self._round
        self._say(number, {"said": mine})
        result = self._wait(number, look)
        self._round += 1
        if result is None:
            raise MembersLostError("inside", f"{what}: another rank of this group has lost its members")
        return result

    def fail(self) -> None:
        number = self._round
        with self._changed:
            is_over = self._results.pop(number, ()) is None
            self._round += 1
        if not is_over:
            self._say(number, {})

    def check(self) -> None:
        with self._changed:
            if self._loss:
                raise self._lost_error()
            if self._results.get(self._round, ()) is None:
                raise MembersLostError("inside", "another rank of this group has lost its members")

    def break_off(self) -> None:
        loss = (
            f"position {self.position} has left step() in the middle of a call (the error before this one); "
            "the group ends as a whole: start it again, all of its ranks"
        )
        with self._changed:
            self._loss = self._loss or loss
            self._loss_is_known = True
        if not self._closed:
            self._tell_lost()
        self.close()

    def close(self) -> None:
        self._closed = True
        self._links.close()

    def _say(self, number: int, message: dict[str, Any]) -> None:
        if self.position == 0:
            self._count(0, {"round": number} | message)
        else:
            self._links.send({"round": number} | message)

    def _wait(self, number: int, look: Callable[[], Any] | None) -> list[Any] | None:
        while True:
            with self._changed:
                if number not in self._results and not self._loss:
                    self._changed.wait(_LOOK_S)
                if number in self._results:
                    return self._results.pop(number)
                if self._loss:
                    raise self._lost_error()
            if look is not None and self.position == 0:
                try:
                    look()
                except MembersLostError:
                    self._decide(number, None)

    def _take(self, position: int, message: dict[str, Any]) -> None:
        if "lost" in message:
            self._note_loss(message["lost"])
        elif self.position == 0:
            self._count(position, message)
        else:
            with self._changed:
                if message["round"] >= self._round:
                    self._results[message["round"]] = message["all"]
                    self._changed.notify_all()

    def _count(self, position: int, message: dict[str, Any]) -> None:
        number = message["round"]
        with self._changed:
            if number <= self._decided:
                return
            said = self._said.setdefault(number, {})
            if "said" in message:
                said[position] = message["said"]
            whole = len(said) == self._positions
        if "said" not in message:
            self._decide(number, None)
        elif whole:
            self._decide(number, [said[each] for each in range(self._positions)])

    def _decide(self, number: int, result: list[Any] | None) -> None:
        with self._changed:
            if number <= self._decided:
                return
            self._decided = number
            self._said.pop(number, None)
            if number >= self._round:
                self._results[number] = result
            self._changed.notify_all()
        self._links.send({"round": number, "all": result})

    def _lose(self, position: int, why: str) -> None:
        loss = (
            f"position {position} of this group is lost ({why}); the group ends as a whole: start it again, "
            "all of its ranks"
        )
        if self.position == 0:
            self._links.send({"lost": loss})
        self._note_loss(loss)

    def _note_loss(self, loss: str) -> None:
        with self._changed:
            if self._loss:
                return
            self._loss = loss
            self._changed.notify_all()
        if not self._closed:
            self._tell_lost()
            timer = threading.Timer(self._silent_s, self._end_program)
            timer.daemon = True
            timer.start()

    def _lost_error(self) -> MembershipError:
        self._loss_is_known = True
        return MembershipError(self._loss)

    def _end_program(self) -> None:
        """It waits for the lost rank somewhere else, perhaps for ever."""
        if self._closed or self._loss_is_known:
            return
        _log.critical("%s; this process ends, it has not come to the session meanwhile", self._loss)
        logging.shutdown()
        os._exit(1)


def _open_store(address: str, position: int, within_s: float) -> tuple[dist.Store, str]:
    """And a key in it that no other session and no other life of the group uses."""
    has_agent = not address and os.environ.get(_AGENT) == "True"
    if not address:
        address = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    host, _, port = address.rpartition(":")
    store = dist.TCPStore(
        host,
        int(port),
        is_master=position == 0 and not has_agent,
        timeout=timedelta(seconds=within_s),
        wait_for_workers=False,
        multi_tenant=True,  # the program's init_process_group may have opened it, or may come to it
    )
    life = os.environ.get(_ATTEMPT, "0") if has_agent else "0"
    session = store.add(f"prismcore/{life}/sessions/{position}", 1)
    return store, f"prismcore/{life}/{session}"


def _host(store: dist.Store, key: str, host: str, positions: int, until: float) -> dict[int, socket.socket]:
    token = secrets.token_hex(16)
    sockets: dict[int, socket.socket] = {}
    with listen(host) as server:
        store.set(key, json.dumps([host, server.getsockname()[1], token]))
        while len(sockets) < positions - 1:
            left = until - time.monotonic()
            if left <= 0:
                missing = sorted(set(range(1, positions)) - set(sockets))
                raise TimeoutError(f"positions {missing} did not come")
            server.settimeout(left)
            connection, _ = server.accept()
            connection.settimeout(min(left, 5.0))
            position = _greeted(connection, token)
            if position is None or position in sockets or not 0 < position < positions:
                connection.close()  # not of this group
            else:
                sockets[position] = connection
    return sockets


def _join(address: str, position: int, until: float) -> tuple[dist.Store, socket.socket]:
    while True:
        try:
            left = max(1.0, until - time.monotonic())
            store, key = _open_store(address, position, left)
            host, port, token = json.loads(store.get(key))
            connection = socket.create_connection((host, port), timeout=left)
            connection.sendall(json.dumps([token, position]).encode() + b"\n")
            return store, connection
        except (dist.DistNetworkError, ConnectionError):  # the store of a life that has just ended
            if time.monotonic() > until:
                raise
            time.sleep(_LOOK_S)


def _greeted(connection: socket.socket, token: str) -> int | None:
    """The position that greets by the token, in one line and nothing behind it."""
    line = b""
    try:
        while not line.endswith(b"\n") and len(line) < 256:
            more = connection.recv(1)
            if not more:
                return None
            line += more
        given, position = json.loads(line)
    except (OSError, ValueError, TypeError):
        return None
    if not isinstance(given, str) or type(position) is not int:
        return None
    return position if secrets.compare_digest(given.encode("utf-8", "replace"), token.encode()) else None
