"""The sandbox ranks of this machine: their processes, mailboxes, and how they ended."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from pathlib import Path

from prismcore import _core, interrupts
from prismcore.emulate.call_site import next_call_site
from prismcore.emulate.options import EmulateOptions
from prismcore.errors import EmulateError, PrismError
from prismcore.graph import Graph
from prismcore.launch.failures import failure_of
from prismcore.launch.launcher import Launcher, RankEnd
from prismcore.launch.need import ObjectNeed
from prismcore.profiles.cluster import parse_cluster

__all__ = ["AbsentGiverError", "Peaks", "SandboxRanks", "check_end", "launcher_of"]

_LAST_WORDS_S = 2.0
"""How long a rank that left its program may take to say that it failed, or where it goes on."""

Peaks = tuple[int, int]
"""Peak allocated and reserved bytes."""


def launcher_of(graph: Graph, options: EmulateOptions) -> Launcher:
    """Starts ranks as they were started for the collection of `graph`."""
    metadata = graph.metadata
    cluster_text = str(metadata["cluster"])
    return Launcher(
        command=options.command,
        folder=(options.working_directory or Path.cwd()).resolve(),
        world_size=graph.world_size,
        gpus_per_node=parse_cluster(cluster_text, "the graph's cluster profile").gpus_per_node,
        device=str(metadata["device"]).removeprefix("virtual:"),
        cluster_text=cluster_text,
        measure_host=metadata["host"] == "measured",
        iterations=int(metadata["iterations"]),
        preload=options.preload,
        environment=options.environment,
        rank_timeout_s=float("inf"),
        routing=options.routing or metadata.get("routing") or "balanced",
        rules=options.rules,
    )


class AbsentGiverError(EmulateError):
    """A rank needs an object that a ghost gives."""

    def __init__(self, rank: int, need: ObjectNeed) -> None:
        super().__init__(
            f"{need.told(rank)}, and that rank is a ghost; emulate on one machine, where it is run first"
        )
        self.rank = rank
        self.need = need


def check_end(end: RankEnd, world_size: int) -> None:
    """Raises what the end of a rank stands for, if it did not end as it should."""
    need = (end.summary or {}).get("need")
    if need is not None:
        raise AbsentGiverError(end.rank, ObjectNeed(**need))
    failure: PrismError | None = failure_of(end, world_size=world_size, timeout_s=float("inf"))
    if failure is not None:
        raise failure


class SandboxRanks:
    """``ranks`` in the order of their mailboxes, which are the first of ``ports``."""

    def __init__(
        self,
        launcher: Launcher,
        ranks: Sequence[int],
        ports: _core.PortMemory,
        *,
        world_size: int,
        silence_s: float,
    ) -> None:
        self._launcher = launcher
        self._ranks = list(ranks)
        self._ports = ports
        self._exchange = _core.ExchangeMemory.create(self._ranks)
        self._world_size = world_size
        self._silence_s = silence_s
        self._ends: dict[int, RankEnd] = {}

    def start(self) -> None:
        for number, rank in enumerate(self._ranks):
            self._launcher.start(rank, port=(self._ports.fd, self._exchange.fd, number))

    def look_after(self) -> None:
        """To be called some times a second: raises what a rank that has ended stands for."""
        interrupts.check()
        for end in self._launcher.ends():
            self._take(end)

    def check_silence(self, rank: int, silent_ns: int) -> None:
        """`rank`, here or on another machine, has been waited for longest without doing more than ask
        whether work is done, for so long. Raises EmulateError where that is too long."""
        if silent_ns <= self._silence_s * 1e9:
            return
        raise EmulateError(
            f"rank {self._kept_by(rank)} has launched nothing for {self._silence_s:g} s; expected ops of its "
            "program: look for a sleep, an endless loop or input that never comes, or allow more (--silence)"
        )

    def gather(self, failed: Collection[int]) -> dict[int, Peaks]:
        """Once all programs are over but those of the ranks that were made to fail: waits for what the
        others leave. By rank."""
        self._exchange.close()  # nobody needs what has not come
        ranks = [rank for rank in self._ranks if rank not in failed]
        while set(ranks).difference(self._ends):
            self._take(self._launcher.next_end())
        return {rank: self._peaks(rank) for rank in ranks}

    def last_words(self, place: tuple[int, int] | None) -> str:
        """What a rank that failed has to say: it may have left its program because of that. Else, of the
        rank and op of ``place``, where the program goes on. No rank waits for the engine any more."""
        self._ports.close()
        self._exchange.close()
        until = time.perf_counter() + _LAST_WORDS_S
        try:
            while time.perf_counter() < until and self._launcher.running:
                self.look_after()
                time.sleep(0.02)
            if place is None or place[0] not in self._ranks:
                return ""
            for end in self._launcher.stop_all():
                self._take(end)
        except PrismError as failure:
            return f"; then {failure}"
        rank, op = place
        if rank not in self._ends:
            return ""
        site = next_call_site(Graph.from_bytes(self._ends[rank].graph), rank, op)
        return f"; the rank itself communicates next at {site}" if site else ""

    def _kept_by(self, rank: int) -> int:
        """Whose bytes a rank waits for, directly or not; itself where it waits for nobody's."""
        seen = [rank]
        while seen[-1] in self._ranks:
            kept_by = self._exchange.waits_for(self._ranks.index(seen[-1]))
            if kept_by is None:
                return seen[-1]
            if self._ranks[kept_by] in seen:  # they wait for each other
                return rank
            seen.append(self._ranks[kept_by])
        return seen[-1]

    def _take(self, end: RankEnd) -> None:
        check_end(end, self._world_size)
        self._ends[end.rank] = end

    def _peaks(self, rank: int) -> Peaks:
        peaks = Graph.from_bytes(self._ends[rank].graph).rank(rank).peaks
        return peaks.allocated_bytes, peaks.reserved_bytes
