"""Several machines that emulate one job together, found as torchrun found them.

Machine 0 runs the engine; each machine runs its share of the sandbox ranks. The others connect to machine
0, one connection each, at the address that it leaves in torchrun's store.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import prismcore
from prismcore import interrupts
from prismcore.emulate.options import EmulateOptions
from prismcore.errors import EmulateError
from prismcore.graph import Graph
from prismcore.rules import digest_of_rules

__all__ = ["Machines", "joined", "machines_of_torchrun", "share_of"]

_KEY = "prism/emulate"
_BY_TORCHRUN = "start with torchrun, or set what it sets, or unset TORCHELASTIC_RUN_ID for one machine"
_MOST_MACHINES = 1024
_JOIN_S = 300.0
_HELLO_S = 10.0
_HELLO_BYTES = 1 << 16
_POLL_S = 0.1


class _Store(Protocol):
    """What is needed of torch.distributed.Store."""

    def set(self, key: str, value: str) -> None: ...
    def get(self, key: str) -> bytes: ...
    def check(self, keys: list[str]) -> bool: ...


@dataclass(kw_only=True, slots=True)
class Machines:
    """``connections`` of machine 0: to machine 1, 2, ... in order; of another: to machine 0."""

    number: int  #: of this machine
    count: int
    connections: list[socket.socket] = field(default_factory=list)

    def close(self) -> None:
        for connection in self.connections:
            connection.close()


def share_of(ranks: Sequence[int], machine: int, count: int) -> list[int]:
    """The sandbox ranks of a machine: neighbours stay together, shares differ by one rank at most."""
    return list(ranks[machine * len(ranks) // count : (machine + 1) * len(ranks) // count])


def machines_of_torchrun(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """This process's number among the machines and their count; None outside torchrun, or of one.

    Raises EmulateError where torchrun started several processes on a machine, or did not set what it sets.
    """
    if "TORCHELASTIC_RUN_ID" not in environment or environment.get("WORLD_SIZE", "1") == "1":
        return None
    if environment.get("LOCAL_WORLD_SIZE", "1") != "1":
        raise EmulateError(
            f"torchrun started {environment['LOCAL_WORLD_SIZE']} processes on a machine, expected one, which "
            "starts its ranks itself: --nproc-per-node 1"
        )
    count = _number(environment, "WORLD_SIZE", 2, _MOST_MACHINES)
    number = _number(environment, "RANK", 0, count - 1)
    _number(environment, "MASTER_PORT", 1, 65535)
    if not environment.get("MASTER_ADDR"):
        raise EmulateError(f"no MASTER_ADDR found, expected the address of machine 0; {_BY_TORCHRUN}")
    return number, count


def _number(environment: Mapping[str, str], name: str, low: int, high: int) -> int:
    text = environment.get(name)
    if text is not None and text.isascii() and text.isdigit() and low <= int(text[:18]) <= high:
        return int(text[:18])
    found = f"no {name}" if text is None else f"{name}={text[:40]!r}"
    raise EmulateError(
        f"{found} found in the environment, expected a number from {low} to {high}; {_BY_TORCHRUN}"
    )


@contextmanager
def joined(number: int, count: int, graph: Graph, options: EmulateOptions) -> Iterator[Machines]:
    """Connects the machines.

    Raises EmulateError: a machine does not come, or was told to emulate something else; the wall clock.
    RuleError: the file of rules cannot be read.
    """
    sandbox = options.sandbox
    job = _job(graph, options)
    if options.clock == "wall":
        raise EmulateError(
            f"the wall clock and {count} machines found, whose clocks differ; expected one machine, or the "
            "virtual clock"
        )
    if count > len(sandbox):
        raise EmulateError(
            f"{count} machines found for {len(sandbox)} sandbox ranks, expected at most one each"
        )
    machines = Machines(number=number, count=count)
    try:
        if number == 0:
            _gather(machines, _store(), job)
        else:
            machines.connections.append(_connect(machines, _store(), job))
        yield machines
    finally:
        machines.close()


def _job(graph: Graph, options: EmulateOptions) -> dict[str, str]:
    """What has to be the same on all machines: digests by what they are of. Raises RuleError: rules that
    cannot be read."""
    rules = options.rules
    parts = {
        "version of prismcore": prismcore.__version__,
        "graph": graph.digest(),
        "program": list(options.command),
        "--sandbox": sorted(options.sandbox),
        "perturbation": options.perturbation,
        "--on-divergence": options.on_divergence,
        "--routing": options.routing,
        "--rules": None if rules is None else digest_of_rules(rules, options.working_directory),
        "--preload": sorted(options.preload),
        "environment": sorted(options.environment.items()),
    }
    return {name: hashlib.sha256(repr(part).encode()).hexdigest() for name, part in parts.items()}


def _differing(ours: Mapping[str, str], theirs: Mapping[str, Any]) -> str:
    return ", ".join(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))


def _store() -> _Store:
    """Raises EmulateError where machine 0 cannot be reached, or does not come."""
    from torch.distributed.rendezvous import rendezvous

    address, port = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
    with _told_of(address, port):
        socket.getaddrinfo(address, int(port))
    found: list[_Store] = []
    failed: list[Exception] = []

    def meet() -> None:
        try:
            limit = timedelta(seconds=_JOIN_S)
            found.append(next(iter(rendezvous("env://", timeout=limit)))[0])
        except Exception as error:  # torch has many kinds
            failed.append(error)

    # On a thread: it hears of no Ctrl-C, and is left alone then.
    meeting = threading.Thread(target=meet, daemon=True)
    meeting.start()
    for _ in _waiting(lambda: f"torchrun's store at {address}, port {port}, or the others that meet there,"):
        meeting.join(_POLL_S)
        if not meeting.is_alive():
            break
    with _told_of(address, port):
        if failed:
            raise failed[0]
    return found[0]


@contextmanager
def _told_of(address: str, port: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        told = str(error).partition("\n")[0]
        raise EmulateError(
            f"torchrun's store at MASTER_ADDR {address}, port {port} cannot be reached: {told}"
        ) from None


def _gather(machines: Machines, store: _Store, job: Mapping[str, str]) -> None:
    address = os.environ["MASTER_ADDR"]
    token = secrets.token_hex(16)
    with _listener() as listener:
        listener.settimeout(_POLL_S)
        store.set(_KEY, json.dumps({"address": address, "port": listener.getsockname()[1], "token": token}))
        found: dict[int, socket.socket] = {}
        machines.connections = []
        try:
            for _ in _waiting(lambda: f"{machines.count - 1 - len(found)} of {machines.count} machines"):
                with suppress(TimeoutError, ConnectionError):
                    connection, _ = listener.accept()
                    hello = _hello(connection, token)
                    number: int = -1 if hello is None else hello["machine"]
                    if hello is None or number in found or not 0 < number < machines.count:
                        connection.close()
                        continue
                    found[number] = connection
                    if odd := _differing(job, hello["job"]):
                        raise EmulateError(
                            f"machine {number} was started with another {odd} than machine 0; "
                            "expected the same on all"
                        )
                if len(found) == machines.count - 1:
                    break
            _answer(found.values(), "")
        except EmulateError as error:
            _answer(found.values(), str(error))
            raise
        finally:
            machines.connections = [found[number] for number in sorted(found)]


def _answer(connections: Iterable[socket.socket], failure: str) -> None:
    """To all that have come: whether the emulation begins."""
    data = json.dumps({"failed": failure}).encode()
    for connection in connections:
        with suppress(OSError):  # one that is gone is noticed later
            connection.sendall(len(data).to_bytes(4, "little") + data)


def _listener() -> socket.socket:
    """On every address of this machine: others may know it by another name than it does itself. Who does
    not have the token of the store is sent away."""
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _hello(connection: socket.socket, token: str) -> dict[str, Any] | None:
    """What a machine says of itself; None where it is none of ours."""
    connection.settimeout(_HELLO_S)
    until = time.monotonic() + _HELLO_S
    try:
        given = _read(connection, len(token), until)
        if not secrets.compare_digest(given, token.encode()):
            return None
        size = int.from_bytes(_read(connection, 4, until), "little")
        if size > _HELLO_BYTES:
            return None
        hello = json.loads(_read(connection, size, until))
        ours = isinstance(hello["machine"], int) and isinstance(hello["job"], dict)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    connection.settimeout(None)
    return hello if ours else None


def _connect(machines: Machines, store: _Store, job: Mapping[str, str]) -> socket.socket:
    for _ in _waiting(lambda: "machine 0"):
        if store.check([_KEY]):
            break
        time.sleep(_POLL_S)
    place = json.loads(store.get(_KEY))
    try:
        connection = socket.create_connection((place["address"], place["port"]), timeout=_HELLO_S)
    except OSError as error:
        raise EmulateError(
            f"machine 0 at {place['address']}, port {place['port']} cannot be reached: {error}"
        ) from None
    data = json.dumps({"machine": machines.number, "job": job}).encode()
    try:
        connection.sendall(place["token"].encode() + len(data).to_bytes(4, "little") + data)
        failure = _failure_told(connection)
    except OSError as error:
        connection.close()
        raise EmulateError(
            f"machine 0 at {place['address']} did not take this machine in ({error}); look at what it wrote, "
            f"and whether another was started with RANK={machines.number}"
        ) from None
    if failure:
        connection.close()
        raise EmulateError(f"{failure} (said by machine 0; this is machine {machines.number})")
    connection.settimeout(None)
    return connection


def _failure_told(connection: socket.socket) -> str:
    """What machine 0 says once all have come, or one that cannot take part; empty: it begins."""
    connection.settimeout(_POLL_S)
    for _ in _waiting(lambda: "other machines"):
        with suppress(TimeoutError):
            if connection.recv(1, socket.MSG_PEEK):
                break
            raise OSError("it has closed the connection")
    connection.settimeout(_HELLO_S)
    size = int.from_bytes(_read(connection, 4), "little")
    failure: str = json.loads(_read(connection, size))["failed"]
    return failure


def _read(connection: socket.socket, size: int, until: float = math.inf) -> bytes:
    """Just so many bytes: what comes behind them is not for this module."""
    data = b""
    while len(data) < size:
        if time.monotonic() > until:
            raise OSError("the other side is slow")
        more = connection.recv(size - len(data))
        if not more:
            raise OSError("the other side is gone")
        data += more
    return data


def _waiting(for_whom: Callable[[], str]) -> Iterator[None]:
    until = time.monotonic() + _JOIN_S
    while time.monotonic() < until:
        interrupts.check()
        yield
    raise EmulateError(f"{for_whom()} did not come within {_JOIN_S:g} s; start prism emulate on all of them")
