"""Emulation of a job: rank processes on one side, the engine with the ghosts on the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prismcore import _core, interrupts
from prismcore.emulate.call_site import next_call_site
from prismcore.emulate.options import EmulateOptions
from prismcore.emulate.result import EmulateResult, SandboxResult
from prismcore.errors import (
    DeadlockError,
    DivergenceError,
    EmulateError,
    MismatchError,
    PrismError,
    StoppedError,
)
from prismcore.graph import Graph
from prismcore.launch.failures import failure_of
from prismcore.launch.launcher import Launcher, RankEnd
from prismcore.launch.need import ObjectNeed
from prismcore.profiles.cluster import parse_cluster
from prismcore.rank_list import format_ranks
from prismcore.replay.replay import recorded_eager_bytes, replay, result_of, wiring_of

__all__ = ["emulate"]

_LAST_WORDS_S = 2.0
"""How long a rank that left its program may take to say that it failed, or where it goes on."""

ProgressCallback = Callable[[str], None]


def emulate(graph: Graph, options: EmulateOptions, progress: ProgressCallback | None = None) -> EmulateResult:
    """Runs the sandbox ranks of ``options`` for real, all others as ghosts from `graph`.

    Times are virtual: they do not depend on the load of this machine, and a rank that does what it
    recorded takes exactly what the replay says.

    Raises:
        EmulateError: the graph or the options do not allow it, or the ranks did nothing for
            ``options.silence_s``.
        DivergenceError: a rank did something else than the graph recorded of it.
        DeadlockError: ranks wait for others that never come.
        StoppedError: ranks wait for others that ``options.perturbation`` made fail.
        MismatchError: ranks meet in a communication op that they disagree about.
        RankFailedError: a rank ended with an error.
        OutOfMemoryError: a rank does not fit into its device's memory.
    """
    return _Emulation(graph, options, progress or (lambda _: None)).run()


class _AbsentGiverError(Exception):
    """A rank needs an object that a ghost gives."""

    def __init__(self, rank: int, need: ObjectNeed) -> None:
        super().__init__(rank, need)
        self.rank = rank
        self.need = need


class _Emulation:
    def __init__(self, graph: Graph, options: EmulateOptions, progress: ProgressCallback) -> None:
        self._graph = graph
        self._options = options
        self._progress = progress
        self._started = time.perf_counter()
        self._ranks = sorted(options.sandbox)
        self._ends: dict[int, RankEnd] = {}
        self._failed: set[int] = set()  # wait for the engine for ever
        self._given: dict[str, list[bytes]] = {}
        """Objects of ghosts, by key."""
        self._wanted: tuple[int, ObjectNeed] | None = None
        """What a rank could not go on without."""
        absent = set(self._ranks).difference(graph.ranks.tolist())
        if absent:
            raise EmulateError(
                f"sandbox ranks {format_ranks(absent)} found, expected ranks of the graph: "
                f"{format_ranks(graph.ranks.tolist()) or 'none'}"
            )
        self._metadata = graph.metadata
        for key, kind in (("device", str), ("cluster", str), ("iterations", int), ("host", str)):
            if not isinstance(self._metadata.get(key), kind):
                raise EmulateError(
                    f"the graph does not say with which {key} it was collected; expected a graph of "
                    "prism collect"
                )

    def run(self) -> EmulateResult:
        options, metadata = self._options, self._metadata
        self._progress("replaying the graph")
        expected = replay(self._graph, perturbation=options.perturbation)
        cluster_text = str(metadata["cluster"])
        routing = options.routing or metadata.get("routing") or "balanced"
        while True:
            try:
                raw, engine_started, engine_s = self._launch(cluster_text, routing)
                break
            except _AbsentGiverError as absent:
                self._wanted = (absent.rank, absent.need)
                self._ends.clear()
                self._failed.clear()
        sandbox = {rank: self._sandbox_result(rank, raw) for rank in self._ranks if rank not in self._failed}
        job = result_of(raw, self._graph, wall_time_s=engine_s)
        cluster = parse_cluster(cluster_text, "the graph's cluster profile").to_core()
        peers, messages = _core.materialised(self._graph.core, self._ranks, cluster)
        return EmulateResult(
            sandbox=sandbox,
            job=job,
            replay_median_iteration_time_ns=expected.median_iteration_time_ns,
            ghosts=len(self._graph.ranks) - len(self._ranks),
            materialised_ghosts=len(peers),
            messages=messages,
            posts=raw["posts"],
            diverged=bool(raw["diverged"]),
            bootstrap_s=engine_started - self._started + raw["first_post_ns"] * 1e-9,
            wall_time_s=time.perf_counter() - self._started,
            warnings=[*self._rule_warnings(), *job.warnings],
        )

    def _rule_warnings(self) -> list[str]:
        rules = self._metadata.get("rules")
        if not rules or self._options.rules is not None:
            return []
        return [
            f"the graph was collected with {len(rules)} rules for what ghosts send, and none are given here"
        ]

    def _launch(self, cluster_text: str, routing: str) -> tuple[dict[str, Any], float, float]:
        options, metadata = self._options, self._metadata
        self._progress("importing the program's modules")
        with Launcher(
            command=options.command,
            folder=(options.working_directory or Path.cwd()).resolve(),
            world_size=self._graph.world_size,
            gpus_per_node=parse_cluster(cluster_text, "the graph's cluster profile").gpus_per_node,
            device=str(metadata["device"]).removeprefix("virtual:"),
            cluster_text=cluster_text,
            measure_host=metadata["host"] == "measured",
            iterations=int(metadata["iterations"]),
            preload=options.preload,
            environment=options.environment,
            rank_timeout_s=float("inf"),
            routing=routing,
            rules=options.rules,
        ) as launcher:
            if self._wanted is not None:
                self._obtain(launcher, *self._wanted)
                launcher.give(self._given)
            return self._run_ranks(launcher)

    def _obtain(self, launcher: Launcher, rank: int, need: ObjectNeed, *pending: str) -> None:
        """What ``rank`` needs, of the ghost that gives it, which runs alone as in a collection: what it
        gives is no op of the graph. ``pending``: what is being obtained already."""
        while need.key not in self._given:
            self._progress(f"running rank {need.root}, which gives an object to rank {rank}")
            launcher.start(need.root)
            end = launcher.next_end()
            self._given |= end.values
            launcher.give(self._given)
            if need.key in self._given:
                return
            try:
                self._check(end)
            except _AbsentGiverError as absent:
                if absent.need.key not in pending:
                    self._obtain(launcher, end.rank, absent.need, need.key, *pending)
                    continue
            raise EmulateError(f"{need.told(rank)}, which that rank does not give when it runs alone")

    def _run_ranks(self, launcher: Launcher) -> tuple[dict[str, Any], float, float]:
        """What the engine found, when it began, and how long it took."""
        ports = _core.PortMemory.create(len(self._ranks))
        exchange = _core.ExchangeMemory.create(self._ranks)
        self._progress("running the sandbox ranks")
        for number, rank in enumerate(self._ranks):
            launcher.start(rank, port=(ports.fd, exchange.fd, number))
        began = time.perf_counter()
        try:
            raw: dict[str, Any] = _core.emulate(
                self._graph.core,
                threads=1,
                perturbation=self._options.perturbation.to_core(),
                cluster=None,
                device=None,
                wiring=wiring_of(self._graph),
                eager_bytes=recorded_eager_bytes(self._graph),
                ports=ports,
                ranks=self._ranks,
                follow=self._options.on_divergence == "follow",
                idle=lambda rank, ns: self._look_after(launcher, exchange, rank, ns),
            )
        except (DeadlockError, DivergenceError, MismatchError) as error:
            ports.close()  # no rank waits for the engine any more
            exchange.close()
            place = (error.rank, error.op) if isinstance(error, DivergenceError) else None
            error.args = (f"{error}{self._last_words(launcher, place)}",)
            raise
        took = time.perf_counter() - began
        failure = result_of(raw, self._graph, wall_time_s=took).failure
        if failure is not None and failure.stopped:
            stopped = StoppedError("; ".join(failure.lines()))
            stopped.report = failure
            raise stopped
        self._failed = set() if failure is None else set(failure.failed)
        exchange.close()  # every program is over: nobody needs what has not come
        self._progress("gathering what the sandbox ranks recorded")
        while set(self._ranks).difference(self._ends, self._failed):
            self._take(launcher.next_end())
        return raw, began, took

    def _look_after(
        self, launcher: Launcher, exchange: _core.ExchangeMemory, rank: int, silent_ns: int
    ) -> None:
        """Called by the engine some times a second: it has waited longest, for so long, for `rank` to do
        more than ask whether work is done."""
        interrupts.check()
        for end in launcher.ends():
            self._take(end)
        if silent_ns > self._options.silence_s * 1e9:
            rank = self._kept_by(exchange, rank)
            raise EmulateError(
                f"rank {rank} has launched nothing for {self._options.silence_s:g} s; expected ops of its "
                "program: look for a sleep, an endless loop or input that never comes, or allow more "
                "(--silence)"
            )

    def _kept_by(self, exchange: _core.ExchangeMemory, rank: int) -> int:
        """Whose bytes a rank waits for, directly or not; itself where it waits for nobody's."""
        for _ in self._ranks:
            kept_by = exchange.waits_for(self._ranks.index(rank))
            if kept_by is None:
                break
            rank = self._ranks[kept_by]
        return rank

    def _last_words(self, launcher: Launcher, place: tuple[int, int] | None) -> str:
        """What a rank that failed has to say: it may have left its program because of that. Else, of the
        rank and op of ``place``, where the program goes on."""
        until = time.perf_counter() + _LAST_WORDS_S
        try:
            while time.perf_counter() < until and launcher.running:
                interrupts.check()
                for end in launcher.ends():
                    self._take(end)
                time.sleep(0.02)
            if place is None:
                return ""
            for end in launcher.stop_all():
                self._take(end)
        except PrismError as failure:
            return f"; then {failure}"
        rank, op = place
        if rank not in self._ends:
            return ""
        site = next_call_site(Graph.from_bytes(self._ends[rank].graph), rank, op)
        return f"; the rank itself communicates next at {site}" if site else ""

    def _take(self, end: RankEnd) -> None:
        self._check(end)
        self._ends[end.rank] = end

    def _check(self, end: RankEnd) -> None:
        need = (end.summary or {}).get("need")
        if need is not None:
            raise _AbsentGiverError(end.rank, ObjectNeed(**need))
        failure: PrismError | None = failure_of(
            end, world_size=self._graph.world_size, timeout_s=float("inf")
        )
        if failure is not None:
            raise failure

    def _sandbox_result(self, rank: int, raw: dict[str, Any]) -> SandboxResult:
        peaks = Graph.from_bytes(self._ends[rank].graph).rank(rank).peaks
        at = raw["ranks"].tolist().index(rank)
        iterations: int = raw["iterations"]
        ends = raw["iteration_end_ns"].reshape(-1, iterations)[at].tolist()
        return SandboxResult(
            iteration_time_ns=[end - begin for begin, end in zip([0, *ends], ends, strict=False)],
            peak_allocated_bytes=peaks.allocated_bytes,
            peak_reserved_bytes=peaks.reserved_bytes,
        )
