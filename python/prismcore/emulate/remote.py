"""What machine 0 of an emulation and the others tell each other beside posts and answers: texts, JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
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
from prismcore.rank_list import format_ranks

__all__ = ["OtherMachines", "serve"]

_WORDS_S = 15.0
_POLL_S = 0.02


def _failure_text(failure: BaseException) -> str:
    kind = type(failure).__name__ if isinstance(failure, PrismError) else "EmulateError"
    return json.dumps({"failed": {"type": kind, "text": str(failure) or type(failure).__name__}})


def _failure_of(told: dict[str, Any]) -> PrismError:
    kind = getattr(errors, told["type"], EmulateError)
    failure: PrismError = kind(told["text"])
    return failure


class OtherMachines:
    """As machine 0 sees them."""

    def __init__(self, machines: Machines, sandbox: Sequence[int], ports: _core.PortMemory) -> None:
        self._shares = [share_of(sandbox, number, machines.count) for number in range(1, machines.count)]
        numbers = {rank: number for number, rank in enumerate(sandbox)}
        self.machines = [
            _core.RemoteMachine(connection.detach(), ports, [numbers[rank] for rank in share])
            for connection, share in zip(machines.connections, self._shares, strict=True)
        ]
        self.leaving: set[int] = set()
        """Ranks there whose programs are over."""
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

    def end(self, failed: Collection[int]) -> None:
        """All programs are over but those of the ranks that were made to fail."""
        self._shares = [[rank for rank in share if rank not in failed] for share in self._shares]
        for machine in self.machines:
            machine.send_text(json.dumps({"over": list(failed)}))

    def gather(self) -> dict[int, Peaks]:
        """Behind :meth:`end`: waits for what the ranks left."""
        while len(self._peaks) < sum(map(len, self._shares)):
            interrupts.check()
            self.look_after()
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
        for machine in self.machines:
            machine.send_text(_failure_text(failure))

    def _hear(self, number: int, told: dict[str, Any]) -> None:
        if "failed" in told:
            raise _failure_of(told["failed"])
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
        server = _Server(relay, sandbox)
        try:
            sandbox.start()
            with suppress(_OverError):
                relay.run(server.look_after)
            sandbox.give_up(server.wait_for("over"))
            relay.send_text(json.dumps({"peaks": sandbox.gather()}))
            server.wait_for("done")
        except _ToldError as told:
            raise told.failure from None
        except BaseException as failure:
            relay.send_text(_failure_text(failure))
            raise


class _ToldError(Exception):
    """Machine 0 knows of it already."""

    def __init__(self, failure: PrismError) -> None:
        super().__init__(str(failure))
        self.failure = failure


class _OverError(Exception):
    """The engine waits for no rank any more, though one may wait for the engine."""


class _Server:
    def __init__(self, relay: _core.Relay, sandbox: SandboxRanks) -> None:
        self._relay = relay
        self._sandbox = sandbox
        self._heard: dict[str, Any] = {}
        self._leaving: set[int] = set()  # machine 0 knows of them

    def look_after(self) -> None:
        self._hear()
        if new := self._sandbox.leaving - self._leaving:
            self._leaving |= new
            self._relay.send_text(json.dumps({"leaving": sorted(new)}))
        self._sandbox.look_after()
        if "over" in self._heard:
            raise _OverError

    def wait_for(self, word: str) -> Any:
        while word not in self._heard:
            interrupts.check()
            lost = self._relay.lost
            self._hear()
            if lost and word not in self._heard:
                raise _ToldError(EmulateError("machine 0 is gone; look at what prism emulate wrote there"))
            time.sleep(_POLL_S)
        return self._heard[word]

    def _hear(self) -> None:
        while (text := self._relay.take_text()) is not None:
            told = json.loads(text)
            self._heard |= told
            if "failed" in told:
                failure = _failure_of(told["failed"])
                failure.args = (f"{failure} (said by machine 0)",)
                raise _ToldError(failure)
            if "last_words" in told:
                place = told["last_words"]
                words = self._sandbox.last_words(None if place is None else (place[0], place[1]))
                self._relay.send_text(json.dumps({"words": words}))
