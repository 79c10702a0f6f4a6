"""Emulation of a job: rank processes on one side, the engine with the ghosts on the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prismcore import _core
from prismcore.emulate.descriptors import allow_descriptors
from prismcore.emulate.ghost_objects import GhostObjects
from prismcore.emulate.machines import Machines, share_of
from prismcore.emulate.options import EmulateOptions
from prismcore.emulate.polls import poll_warnings
from prismcore.emulate.remote import OtherMachines
from prismcore.emulate.result import EmulateResult, ReleaseErrors, SandboxResult
from prismcore.emulate.sandbox import AbsentGiverError, Peaks, SandboxRanks, launcher_of
from prismcore.emulate.setting import differences, hints
from prismcore.errors import DeadlockError, DivergenceError, EmulateError, MismatchError, StoppedError
from prismcore.graph import Graph
from prismcore.launch.output import TellOutput
from prismcore.profiles.cluster import parse_cluster
from prismcore.rank_list import format_ranks, named_ranks
from prismcore.replay import ReplayResult
from prismcore.replay.ghosts import ghost_hint
from prismcore.replay.replay import recorded_eager_bytes, replay, result_of, wiring_of
from prismcore.rules import unused_rules
from prismcore.units import format_ns, plural

__all__ = ["emulate"]

ProgressCallback = Callable[[str], None]

_FEW_OVERDUE = 0.01
_LEFT = " leaves its recorded program "
"""In the engine's text where a rank has done that."""


def emulate(
    graph: Graph,
    options: EmulateOptions,
    progress: ProgressCallback | None = None,
    machines: Machines | None = None,
    tell_output: TellOutput | None = None,
) -> EmulateResult:
    """Runs the sandbox ranks of ``options`` for real, all others as ghosts from `graph`.

    On the virtual clock times do not depend on the load of this machine, and a rank that does what it
    recorded takes exactly what the replay says. On the wall clock it takes that or longer.

    ``machines``: this is machine 0 of several; each runs its share of the sandbox ranks
    (:func:`prismcore.emulate.serve` on the others).

    ``tell_output`` gets what the sandbox ranks of this machine write to stdout and stderr, while they run,
    on a thread of its own: whole lines behind ``[rank N] ``. Ranks that write much wait for it; an
    exception that it raises ends the passing on. Without it nothing is passed on.

    Raises:
        EmulateError: the graph or the options do not allow it, or the ranks did nothing for
            ``options.silence_s``, or a machine is gone or has failed.
        CollectError: ranks cannot be started: no such program, a module or a limit of the system in the
            way; or their program has no process group.
        ProfileError: the graph's device is none that is known here.
        RoutingError: ``options.routing`` cannot be.
        RuleError: the file of rules cannot be read.
        DivergenceError: a rank did something else than the graph recorded of it.
        DeadlockError: ranks wait for others that never come.
        StoppedError: ranks wait for others that ``options.perturbation`` made fail.
        MismatchError: ranks meet in a communication op that they disagree about.
        RankFailedError: a rank ended with an error.
        OutOfMemoryError: a rank does not fit into its device's memory.
    """
    machines = machines or Machines(number=0, count=1)
    return _Emulation(graph, options, progress or (lambda _: None), tell_output).run(machines)


@dataclass(kw_only=True, slots=True)
class _Run:
    """What came of the engine and the ranks."""

    raw: dict[str, Any]
    job: ReplayResult
    peaks: Mapping[int, Peaks | None]  #: by rank that ran to its end; None: it left no record
    began_s: float  #: of the engine
    routed: bool | None  #: whether a dispatcher of the ranks here took routing; None: not known
    rules: Mapping[str, int]  #: calls of ranks here that each rule has had


