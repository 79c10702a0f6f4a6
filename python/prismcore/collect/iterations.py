"""Finds iterations in a program that marked none: they are what its blocks repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore.graph import Graph, GraphBuilder
from prismcore.graph.op import OP_DTYPE, MarkKind, OpKind

__all__ = ["Repetition", "find_repetition", "mark_iterations"]


@dataclass(slots=True, frozen=True)
class Repetition:
    """``count`` times ``period`` blocks, from block ``start`` on."""

    start: int
    period: int
    count: int

    @property
    def boundaries(self) -> list[int]:
        """Blocks before which an iteration ends; what precedes the first is set-up and, as its
        first blocks differ (buffers are made, state is allocated), the first iteration."""
        first = [self.start] if self.start else []
        return first + [self.start + self.period * (i + 1) for i in range(self.count)]


def find_repetition(blocks: Sequence[int] | npt.NDArray[np.integer]) -> Repetition | None:
    """The period whose repetitions cover most of the program, the shortest of those; None where
    nothing repeats."""
    ids = np.asarray(blocks)
    best: tuple[int, int, int] | None = None  # covered, start, period
    for period in range(1, len(ids) // 2 + 1):
        start, length = _longest_run(ids[period:] == ids[:-period])
        covered = length + period
        if length >= period and (best is None or covered > best[0]):
            best = (covered, start, period)
    if best is None:
        return None
    covered, start, period = best
    return Repetition(start, period, covered // period)


def _longest_run(flags: npt.NDArray[np.bool_]) -> tuple[int, int]:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], flags.astype(np.int8), [0]))))
    starts, ends = edges[::2], edges[1::2]
    if len(starts) == 0:
        return 0, 0
    longest = int(np.argmax(ends - starts))
    return int(starts[longest]), int(ends[longest] - starts[longest])


def mark_iterations(graph: Graph, rank: int) -> Graph:
    """The graph of one rank with marks where iterations end; the graph itself where none is found."""
    view = graph.rank(rank)
    stretches = graph.program_stretches(view.program)
    numbers: dict[bytes, int] = {}
    repetition = find_repetition([numbers.setdefault(s.tobytes(), len(numbers)) for s in stretches])
    if repetition is None:
        return graph
    builder = GraphBuilder(graph.world_size)
    mark = np.zeros(1, dtype=OP_DTYPE)
    mark["kind"], mark["detail"], mark["dtype"] = OpKind.MARK, MarkKind.ITERATION, 255
    boundaries = set(repetition.boundaries)
    pieces = []
    for i, stretch in enumerate(stretches):
        if i in boundaries:
            pieces.append(mark)
        pieces += [graph.block(int(block)) for block in stretch]
    if len(stretches) in boundaries:
        pieces.append(mark)
    ops = np.concatenate(pieces)
    renaming: dict[OpKind, Callable[[int], int]] = {
        OpKind.KERNEL: lambda i: builder.kernel(graph.kernel(i)),
        OpKind.MARK: lambda i: builder.string(graph.string(i)) if i else 0,
    }
    for kind, intern in renaming.items():
        chosen = ops["kind"] == kind
        numbers = {i: intern(i) for i in np.unique(ops["ref"][chosen]).tolist()}
        ops["ref"][chosen] = [numbers[i] for i in ops["ref"][chosen].tolist()]
    bindings = []
    for binding in view.bindings:
        communicator = graph.communicator(int(binding["communicator"]))
        bindings.append(
            (builder.communicator(communicator.name, communicator.members), int(binding["position"]))
        )
    ends = np.cumsum([len(stretch) for stretch in stretches]) - 1
    names = graph.program_call_sites(view.program)
    sites = [builder.string(names[end]) if names[end] else 0 for end in ends.tolist()]
    builder.set_rank(rank, ops, bindings, call_sites=sites, peaks=view.peaks)
    return builder.finish(graph.metadata)
