"""Emulation of a job: rank processes on one side, the engine with the ghosts on the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from prismcore import _core
from prismcore.emulate.descriptors import allow_descriptors
from prismcore.emulate.ghost_objects import GhostObjects
from prismcore.emulate.machines import Machines, share_of
from prismcore.emulate.options import EmulateOptions
from prismcore.emulate.remote import OtherMachines
from prismcore.emulate.result import EmulateResult, ReleaseErrors, SandboxResult
from prismcore.emulate.sandbox import AbsentGiverError, Peaks, SandboxRanks, launcher_of
from prismcore.errors import DeadlockError, DivergenceError, EmulateError, MismatchError, StoppedError
from prismcore.graph import Graph
from prismcore.profiles.cluster import parse_cluster
from prismcore.rank_list import format_ranks
from prismcore.replay.replay import recorded_eager_bytes, replay, result_of, wiring_of

__all__ = ["emulate"]

ProgressCallback = Callable[[str], None]


def emulate(
    graph: Graph,
    options: EmulateOptions,
    progress: ProgressCallback | None = None,
    machines: Machines | None = None,
) -> EmulateResult:
    """Runs the sandbox ranks of ``options`` for real, all others as ghosts from `graph`.

    On the virtual clock times do not depend on the load of this machine, and a rank that does what it
    recorded takes exactly what the replay says. On the wall clock it takes that or longer.

    ``machines``: this is machine 0 of several; each runs its share of the sandbox ranks
    (:func:`prismcore.emulate.serve` on the others).

    Raises:
        EmulateError: the graph or the options do not allow it, or the ranks did nothing for
            ``options.silence_s``, or a machine is gone.
        DivergenceError: a rank did something else than the graph recorded of it.
        DeadlockError: ranks wait for others that never come.
        StoppedError: ranks wait for others that ``options.perturbation`` made fail.
        MismatchError: ranks meet in a communication op that they disagree about.
        RankFailedError: a rank ended with an error.
        OutOfMemoryError: a rank does not fit into its device's memory.
    """
    machines = machines or Machines(number=0, count=1)
    return _Emulation(graph, options, progress or (lambda _: None)).run(machines)


class _Emulation:
    def __init__(self, graph: Graph, options: EmulateOptions, progress: ProgressCallback) -> None:
        self._graph = graph
        self._options = options
        self._progress = progress
        self._started = time.perf_counter()
        self._ranks = sorted(options.sandbox)
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

    def run(self, machines: Machines) -> EmulateResult:
        self._progress("replaying the graph")
        expected = replay(self._graph, perturbation=self._options.perturbation)
        ghost_objects = GhostObjects(self._graph.world_size, self._progress)
        while True:
            try:
                raw, peaks, began, engine_s = self._launch(machines, ghost_objects)
                break
            except AbsentGiverError as absent:
                if machines.count > 1:
                    raise
                ghost_objects.want(absent)
        sandbox = {rank: self._sandbox_result(rank, raw, found) for rank, found in sorted(peaks.items())}
        job = result_of(raw, self._graph, wall_time_s=engine_s)
        cluster = parse_cluster(str(self._metadata["cluster"]), "the graph's cluster profile").to_core()
        partners, messages = _core.materialised(self._graph.core, self._ranks, cluster)
        return EmulateResult(
            sandbox=sandbox,
            job=job,
            replay_median_iteration_time_ns=expected.median_iteration_time_ns,
            ghosts=len(self._graph.ranks) - len(self._ranks),
            materialised_ghosts=len(partners),
            messages=messages,
            posts=raw["posts"],
            release_errors=self._release_errors(raw),
            diverged=bool(raw["diverged"]),
            bootstrap_s=began - self._started + raw["first_post_ns"] * 1e-9,
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

    def _launch(
        self, machines: Machines, ghost_objects: GhostObjects
    ) -> tuple[dict[str, Any], dict[int, Peaks], float, float]:
        """What the engine found, the peaks of the sandbox ranks, when the engine began, and how long it
        took."""
        self._progress("importing the program's modules")
        allow_descriptors(2 * len(self._ranks))
        with launcher_of(self._graph, self._options) as launcher:
            ghost_objects.obtain(launcher, self._options.silence_s)
            ports = _core.PortMemory.create(len(self._ranks), timed=self._options.clock == "wall")
            here = SandboxRanks(
                launcher,
                share_of(self._ranks, 0, machines.count),
                ports,
                world_size=self._graph.world_size,
                silence_s=self._options.silence_s,
                has_rules=self._options.rules is not None,
            )
            others = OtherMachines(machines, self._ranks, ports)
            try:
                return self._run_ranks(ports, here, others)
            except BaseException as failure:
                others.stop(failure)
                raise

    def _run_ranks(
        self, ports: _core.PortMemory, here: SandboxRanks, others: OtherMachines
    ) -> tuple[dict[str, Any], dict[int, Peaks], float, float]:
        self._progress("running the sandbox ranks")
        here.start()

        def look_after(rank: int, silent_ns: int) -> None:
            """The engine has waited longest, for so long, for `rank` to do more than ask whether work is
            done."""
            here.look_after()
            others.look_after()
            here.check_silence(rank, silent_ns, others.leaving)

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
                machines=others.machines,
                idle=look_after,
            )
        except (DeadlockError, DivergenceError, MismatchError) as error:
            place = (error.rank, error.op) if isinstance(error, DivergenceError) else None
            error.args = (f"{error}{here.last_words(place) or others.last_words(place)}",)
            raise
        took = time.perf_counter() - began
        failure = result_of(raw, self._graph, wall_time_s=took).failure
        if failure is not None and failure.stopped:
            stopped = StoppedError("; ".join(failure.lines()))
            stopped.report = failure
            raise stopped
        failed = set() if failure is None else set(failure.failed)  # wait for the engine for ever
        self._progress("gathering what the sandbox ranks recorded")
        here.give_up(failed)
        ports.close()  # what a rank that was made to fail still posts is nobody's
        others.end(failed)
        return raw, here.gather() | others.gather(), began, took

    def _release_errors(self, raw: dict[str, Any]) -> ReleaseErrors | None:
        if self._options.clock == "virtual":
            return None
        p50_ns, p99_ns, max_ns = raw["release_error_ns"]
        return ReleaseErrors(
            p50_ns=p50_ns,
            p99_ns=p99_ns,
            max_ns=max_ns,
            paced=raw["paced_answers"],
            overdue=raw["overdue_answers"],
        )

    def _sandbox_result(self, rank: int, raw: dict[str, Any], peaks: Peaks) -> SandboxResult:
        at = raw["ranks"].tolist().index(rank)
        iterations: int = raw["iterations"]
        ends = raw["iteration_end_ns"].reshape(len(raw["ranks"]), iterations)[at].tolist()
        return SandboxResult(
            iteration_time_ns=[end - begin for begin, end in zip([0, *ends], ends, strict=False)],
            peak_allocated_bytes=peaks[0],
            peak_reserved_bytes=peaks[1],
            late_ns=raw["late_ns"][self._ranks.index(rank)] if raw["late_ns"] else None,
        )
