"""Collection of a job, from its command to its graph."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import prismcore
from prismcore import interrupts
from prismcore.collect.classes import ClassFinder
from prismcore.collect.iterations import mark_iterations
from prismcore.collect.likeness import Record
from prismcore.collect.needs import next_to_run
from prismcore.collect.options import (
    CollectInterrupted,
    CollectOptions,
    CollectProgress,
    CollectResult,
    ProgressCallback,
    parse_ranks,
)
from prismcore.collect.records import (
    Comparer,
    Slots,
    iteration_time_ns,
    messaging_kinds,
    most_common_peaks,
    sizes_of,
    slots_of,
)
from prismcore.collect.roles import Roles
from prismcore.errors import CollectError, PrismError, RuleError
from prismcore.graph import Graph, GraphBuilder, MemoryPeaks, RankOrigin
from prismcore.launch.cudnn import SWITCHED_OFF
from prismcore.launch.failures import failure_of
from prismcore.launch.launcher import Launcher, RankEnd
from prismcore.launch.need import ObjectNeed
from prismcore.launch.protocol import ENDED_BY_STOP, ENDED_IN_NEED, Values
from prismcore.profiles.cluster import cluster_text, default_cluster_for, parse_cluster
from prismcore.profiles.device import load_device
from prismcore.rules import digest_of_rules, unused_rules

__all__ = ["collect"]

WARM_UP_ITERATIONS = 1
_CUT_SHORT = (ENDED_BY_STOP, ENDED_IN_NEED)


def collect(options: CollectOptions, progress: ProgressCallback | None = None) -> CollectResult:
    """Runs ranks of ``options.command`` on the virtual GPU and maps every rank of the world.

    Raises :class:`RankFailedError` (a rank ended with an error), :class:`OutOfMemoryError` (a rank
    does not fit), :class:`ProfileError` (unknown device or cluster), :class:`CollectError` (the job
    cannot be collected as asked). An error carries ``partial``, the graph of the ranks so far,
    where ``options.keep_partial`` asks for it and there is one; Ctrl-C then raises
    :class:`CollectInterrupted`, which carries it too.
    """
    with interrupts.held():
        return _Collection(options, progress or (lambda _: None)).run()


class _Collection:
    def __init__(self, options: CollectOptions, progress: ProgressCallback) -> None:
        self._options = options
        self._progress = progress
        self._started = time.perf_counter()
        self._device = options.device.removeprefix("virtual:")
        load_device(self._device)
        cluster = options.cluster or default_cluster_for(options.device)
        self._cluster_text = cluster_text(cluster)
        self._gpus_per_node = parse_cluster(self._cluster_text, str(cluster)).gpus_per_node
        world = options.world_size
        if world > self._gpus_per_node and world % self._gpus_per_node:
            raise CollectError(
                f"world size {world}: not a multiple of the {self._gpus_per_node} GPUs of a node "
                f"({cluster}); expected whole nodes"
            )
        self._builder = GraphBuilder(world)
        self._comparer = Comparer(ignore_host=options.host == "measured")
        self._roles: Roles | None = None
        self._slots: dict[int, Slots] = {}
        self._records: dict[int, Record] = {}
        self._peaks: dict[int, MemoryPeaks] = {}
        self._alone: dict[int, int] = {}
        self._cut_short = 0
        self._values: Values = {}
        self._values_given = 0
        self._tries: Counter[int] = Counter()
        self._allowed: Collection[int] = range(world)
        self._inferred = 0
        self._checksum: int | None = None
        self._reports: list[dict[str, Any]] = []
        self._notes: list[str] = []
        self._planned = 0
        self._checked = 0
        self._messaging: frozenset[int] = frozenset()
        self._routing: str | None = None
        self._rules: Counter[str] = Counter()
        self._rules_file = _file_of_rules(options)
        self._skewed_group: str | None = None
        self._communicators: dict[tuple[int, int, str], int] = {}

    def run(self) -> CollectResult:
        try:
            classes = self._run_job()
            self._tell("merge", "")
            self._infer(classes)
        except KeyboardInterrupt:
            if not self._options.keep_partial:
                raise
            interrupted = CollectInterrupted()
            if self._records or self._cut_short:
                interrupted.partial = self._finish(partial=True)
            raise interrupted from None
        graph = self._finish()
        self._tell("done", "")
        metadata = graph.metadata
        return CollectResult(
            graph=graph,
            metadata=metadata,
            ranks_run=len(self._records),
            ranks_checked=metadata["ranks_checked"],
            ranks_inferred=self._inferred,
            wall_time_s=time.perf_counter() - self._started,
        )

    # Running.

    def _run_job(self) -> list[tuple[list[int], list[int], int]]:
        options = self._options
        self._tell("start", "importing the program's modules")
        with Launcher(
            command=options.command,
            folder=(options.working_directory or Path.cwd()).resolve(),
            world_size=options.world_size,
            gpus_per_node=self._gpus_per_node,
            device=self._device,
            cluster_text=self._cluster_text,
            measure_host=options.host == "measured",
            iterations=options.iterations,
            routing=options.routing or "balanced",
            rules=options.rules,
            preload=options.preload,
            environment=options.environment,
            rank_timeout_s=options.rank_timeout_s,
        ) as launcher:
            try:
                return self._run_ranks(launcher)
            except PrismError as error:
                if options.keep_partial and self._records and error.partial is None:
                    error.partial = self._finish(partial=True)
                raise
            except KeyboardInterrupt:
                if options.keep_partial:
                    self._stop(launcher)
                raise

    def _stop(self, launcher: Launcher) -> None:
        """Keeps what the running ranks have recorded. What is wrong with one of them no longer matters,
        and another interrupt ends the waiting."""
        with contextlib.suppress(KeyboardInterrupt, PrismError):
            for end in launcher.stop_all():
                if end.exit_code != 0 or end.summary is None or end.summary["end"] in _CUT_SHORT:
                    self._keep_cut_short(end)
                    continue
                with contextlib.suppress(PrismError):
                    self._take(end, RankOrigin.RAN)

    def _keep_cut_short(self, end: RankEnd) -> None:
        if end.graph:
            self._builder.merge(Graph.from_bytes(end.graph), RankOrigin.RAN)
            self._cut_short += 1

    def _run_ranks(self, launcher: Launcher) -> list[tuple[list[int], list[int], int]]:
        """Runs what must run; the classes found (none where every wanted rank ran)."""
        options = self._options
        if options.ranks != "auto":
            world = options.world_size
            ranks = list(range(world)) if options.ranks == "all" else parse_ranks(options.ranks, world)
            self._allowed = frozenset(ranks)
            # The first alone: what it gives to others they need not come back for.
            self._run_all(launcher, ranks[:1], "ranks", RankOrigin.RAN)
            self._run_all(launcher, ranks[1:], "ranks", RankOrigin.RAN)
            return []
        self._run_all(launcher, [0], "classes", RankOrigin.RAN)
        finder = self._new_finder()
        skewed_group = self._skewed_group
        while wanted := finder.next_ranks():
            confirming = finder.confirming
            new = [rank for rank in wanted if rank not in confirming]
            self._run_all(launcher, new, "classes", RankOrigin.RAN)
            self._run_all(launcher, [r for r in wanted if r in confirming], "confirm", RankOrigin.CHECKED)
            self._checked += sum(rank in confirming for rank in wanted)
            for rank in wanted:
                finder.add(rank, self._records[rank])
            if self._skewed_group != skewed_group:
                skewed_group = self._skewed_group
                finder = self._new_finder()
        return finder.classes()

    def _new_finder(self) -> ClassFinder:
        """Knows the ranks that ran. Where routing is skewed, only ranks at one position of the groups
        that exchange tokens may be alike: the rule gives these equal counts, and no others."""
        roles = self._known_roles()
        surroundings: list[Hashable] = list(roles.surroundings(self._messaging))
        if self._skewed_group is not None:
            sources = roles.positions_in(self._skewed_group)
            surroundings = list(zip(surroundings, sources, strict=True))
        finder = ClassFinder(roles, surroundings, seed=self._options.seed)
        for rank, record in self._records.items():
            finder.add(rank, record)
        return finder

    def _run_all(self, launcher: Launcher, ranks: Iterable[int], phase: Any, origin: RankOrigin) -> None:
        ranks = list(ranks)
        wanted = {rank for rank in ranks if rank not in self._records}
        waiting = [rank for rank in ranks if rank in wanted][::-1]
        self._planned += len(waiting)
        needs: dict[int, ObjectNeed] = {}
        self._tell(phase, "")
        while True:
            while waiting or launcher.running:
                while waiting and len(launcher.running) < self._options.num_slots:
                    self._start(launcher, waiting.pop())
                end = launcher.next_end()
                self._values |= end.values
                if end.exit_code == 0 and end.summary is not None and end.summary["need"] is not None:
                    needs[end.rank] = ObjectNeed(**end.summary["need"])
                    continue
                needs.pop(end.rank, None)
                self._take(end, origin if end.rank in wanted else RankOrigin.RAN)
                self._tell(phase, "")
            if not needs:
                return
            waiting = next_to_run(
                needs, given=self._values, ran=self._records, allowed=self._allowed, tries=self._tries
            )[::-1]
            self._planned += sum(rank not in needs for rank in waiting)

    def _start(self, launcher: Launcher, rank: int) -> None:
        if len(self._values) != self._values_given:
            launcher.give(self._values)
            self._values_given = len(self._values)
        self._tries[rank] += 1
        launcher.start(rank, want_groups=self._roles is None)

    def _take(self, end: RankEnd, origin: RankOrigin) -> None:
        options = self._options
        failure = failure_of(end, world_size=options.world_size, timeout_s=options.rank_timeout_s)
        if failure is not None:
            if options.keep_partial and end.graph:
                self._keep_cut_short(end)
                failure.partial = self._finish(partial=True)
            raise failure
        summary = end.summary
        assert summary is not None  # failure_of says so
        rank = end.rank
        graph = Graph.from_bytes(end.graph)
        if not summary["iteration_source"]:
            graph = mark_iterations(graph, rank)
            self._note("iterations were found in the repetition of blocks: no optimizer step and no mark")
        if graph.iterations < options.iterations:
            self._note(f"the program ended after {graph.iterations} of {options.iterations} iterations")
        if self._roles is None:
            self._roles = Roles(summary["groups"], options.world_size, self._gpus_per_node)
            self._checksum = summary["groups_checksum"]
        routing = summary["routing"]
        if routing is not None:
            self._routing = routing["rule"]
            if routing["skewed"] and routing["group"] is not None:
                self._skewed_group = self._skewed_group or routing["group"]
        self._rules.update(summary["rules"])
        same_groups = summary["groups_checksum"] == self._checksum
        if not same_groups and options.ranks == "auto":
            raise CollectError(
                f"rank {rank} made other process groups than rank 0; expected every rank to make all groups "
                "in one order (run with --ranks all to map it as it is)"
            )
        self._builder.merge(graph, origin)
        roles: Hashable
        if same_groups:
            slots = slots_of(graph, rank, self._roles)
            if not self._records:
                self._messaging = messaging_kinds(graph, rank, slots)
            roles = self._slots[rank] = slots
        else:
            self._note(f"rank {rank} made other process groups than the first rank that ran")
            roles = sizes_of(graph, rank)
        self._records[rank] = self._comparer.record(
            graph, rank, roles, self._builder.program_of(rank).tolist()
        )
        self._peaks[rank] = graph.rank(rank).peaks
        self._alone[rank] = iteration_time_ns(graph, rank)
        self._reports.append(dict(summary["report"]))

    def _known_roles(self) -> Roles:
        assert self._roles is not None  # a rank ran
        return self._roles

    # Putting together.

    def _infer(self, classes: list[tuple[list[int], list[int], int]]) -> None:
        """Gives the ranks that did not run the program of their class."""
        roles = self._known_roles()
        for ranks, ran, like in classes:
            peaks = most_common_peaks([self._peaks[rank] for rank in ran])
            for rank in ranks:
                interrupts.check()
                if rank in self._records:
                    continue
                bindings = []
                for role in self._slots[like]:
                    name, identity, members = roles.slot_members(rank, role)
                    if identity not in self._communicators:
                        self._communicators[identity] = self._builder.communicator(name, members)
                    position = (
                        list(members).index(rank)
                        if role.offset
                        else int(roles.kinds[role.kind].position_of[rank])
                    )
                    bindings.append((self._communicators[identity], position))
                self._builder.infer(rank, like, bindings, peaks=peaks)
                self._inferred += 1

    def _finish(self, *, partial: bool = False) -> Graph:
        return self._builder.finish(self._metadata(partial=partial))

    def _metadata(self, *, partial: bool) -> dict[str, Any]:
        options = self._options
        unknown: Counter[str] = Counter()
        unimplemented: Counter[str] = Counter()
        for report in self._reports:
            for kernel in report["unknown_kernels"]:
                unknown[kernel["name"]] += kernel["launches"]
            for call in report["unimplemented"]:
                unimplemented[f"{call['library']}: {call['function']}"] += call["calls"]
        return {
            "device": options.device,
            "cluster": self._cluster_text,
            "command": list(options.command),
            "version": prismcore.__version__,
            "iterations": options.iterations,
            "warmup_iterations": WARM_UP_ITERATIONS,
            "host": options.host,
            "routing": self._routing,
            "rules": dict(self._rules),
            "rules_file": self._rules_file,
            "partial": partial,
            "switched_off": [SWITCHED_OFF],
            "ranks_run": len(self._records) + self._cut_short,
            "ranks_cut_short": self._cut_short,
            "ranks_checked": self._checked,
            "ranks_inferred": self._inferred,
            "spread": self._spread(),
            "unknown_kernels": dict(unknown.most_common()),
            "unimplemented": dict(unimplemented.most_common()),
            "notes": [
                *self._notes,
                *self._unused_routing(),
                *unused_rules(self._rules.items(), "the ranks that ran"),
            ],
        }

    def _unused_routing(self) -> list[str]:
        if self._options.routing is None or self._routing is not None or not self._records:
            return []
        return [
            f"no dispatcher that --routing knows was seen: {self._options.routing} steers nothing; a mixture "
            "of experts of one's own takes rules (docs/guide-experts.md)"
        ]

    def _spread(self) -> dict[str, float]:
        """Largest relative difference among ranks that ran and communicate alike, which is what the
        ranks that did not run are taken to be."""
        families: dict[Hashable, list[int]] = defaultdict(list)
        for rank, record in self._records.items():
            families[record.roles, record.communication].append(rank)

        def widest(values: Mapping[int, int]) -> float:
            seen = ([values[rank] for rank in ranks] for ranks in families.values())
            return max(((max(v) - min(v)) / max(min(v), 1) for v in seen), default=0.0)

        allocated = {rank: peaks.allocated_bytes for rank, peaks in self._peaks.items()}
        return {"peak": widest(allocated), "iteration_time": widest(self._alone)}

    def _note(self, text: str) -> None:
        if text not in self._notes:
            self._notes.append(text)

    def _tell(self, phase: Any, message: str) -> None:
        self._progress(
            CollectProgress(phase=phase, done=len(self._records), planned=self._planned, message=message)
        )


def _file_of_rules(options: CollectOptions) -> dict[str, str] | None:
    """Name and digest; None where there is none, or it cannot be read: whoever loads it says so."""
    if options.rules is None:
        return None
    try:
        digest = digest_of_rules(options.rules, options.working_directory)
    except RuleError:
        return None
    return {"name": options.rules.name, "sha256": digest}
