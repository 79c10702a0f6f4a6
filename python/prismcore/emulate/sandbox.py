"""The sandbox ranks of this machine: their processes, ports, and how they ended."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from prismcore import _core, interrupts
from prismcore.emulate.call_site import next_call_site
from prismcore.emulate.options import EmulateOptions
from prismcore.errors import EmulateError, PrismError
from prismcore.graph import Graph
from prismcore.launch.failures import failure_of, told_of_slow
from prismcore.launch.launcher import Launcher, RankEnd
from prismcore.launch.need import ObjectNeed
from prismcore.launch.output import TellOutput
from prismcore.launch.pauses import Pauses
from prismcore.launch.protocol import ENDED_BY_PROGRAM
from prismcore.profiles.cluster import parse_cluster
from prismcore.units import format_s, plural

__all__ = ["AbsentGiverError", "Peaks", "SandboxRanks", "check_end", "launcher_of"]

_LOOK_S = 0.2

_LAST_WORDS_S = 2.0
"""How long a rank that left its program may take to say that it failed, or where it goes on."""

_NO_TIMES = "Both events must be completed before calculating elapsed time"
"""Torch's words in ``Event.elapsed_time``."""

_DIAGNOSIS_S = 2.0
"""How long the engine may take to say what a rank polls for in vain."""

Peaks = tuple[int, int]
"""Peak allocated and reserved bytes."""


def launcher_of(graph: Graph, options: EmulateOptions, tell_output: TellOutput | None = None) -> Launcher:
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
        step_timeout_s=options.silence_s,
        longer="--silence",
        routing=options.routing or metadata.get("routing") or "balanced",
        rules=options.rules,
        tell_output=tell_output,
    )


