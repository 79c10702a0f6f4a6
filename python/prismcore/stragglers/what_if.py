"""A graph whose ops are timed anew: what it would take if only these ops were as slow as measured.

Ops are told apart by class: kernels of one name and shape; communication on communicators of one name,
with one size. The ideal duration of a class is, over all ranks and iterations, the mean for kernels and
the median for communication (StragglerAnalysis, OSDI 2025, section 3: transfers have a long tail that is
no property of a worker).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore.errors import GraphError
from prismcore.graph import BINDING_DTYPE, DataType, Graph, GraphBuilder, OpArray, OpFlag, OpKind
from prismcore.replay import ReplayResult, replay

__all__ = ["WhatIf"]

_Bools = npt.NDArray[np.bool_]
_HOST = (OpKind.HOST_GAP, OpKind.HOST_CALLBACK)


@dataclass(kw_only=True, slots=True)
class _Program:
    """One rank: its ops and for each its class, -1 for none, and whether it stays in the replays."""

    rank: int
    ops: OpArray
    bindings: npt.NDArray[np.void]
    classes: npt.NDArray[np.int64]
    stays: _Bools


class WhatIf:
    """Replays of a graph with other durations, all through the one engine.

    In these replays no host delays the device: gaps, host callbacks, the host time of ops and meetings that
    an import found unrecorded are left out, so that slowdowns are those of what devices and links do.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._classes: dict[tuple[str, str, int], int] = {}
        self._programs = [self._program(int(rank)) for rank in graph.ranks]
        if not self._programs:
            raise GraphError("a graph without ranks found, expected at least one to compare")
        self._ideal = self._ideals()
        self._names = [name for _, name, _ in self._classes]

    @property
    def operations(self) -> list[str]:
        """Names of kernels and communicators, each once, in order of first use."""
        return list(dict.fromkeys(self._names))

    def excess_ns(self) -> dict[str, int]:
        """By name of an operation: what its ops took beyond the ideal, all ranks and iterations together."""
        by_class = np.zeros(len(self._names) + 1, dtype=np.int64)
        ideal = np.append(self._ideal, 0)
        for program in self._programs:
            more = np.maximum(program.ops["duration_ns"] - ideal[program.classes], 0)
            np.add.at(by_class, program.classes, more)
        found = dict.fromkeys(self._names, 0)
        for name, more_ns in zip(self._names, by_class.tolist(), strict=False):
            found[name] += more_ns
        return found

    def measured(self) -> ReplayResult:
        """Durations as they are."""
        return self._replay([np.ones(len(p.ops), dtype=bool) for p in self._programs])

    def ideal(self) -> ReplayResult:
        """Every op takes the ideal duration of its class."""
        return self._replay([np.zeros(len(p.ops), dtype=bool) for p in self._programs])

    def only_operation(self, name: str) -> ReplayResult:
        """Only the ops of this name take as long as they did."""
        of = np.array([n == name for n in self._names] + [False])
        return self._replay([of[p.classes] for p in self._programs])

    def only_ranks(self, ranks: set[int]) -> ReplayResult:
        """Only the ops of these ranks take as long as they did."""
        return self._replay([np.full(len(p.ops), p.rank in ranks) for p in self._programs])

    def without_ranks(self, ranks: set[int]) -> ReplayResult:
        """The ops of these ranks take the ideal duration, all others as long as they did."""
        return self._replay([np.full(len(p.ops), p.rank not in ranks) for p in self._programs])

    def _replay(self, kept: list[_Bools]) -> ReplayResult:
        builder = GraphBuilder(self._graph.world_size)
        for i in range(self._graph.core.num_strings):
            builder.string(self._graph.string(i))
        for i in range(self._graph.num_kernels):
            builder.kernel(self._graph.kernel(i))
        for i in range(self._graph.num_communicators):
            communicator = self._graph.communicator(i)
            builder.communicator(communicator.name, communicator.members)
        for program, keeps in zip(self._programs, kept, strict=True):
            builder.set_rank(program.rank, self._timed(program, keeps), program.bindings)
        return replay(builder.finish(self._graph.metadata))

    def _timed(self, program: _Program, keeps: _Bools) -> OpArray:
        """The ops of a rank with the durations of the scenario.

        Members of one collective or message may differ in what they keep, and each ends by its own
        duration: so a transfer takes the shorter of the two it can have, and what a rank has more follows
        on its streams alone.
        """
        ops = program.ops.copy()
        known = program.classes >= 0
        ideal = np.where(known, np.append(self._ideal, 0)[program.classes], ops["duration_ns"])
        own = np.where(keeps, ops["duration_ns"], ideal)
        talks = ops["kind"] >= OpKind.ALL_REDUCE
        ops["duration_ns"] = np.where(talks, np.minimum(ops["duration_ns"], ideal), own)
        ops["host_ns"] = 0
        # Parts of a launch end together: with the one that takes longest, on all of their streams.
        closes = (ops["flags"] & OpFlag.GROUP_CONTINUES) == 0
        launch = np.cumsum(np.append(0, closes[:-1]))
        first = np.flatnonzero(np.diff(launch, prepend=-1))
        longer = np.maximum.reduceat(own, first) - np.maximum.reduceat(ops["duration_ns"], first)
        more = np.flatnonzero(longer[launch] > 0)
        tails = np.zeros(len(more), dtype=ops.dtype)
        tails["kind"], tails["dtype"] = OpKind.HOST_CALLBACK, DataType.NONE
        tails["stream"], tails["duration_ns"] = ops["stream"][more], longer[launch[more]]
        kept = np.cumsum(np.append(0, program.stays))
        behind = np.append(first[1:], len(ops))[launch[more]]
        return np.insert(ops[program.stays], kept[behind], tails)

    def _program(self, rank: int) -> _Program:
        ops = self._graph.ops(rank)
        bindings = self._graph.rank(rank).bindings
        classes = np.full(len(ops), -1, dtype=np.int64)
        unrecorded = self._graph.metadata.get("unrecorded_meetings", ())
        slots = [
            i
            for i, c in enumerate(bindings["communicator"].tolist())
            if self._graph.communicator(c).name in unrecorded
        ]
        stays = ~np.isin(ops["kind"], _HOST)
        stays &= (ops["kind"] < OpKind.ALL_REDUCE) | ~np.isin(ops["ref"], slots)
        kind = ops["kind"]
        refs, which_ref = np.unique(ops["ref"][kind == OpKind.KERNEL], return_inverse=True)
        by_ref = [self._class("kernel", self._graph.kernel(ref).name, ref) for ref in refs.tolist()]
        classes[kind == OpKind.KERNEL] = np.array(by_ref, dtype=np.int64)[which_ref]
        talks = (kind >= OpKind.ALL_REDUCE) & (ops["duration_ns"] > 0)
        for slot in np.unique(ops["ref"][talks]).tolist():
            name = self._graph.communicator(int(bindings["communicator"][slot])).name
            on = talks & (ops["ref"] == slot)
            # Both sides of a message are one class, collectives of each kind another.
            sort = np.where(kind >= OpKind.SEND, int(OpKind.SEND), kind)
            for which in np.unique(sort[on]).tolist():
                for size in np.unique(ops["bytes"][on & (sort == which)]).tolist():
                    chosen = on & (sort == which) & (ops["bytes"] == size)
                    classes[chosen] = self._class(OpKind(which).name, name, size)
        return _Program(
            rank=rank, ops=ops, bindings=bindings.view(BINDING_DTYPE), classes=classes, stays=stays
        )

    def _class(self, sort: str, name: str, size: int) -> int:
        return self._classes.setdefault((sort, name, size), len(self._classes))

    def _ideals(self) -> npt.NDArray[np.int64]:
        classes = np.concatenate([p.classes for p in self._programs])
        durations = np.concatenate([p.ops["duration_ns"] for p in self._programs])
        ideals = np.zeros(len(self._classes), dtype=np.int64)
        durations = durations[np.argsort(classes, kind="stable")]
        ends = np.cumsum(np.bincount(classes + 1, minlength=len(ideals) + 1))  # class -1 first
        for i, (sort, _, _) in enumerate(self._classes):
            of = durations[ends[i] : ends[i + 1]]
            ideals[i] = round(float(of.mean() if sort == "kernel" else np.median(of)))
        return ideals
