"""What machine 0 of an emulation and the others tell each other beside posts and answers: texts, JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any

from prismcore import _core, errors, interrupts
from prismcore.emulate.descriptors import allow_descriptors
from prismcore.emulate.machines import Machines, share_of
from prismcore.emulate.options import EmulateOptions
from prismcore.emulate.sandbox import Peaks, SandboxRanks, launcher_of
from prismcore.errors import EmulateError, PrismError
from prismcore.graph import Graph
from prismcore.launch.output import TellOutput
from prismcore.launch.pauses import Pauses
from prismcore.rank_list import format_ranks, named_ranks
from prismcore.units import format_s

__all__ = ["OtherMachines", "serve"]

_WORDS_S = 15.0
_POLL_S = 0.02


def _told_of(failure: BaseException, machine: int) -> dict[str, Any]:
    """For the others: what this machine, ``machine``, failed with."""
    kind, text = EmulateError.__name__, str(failure)
    if isinstance(failure, PrismError):
        kind = type(failure).__name__
    elif isinstance(failure, KeyboardInterrupt):
        text = "interrupted"
    else:
        text = f"internal error: {type(failure).__name__}: {text}"
    return {"type": kind, "text": text, "machine": machine}


def _failure_of(told: Mapping[str, Any]) -> PrismError:
    kind = getattr(errors, told["type"], EmulateError)
    head, line_end, lines = told["text"].partition("\n")
    said_by = f" (said by machine {told['machine']})"
    if line_end:  # a rank's last lines are its own
        head, said_by = head.removesuffix(":"), f"{said_by}:"
    failure: PrismError = kind(f"{head}{said_by}{line_end}{lines}")
    return failure


class OtherMachines:
    """As machine 0 sees them."""

    def __init__(
        self, machines: Machines, sandbox: Sequence[int], ports: _core.PortMemory, silence_s: float
    ) -> None:
        self._limit_s = silence_s + _WORDS_S  # a machine that waits for a rank says so first
        self._shares = [share_of(sandbox, number, machines.count) for number in range(1, machines.count)]
        numbers = {rank: number for number, rank in enumerate(sandbox)}
        self.machines = [
            _core.RemoteMachine(connection.detach(), ports, [numbers[rank] for rank in share])
            for connection, share in zip(machines.connections, self._shares, strict=True)
        ]
        self.leaving: set[int] = set()
        """Ranks there whose programs are over."""
        self._pauses = [Pauses() for _ in self._shares]
        self._failure: PrismError | None = None  # that was heard, as it was told:
        self._failed: dict[str, Any] = {}
        self._peaks: dict[int, Peaks] = {}
        self._words: dict[int, str] = {}

    def look_after(self) -> None:
        """Raises what a machine failed with."""
        for number, machine in enumerate(self.machines, start=1):
            lost = machine.lost  # what it said before is still to be heard
            while (text := machine.take_text()) is not None:
                self._hear(number, json.loads(text))
            share = self._shares[number - 1]
            if lost and not self._peaks.keys() >= set(share):
                raise EmulateError(
                    f"machine {number}, which runs ranks {format_ranks(share)}, is gone; look at what "
                    "prism emulate wrote there"
                )

    def pauses_of(self, rank: int) -> Pauses | None:
        """When nobody took what ranks of its machine write; None: it runs here."""
        return next((p for p, share in zip(self._pauses, self._shares, strict=True) if rank in share), None)

    def end(self, failed: Collection[int]) -> None:
        """All programs are over but those of the ranks that were made to fail."""
        self._shares = [[rank for rank in share if rank not in failed] for share in self._shares]
        for machine in self.machines:
            machine.send_text(json.dumps({"over": list(failed)}))

    def gather(self) -> dict[int, Peaks]:
        """Behind :meth:`end`: waits for what the ranks left.

        Raises EmulateError where a machine does not tell for longer than a rank may take to leave.
        """
        began, left = time.monotonic(), -1
        while missing := self._untold():
            interrupts.check()
            self.look_after()
            if left != (left := len(missing)):
                began = time.monotonic()
            number, ranks = next(iter(missing.items()))
            waited_s = time.monotonic() - began
            if waited_s - self._pauses[number - 1].within(waited_s) > self._limit_s:
                raise EmulateError(
                    f"machine {number} has not told within {format_s(self._limit_s)} what "
                    f"{named_ranks(ranks)} left, though all programs are over; look at what prism emulate "
                    "wrote there, and whether it is stopped"
                )
            time.sleep(_POLL_S)
        for machine in self.machines:
            machine.send_text(json.dumps({"done": True}))
        return self._peaks

    def last_words(self, place: tuple[int, int] | None) -> str:
        """As :meth:`SandboxRanks.last_words`, of all other machines."""
        asked = [m for m in self.machines if m.send_text(json.dumps({"last_words": place}))]
        until = time.perf_counter() + _WORDS_S
        while len(self._words) < len(asked) and time.perf_counter() < until:
            try:
                self.look_after()
            except PrismError as failure:
                return f"; then {failure}"
            time.sleep(_POLL_S)
        return "".join(words for _, words in sorted(self._words.items()))

    def stop(self, failure: BaseException) -> None:
        told = self._failed if failure is self._failure else _told_of(failure, 0)
        for machine in self.machines:
            machine.send_text(json.dumps({"failed": told}))

    def _untold(self) -> dict[int, list[int]]:
        """By machine, the ranks there of which it has not told what they left."""
        found = {
            number: [rank for rank in share if rank not in self._peaks]
            for number, share in enumerate(self._shares, start=1)
        }
        return {number: ranks for number, ranks in found.items() if ranks}

    def _hear(self, number: int, told: dict[str, Any]) -> None:
        if "failed" in told:
            self._failed = told["failed"] | {"machine": number}
            self._failure = _failure_of(self._failed)
            raise self._failure
        if "paused" in told:
            pauses = self._pauses[number - 1]
            (pauses.begin if told["paused"] else pauses.end)()
        if "words" in told:
            self._words[number] = told["words"]
        self.leaving.update(told.get("leaving", ()))
        for rank, peaks in told.get("peaks", {}).items():
            self._peaks[int(rank)] = (peaks[0], peaks[1])


def serve(
    graph: Graph, options: EmulateOptions, machines: Machines, tell_output: TellOutput | None = None
) -> None:
    """Runs the share of a machine that is not machine 0, until machine 0 says that all is over.
    ``tell_output``: as of :func:`prismcore.emulate.emulate`, for the ranks here.

    Raises what the emulation failed with, here or elsewhere.
    """
    ranks = share_of(sorted(options.sandbox), machines.number, machines.count)
    allow_descriptors(2 * len(ranks))
    with launcher_of(graph, options, tell_output) as launcher:
        ports = _core.PortMemory.create(len(ranks), timed=False)
        relay = _core.Relay(machines.connections[0].detach(), ports)
        sandbox = SandboxRanks(
            launcher,
            ranks,
            ports,
            world_size=graph.world_size,
            silence_s=options.silence_s,
            has_rules=options.rules is not None,
        )
        server = _Server(relay, sandbox, machines.number)
        try:
            sandbox.start()
            with suppress(_OverError):
                relay.run(server.look_after)
            sandbox.give_up(server.wait_for("over"))
            for rank, peaks in sandbox.gathering(server.look):
                relay.send_text(json.dumps({"peaks": {rank: peaks}}))
            server.wait_for("done")
        except _ToldError as told:
            raise told.failure from None
        except BaseException as failure:
            relay.send_text(json.dumps({"failed": _told_of(failure, machines.number)}))
            raise


class _ToldError(Exception):
    """Machine 0 knows of it already."""

    def __init__(self, failure: PrismError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class _OverError(Exception):
    """The engine waits for no rank any more, though one may wait for the engine."""


class _Server:
    def __init__(self, relay: _core.Relay, sandbox: SandboxRanks, number: int) -> None:
        self._relay = relay
        self._number = number
        self._sandbox = sandbox
        self._heard: dict[str, Any] = {}
        self._leaving: set[int] = set()  # machine 0 knows of them
        self._paused = False  # and of this

    def look(self) -> None:
        """Raises _ToldError where machine 0 has failed, or is gone."""
        lost = self._relay.lost
        self._hear()
        if lost:
            raise _ToldError(EmulateError("machine 0 is gone; look at what prism emulate wrote there"))
        if self._paused != self._sandbox.paused:
            self._paused = not self._paused
            self._relay.send_text(json.dumps({"paused": self._paused}))

    def look_after(self) -> None:
        self.look()
        if new := self._sandbox.leaving - self._leaving:
            self._leaving |= new
            self._relay.send_text(json.dumps({"leaving": sorted(new)}))
        self._sandbox.look_after()
        if "over" in self._heard:
            raise _OverError

    def wait_for(self, word: str) -> Any:
        while word not in self._heard:
            interrupts.check()
            self.look()
            time.sleep(_POLL_S)
        return self._heard[word]

    def _hear(self) -> None:
        while (text := self._relay.take_text()) is not None:
            told = json.loads(text)
            self._heard |= told
            if "failed" in told:
                raise _ToldError(_failure_of(told["failed"]))
            if "last_words" in told:
                place = told["last_words"]
                words = self._sandbox.last_words(None if place is None else (place[0], place[1]))
                self._relay.send_text(json.dumps({"words": words}))