class AbsentGiverError(EmulateError):
    """A rank needs an object that a ghost gives."""

    def __init__(self, rank: int, need: ObjectNeed) -> None:
        super().__init__(
            f"{need.told(rank)}, and that rank does not run on this machine; emulate on one machine, where "
            "a ghost runs alone first"
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


def _made_of_the_end(end: RankEnd) -> bool:
    """Whether a rank failed because the engine tells it no times any more."""
    error = (end.summary or {}).get("error") or {}
    return str(error.get("text")).startswith(_NO_TIMES)


class SandboxRanks:
    """``ranks`` in the order of their ports, which are the first of ``ports``."""

    def __init__(
        self,
        launcher: Launcher,
        ranks: Sequence[int],
        ports: _core.PortMemory,
        *,
        world_size: int,
        silence_s: float,
        has_rules: bool,
    ) -> None:
        self._launcher = launcher
        self._ranks = list(ranks)
        self._ports = ports
        self._exchange = _core.ExchangeMemory.create(self._ranks)
        self._world_size = world_size
        self._silence_s = silence_s
        self._has_rules = has_rules
        self._ends: dict[int, RankEnd] = {}
        self._given_up: set[int] = set()
        self._leaving_since: dict[int, float] = {}
        self._impatient_since: float | None = None

    def start(self) -> None:
        for number, rank in enumerate(self._ranks):
            self._launcher.start(rank, port=(self._ports.fd, self._exchange.fd, number))

    def look_after(self) -> None:
        """To be called some times a second: raises what a rank that has ended stands for."""
        interrupts.check()
        for end in self._launcher.ends():
            self._take(end)

    @property
    def leaving(self) -> set[int]:
        """Ranks whose programs are over, and that write their records or have ended."""
        return {rank for rank in self._ranks if self._launcher.is_leaving(rank)}

    def is_patient(
        self, rank: int, silent_ns: int, leaving: Collection[int] = (), pauses: Pauses | None = None
    ) -> bool:
        """`rank`, here or on another machine, has been waited for longest without doing more than ask
        whether work is done, for so long. False where that is too long: if nobody else can go on either, the
        engine knows what it asks for. Raises EmulateError where the engine has not said so.

        ``leaving``: as :attr:`leaving`, of other machines. To leave, a rank has the same time once more.
        ``pauses``: of the machine of a rank that is not here. Where whoever reads what ranks write takes no
        more of it, they wait for that, and no time counts.
        """
        if rank in self._ranks or pauses is None:
            pauses = self._launcher.pauses
        silent_s = silent_ns * 1e-9
        if silent_s - pauses.within(silent_s) <= self._silence_s:
            self._impatient_since = None
            return True
        rank = self._kept_by(rank)
        if rank in leaving or rank in self.leaving:
            now = time.monotonic()
            left_s = now - self._leaving_since.setdefault(rank, now)
            if left_s - pauses.within(left_s) > self._silence_s:
                raise self._left_no_record(rank)
            return True
        if self._impatient_since is None:
            self._impatient_since = time.monotonic()
        if time.monotonic() - self._impatient_since < _DIAGNOSIS_S:
            return False
        raise EmulateError(
            f"rank {rank} has launched nothing for {format_s(self._silence_s)}{self._stopped(rank)}; "
            "expected ops of its program: look for a sleep, an endless loop or input that never comes, or "
            f"allow more (--silence){told_of_slow(self._launcher.slow_imports)}"
        )

    def give_up(self, failed: Collection[int]) -> None:
        """Ends ranks that were made to fail: they wait for the engine for ever, and what they made of the
        end of that wait would be nobody's failure."""
        self._given_up = set(failed).intersection(self._ranks)
        for rank in self._given_up:
            self._launcher.kill(rank)

    def gathering(self, look: Callable[[], None]) -> Iterator[tuple[int, Peaks]]:
        """Once all programs are over but those of the ranks that were given up: waits for what the others
        leave, and yields it as it comes. ``look`` is called meanwhile, and may raise."""
        self._exchange.close()  # nobody needs what has not come
        told: set[int] = set()
        while True:
            for rank in sorted(self._ends.keys() - told - self._given_up):
                told.add(rank)
                yield rank, self._peaks(rank)
            missing = set(self._ranks) - self._ends.keys() - self._given_up
            if not missing:
                return
            end = self._next_end(look)
            if end is None:
                raise self._left_no_record(min(missing))
            self._take(end)

    @property
    def paused(self) -> bool:
        """Whether whoever reads what ranks here write takes no more of it."""
        return self._launcher.pauses.lasts

    def _next_end(self, look: Callable[[], None]) -> RankEnd | None:
        """None: no rank has ended for too long, but for pauses."""
        began, left_s = time.monotonic(), self._silence_s
        while left_s > 0:
            end = self._launcher.end_within(min(left_s, _LOOK_S))
            if end is not None:
                return end
            look()
            waited_s = time.monotonic() - began
            left_s = self._silence_s - waited_s + self._launcher.pauses.within(waited_s)
        return None

    @property
    def routed(self) -> bool | None:
        """Behind :meth:`gather`: whether a dispatcher of a rank here took routing; None: no rank here."""
        ends = [end.summary for end in self._ends.values() if end.summary is not None]
        return any(summary.get("routing") is not None for summary in ends) if ends else None

    @property
    def rules(self) -> Counter[str]:
        """Behind :meth:`gather`: how many calls of ranks here each rule has had."""
        uses: Counter[str] = Counter()
        for end in self._ends.values():
            uses.update((end.summary or {}).get("rules", {}))
        return uses

    def last_words(self, place: tuple[int, int] | None) -> str:
        """What a rank that failed has to say: it may have left its program because of that. Else, of the
        rank and op of ``place``, where the program goes on. No rank waits for the engine any more."""
        self._launcher.mute()  # what it writes without the engine is nobody's
        closed_s = time.monotonic()
        self._ports.close()
        self._exchange.close()
        until = time.perf_counter() + _LAST_WORDS_S

        def hear(end: RankEnd) -> None:
            # Without the engine a rank is told that nothing is done, at no time: what others fail with
            # after that is no reason. The rank that is asked about may have failed, and clean up.
            left_s = (end.summary or {}).get("left_s", 0)
            asked = place is not None and end.rank == place[0] and not _made_of_the_end(end)
            if left_s < closed_s or asked:
                check_end(end, self._world_size)
            self._ends[end.rank] = end

        try:
            while time.perf_counter() < until and self._launcher.running:
                interrupts.check()
                for end in self._launcher.ends():
                    hear(end)
                time.sleep(0.02)
            if place is None or place[0] not in self._ranks:
                return ""
            for end in self._launcher.stop_all():
                hear(end)
        except PrismError as failure:
            return f"; then {failure}"
        rank, op = place
        if rank not in self._ends:
            return ""
        if (summary := self._ends[rank].summary) is not None and summary["end"] == ENDED_BY_PROGRAM:
            return f"; its program has ended after {plural(summary['iterations'], 'iteration')}"
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

    def _left_no_record(self, rank: int) -> EmulateError:
        place = "a rule or another thread" if self._has_rules else "another thread"
        return EmulateError(
            f"rank {rank} has come to the end of its program but left no record within "
            f"{format_s(self._silence_s)}{self._stopped(rank)}; look for {place} of it that does not "
            "return, or allow more (--silence)"
        )

    def _stopped(self, rank: int) -> str:
        return ": a signal or a debugger has stopped its process" if self._launcher.is_stopped(rank) else ""

    def _take(self, end: RankEnd) -> None:
        if end.rank in self._given_up:
            return
        check_end(end, self._world_size)
        self._ends[end.rank] = end

    def _peaks(self, rank: int) -> Peaks:
        peaks = Graph.from_bytes(self._ends[rank].graph).rank(rank).peaks
        return peaks.allocated_bytes, peaks.reserved_bytes
