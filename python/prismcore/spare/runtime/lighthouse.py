"""The lighthouse of torchft: who is alive, and one quorum at a time for all of them.

Quorums come from its client, heartbeats are sent by its manager server (a thread that needs no GIL), and
how long ago each was heard of stands on its status page (torchft 0.2.0, ``GET /status``).
"""

from __future__ import annotations

import math
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from prismcore.errors import MembershipError
from prismcore.spare.runtime.membership import Report
from prismcore.spare.runtime.words import first_line

__all__ = ["Heard", "Lighthouse", "Quorum"]

_HEARTBEAT = re.compile(r'class="heartbeat\s*(old)?\s*">\s*([0-9A-Za-z_.:-]+): seen ([0-9.e+-]+)s ago')
_GOOD = re.compile(rb"HTTP/1\.\d 200 ")
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *([0-9]+)")
_RETRY_S = 0.05
_ANEW_S = 1.0  # less than any --join_timeout_ms
_LOOK_S = 0.2
_CHUNK = 1 << 16
_LARGEST = 1 << 26
"""Of a status page, in bytes: hundreds of thousands of members."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quorum:
    """``number`` grows with each change while the lighthouse lives. ``strangers``: replicas in it that are
    not of this training."""

    number: int
    created_ns: int
    reports: tuple[Report, ...]
    strangers: tuple[str, ...]

    def to_data(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Quorum:
        return cls(
            number=data["number"],
            created_ns=data["created_ns"],
            reports=tuple(Report(**report) for report in data["reports"]),
            strangers=tuple(data["strangers"]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Heard:
    """How long ago the lighthouse heard of a replica, and whether it holds it for dead."""

    ago_s: float
    dead: bool


class Lighthouse:
    """A member's line to the lighthouse.

    Args:
        address: as ``http://host:29510``.
        replica: this life of the member.
        host: name under which other members reach this machine.
        heartbeat_s: between two signs of life.
        ranks: of the group that it speaks for.
        timeout_s: how long it may be away before a request fails.
        told: is called with how long it was away, in seconds, and with None when it is found missing.

    Raises:
        MembershipError: nothing answers at the address within ``timeout_s``.
    """

    def __init__(
        self,
        address: str,
        *,
        replica: str,
        host: str,
        heartbeat_s: float,
        timeout_s: float,
        told: Callable[[float | None], Any],
        ranks: int = 1,
    ) -> None:
        self._address = address if "://" in address else f"http://{address}"
        self._replica = replica
        self._host = host
        self.heartbeat_s = heartbeat_s
        self._timeout_s = timeout_s
        self._told = told
        self._ranks = ranks
        self._closed = False
        self._server: Any = None
        self._client: Any = None

    def quorum(self, report: Callable[[], Report], *, wait_s: float) -> Quorum:
        """The next quorum that this member is in. The lighthouse gives it once all that are alive ask, or
        some do not for its ``--join_timeout_ms``.

        Args:
            report: is asked again where the request has to be made again.
            wait_s: infinite for those who wait for a place: their request is made anew every few seconds,
                for it would count as one that is late.

        Raises:
            MembershipError: it was away for too long, or others did not ask within ``wait_s``.
        """
        began = time.monotonic()
        away_since: float | None = None
        refused_since: float | None = None  # it is there, and fails each request at once
        while True:
            asked = report()
            try:
                found = self._ask(asked, wait_s if math.isfinite(wait_s) else _ANEW_S)
                break
            except (RuntimeError, TimeoutError, OSError) as error:
                now = time.monotonic()
                if self.heard() is not None:  # it is there
                    self._tell_found(away_since)
                    away_since = None
                    is_late = isinstance(error, TimeoutError)  # the request took its time
                    refused_since = None if is_late else refused_since or now
                    if refused_since is not None and now - refused_since > self._timeout_s:
                        raise MembershipError(
                            f"what answers at {self._address} does not speak torchft's protocol "
                            f"({first_line(error)}); expected torchft_lighthouse there"
                        ) from error
                    if now - began > wait_s:
                        raise MembershipError(
                            f"no quorum within {wait_s:g} s ({first_line(error)}): a group that is alive "
                            f"does not ask for one; {self._address} shows who is there"
                        ) from error
                    if not is_late:
                        self._client = None
                        time.sleep(_RETRY_S)
                    continue
                refused_since = None
                if away_since is None:
                    away_since = now
                    self._told(None)
                if now - away_since > self._timeout_s:
                    raise MembershipError(
                        f"the lighthouse at {self._address} has not answered for {self._timeout_s:g} s "
                        f"({first_line(error)}); expected torchft_lighthouse to run there, nothing "
                        "else at that port: start it again"
                    ) from None
                self._client = None
                time.sleep(_RETRY_S)
        self._tell_found(away_since)
        created = found.created
        read = {member.replica_id: Report.from_data(member.data) for member in found.participants}
        ours = {name: r for name, r in read.items() if r is not None and r.training == asked.training}
        return Quorum(
            number=int(found.quorum_id),
            created_ns=created.seconds * 1_000_000_000 + created.nanos,
            reports=tuple(ours.values()),
            strangers=tuple(sorted(set(read) - set(ours))),
        )

    def heard(self, *, within_s: float = 1.0) -> dict[str, Heard] | None:
        """Of each replica; None: no answer."""
        try:
            text = self._page(time.monotonic() + within_s)
            found = _HEARTBEAT.findall(text)
            return {name: Heard(ago_s=float(ago), dead=bool(old)) for old, name, ago in found}
        except (OSError, ValueError):
            return None

    def _page(self, until: float) -> str:
        """The status page. Without a client of HTTP, which takes longer than the page, and asks a proxy where
        one is set up."""
        address = urlsplit(self._address)
        host, port = address.hostname or "localhost", address.port or 80
        request = f"GET /status HTTP/1.0\r\nHost: {address.netloc}\r\n\r\n".encode()
        chunks: list[bytes] = []
        size = 0
        with socket.create_connection((host, port), timeout=_left(until)) as connection:
            connection.sendall(request)
            while True:
                connection.settimeout(_left(until))
                chunk = connection.recv(_CHUNK)
                size += len(chunk)
                if not chunk or size > _LARGEST:
                    break
                chunks.append(chunk)
        head, _, body = b"".join(chunks).partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if _GOOD.match(head) is None or length is None or len(body) != int(length[1]):
            raise ValueError(f"{len(head)} and {len(body)} bytes found, expected a whole page")
        return body.decode("utf-8", "replace")

    def close(self) -> None:
        """No more signs of life. May be called from another thread: a quorum that is waited for ends."""
        self._closed = True
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
        self._client = None

    def _ask(self, report: Report, wait_s: float) -> Any:
        """In a thread of its own, so that this one may be interrupted. A request is not given up before its
        time: the lighthouse would still count it, and others would wait for this member."""
        client = self._be_heard()
        answers: list[Any] = []
        errors: list[Exception] = []
        over = threading.Event()

        def ask() -> None:
            try:
                answers.append(
                    client.quorum(
                        replica_id=self._replica,
                        timeout=timedelta(seconds=wait_s),
                        address=self._host,
                        store_address=report.store,
                        step=max(report.step, 0),
                        world_size=self._ranks,
                        shrink_only=False,
                        data=report.to_data(),
                    )
                )
            except Exception as error:
                errors.append(error)
            over.set()

        threading.Thread(target=ask, name="prism_spare_quorum", daemon=True).start()
        while not over.wait(_LOOK_S):
            if self._closed:
                raise MembershipError("this member has left the training while it asked for a quorum")
        if errors:
            raise errors[0]
        return answers[0]

    def _tell_found(self, away_since: float | None) -> None:
        if away_since is not None:
            self._told(time.monotonic() - away_since)

    def _be_heard(self) -> Any:
        from torchft._torchft import LighthouseClient, ManagerServer

        connect = timedelta(seconds=2)
        client = self._client
        if client is None:
            client = self._client = LighthouseClient(self._address, connect)
        if self._server is None and not self._closed:
            self._server = ManagerServer(
                replica_id=self._replica,
                lighthouse_addr=self._address,
                hostname=self._host,
                bind=f"{_any_address(self._host)}:0",
                store_addr="",
                world_size=self._ranks,
                heartbeat_interval=timedelta(seconds=self.heartbeat_s),
                connect_timeout=connect,
                quorum_retries=0,
            )
        if self._closed:
            self.close()
            raise MembershipError("this member has left the training, and asks for a quorum")
        return client


def _any_address(host: str) -> str:
    """Where to listen so that ``host`` reaches it: loopback stays loopback."""
    if host in ("localhost", "127.0.0.1"):
        return "127.0.0.1"
    return "[::]" if socket.has_ipv6 else "0.0.0.0"


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