class _Emulation:
    def __init__(
        self,
        graph: Graph,
        options: EmulateOptions,
        progress: ProgressCallback,
        tell_output: TellOutput | None,
    ) -> None:
        self._graph = graph
        self._tell_output = tell_output
        self._options = options
        self._progress = progress
        self._started = time.perf_counter()
        self._ranks = sorted(options.sandbox)
        absent = set(self._ranks).difference(graph.ranks.tolist())
        if absent:
            raise EmulateError(
                f"sandbox {named_ranks(absent)} found, expected ranks of the graph: "
                f"{format_ranks(graph.ranks.tolist()) or 'none'}"
            )
        self._differences = differences(graph, options)
        self._metadata = graph.metadata
        for key, kind in (("device", str), ("cluster", str), ("iterations", int), ("host", str)):
            if not isinstance(self._metadata.get(key), kind):
                raise EmulateError(
                    f"the graph does not say with which {key} it was collected; expected a graph of "
                    "prism collect"
                )

    def run(self, machines: Machines) -> EmulateResult:
        self._progress("replaying the graph")
        self._expected = replay(self._graph, perturbation=self._options.perturbation)
        ghost_objects = GhostObjects(self._graph.world_size, self._progress)
        while True:
            try:
                return self._result(self._launch(machines, ghost_objects))
            except AbsentGiverError as absent:
                if machines.count > 1:
                    raise
                ghost_objects.want(absent)

    def _result(self, run: _Run) -> EmulateResult:
        raw, job = run.raw, run.job
        cluster = parse_cluster(str(self._metadata["cluster"]), "the graph's cluster profile").to_core()
        partners, messages = _core.materialised(self._graph.core, self._ranks, cluster)
        expected = self._expected
        return EmulateResult(
            sandbox={rank: self._sandbox_result(rank, raw, peaks) for rank, peaks in run.peaks.items()},
            job=job,
            replay_median_iteration_time_ns=(
                expected.median_iteration_time_ns if len(expected.iteration_time_ns) else None
            ),
            ghosts=len(self._graph.ranks) - len(self._ranks),
            materialised_ghosts=len(partners),
            messages=messages,
            posts=raw["posts"],
            release_errors=self._release_errors(raw),
            diverged=bool(raw["diverged"]),
            bootstrap_s=run.began_s - self._started + raw["first_post_ns"] * 1e-9,
            wall_time_s=time.perf_counter() - self._started,
            warnings=[
                *self._differences,
                *self._routing_warnings(run),
                *self._rule_warnings(run),
                *job.warnings,
                *poll_warnings(
                    raw["odd_polls"],
                    job.iteration_time_ns,
                    expected.iteration_time_ns,
                    alone=self._options.clock == "virtual" and not raw["diverged"],
                ),
                *self._clock_warnings(raw),
            ],
        )

    def _clock_warnings(self, raw: dict[str, Any]) -> list[str]:
        errors = self._release_errors(raw)
        if errors is None or errors.overdue <= _FEW_OVERDUE * (errors.paced + errors.overdue):
            return []
        late_ns, rank = max(zip(raw["late_ns"], self._ranks, strict=True))
        return [
            f"{errors.overdue:,} of {plural(errors.paced + errors.overdue, 'answer')} were known only after "
            f"their time, and rank {rank} was {format_ns(late_ns)} behind its host clock: times are those of "
            "this machine more than of the job; give each sandbox rank a core and the engine another, or "
            "take the virtual clock"
        ]

    def _launch(self, machines: Machines, ghost_objects: GhostObjects) -> _Run:
        self._progress("importing the program's modules")
        allow_descriptors(2 * len(self._ranks))
        with launcher_of(self._graph, self._options, self._tell_output) as launcher:
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
            others = OtherMachines(machines, self._ranks, ports, self._options.silence_s)
            try:
                return self._run_ranks(ports, here, others)
            except BaseException as failure:
                others.stop(failure)
                raise

    def _run_ranks(self, ports: _core.PortMemory, here: SandboxRanks, others: OtherMachines) -> _Run:
        self._progress("running the sandbox ranks")
        here.start()

        def look_after(rank: int, silent_ns: int) -> bool:
            """The engine has waited longest, for so long, for `rank` to do more than ask whether work is
            done. False: for too long."""
            here.look_after()
            others.look_after()
            return here.is_patient(rank, silent_ns, others.leaving, others.pauses_of(rank))

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
            place, told = None, str(error)
            if isinstance(error, DivergenceError):
                place = (error.rank, error.op)
                told += hints(self._differences, self._options)
            elif isinstance(error, MismatchError) and _LEFT not in told:
                told += ghost_hint(self._graph, error)
            error.args = (f"{told}{here.last_words(place) or others.last_words(place)}",)
            raise
        job = result_of(raw, self._graph, wall_time_s=time.perf_counter() - began)
        run = _Run(raw=raw, job=job, peaks=dict.fromkeys(self._ranks), began_s=began, routed=None, rules={})
        failure = job.failure
        if failure is not None and failure.stopped:
            stopped = StoppedError("; ".join(failure.lines()))
            stopped.report, stopped.result = failure, self._result(run)
            raise stopped
        failed = set() if failure is None else set(failure.failed)  # wait for the engine for ever
        self._progress("gathering what the sandbox ranks recorded")
        here.give_up(failed)
        ports.close()  # what a rank that was made to fail still posts is nobody's
        others.end(failed)
        peaks = dict(here.gathering(others.look_after))
        run.peaks = dict(sorted((peaks | others.gather()).items()))
        run.routed = here.routed
        run.rules = here.rules
        return run

    def _routing_warnings(self, run: _Run) -> list[str]:
        if self._options.routing is None or run.routed is not False:
            return []
        return ["no dispatcher that --routing knows was seen on the ranks that ran: it steers nothing"]

    def _rule_warnings(self, run: _Run) -> list[str]:
        """Of rules that had no call here, nor in the collection, where all of their senders were ghosts."""
        recorded = self._graph.metadata.get("rules", {})
        uses = [(name, calls) for name, calls in run.rules.items() if not recorded.get(name)]
        return unused_rules(uses, "the sandbox ranks here")

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

    def _sandbox_result(self, rank: int, raw: dict[str, Any], peaks: Peaks | None) -> SandboxResult:
        at = raw["ranks"].tolist().index(rank)
        iterations: int = raw["iterations"]
        ends = raw["iteration_end_ns"].reshape(len(raw["ranks"]), iterations)[at].tolist()
        return SandboxResult(
            iteration_time_ns=[end - begin for begin, end in zip([0, *ends], ends, strict=False)],
            peak_allocated_bytes=None if peaks is None else peaks[0],
            peak_reserved_bytes=None if peaks is None else peaks[1],
            late_ns=raw["late_ns"][self._ranks.index(rank)] if raw["late_ns"] else None,
        )
