"""When ops of a rank ran in a replay, by their place in its program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore.graph import Graph, Rank
from prismcore.graph.op import OpArray
from prismcore.replay import Perturbation, ReplayResult, replay
from prismcore.replay.result import Timeline

__all__ = ["RankTimes", "replays"]

HOST_STREAM = 65535
_MOST_OPS = 2_000_000
_Ints = npt.NDArray[np.int64]


@dataclass(kw_only=True, slots=True, frozen=True)
class RankTimes:
    """Arrays of shape [ops of the rank], ns; -1 where an op did nothing there, or not to its end."""

    rank: Rank
    ops: OpArray
    arrive_ns: _Ints  #: when it stood first on its stream: communication then waits for others
    start_ns: _Ints
    end_ns: _Ints
    host_ns: _Ints  #: the host's clock behind the op, of those that take host time
    position: npt.NDArray[np.int64]  #: of its block in the program


def replays(
    graph: Graph, ranks: Sequence[int], *, perturbation: Perturbation | None = None, keep_stuck: bool = False
) -> Iterator[tuple[ReplayResult, list[RankTimes]]]:
    """Replays with the times of `ranks`, several at a time: as many as memory should hold.

    Raises what ``prismcore.replay`` does; with ``keep_stuck`` ranks that cannot go on are in ``failure``.
    """
    for some in _slices(graph, ranks):
        result = replay(graph, timeline_ranks=some, perturbation=perturbation, keep_stuck=keep_stuck)
        timeline = result.timeline
        assert timeline is not None
        yield result, [_times_of(graph, timeline, rank) for rank in some]


def _slices(graph: Graph, ranks: Sequence[int]) -> Iterator[list[int]]:
    some: list[int] = []
    ops = 0
    for rank in ranks:
        more = graph.statistics(rank).ops
        if some and ops + more > _MOST_OPS:
            yield some
            some, ops = [], 0
        some.append(rank)
        ops += more
    if some:
        yield some


def _times_of(graph: Graph, timeline: Timeline, rank: int) -> RankTimes:
    view = graph.rank(rank)
    blocks = graph.program_blocks(view.program)
    offsets = graph.block_offsets.astype(np.int64)
    lengths = np.diff(offsets)[blocks]
    begins = np.concatenate(([0], np.cumsum(lengths)))
    rows = slice(*np.searchsorted(timeline.rank, [rank, rank + 1]).tolist())
    block = timeline.block_position[rows]
    place = begins[block] + timeline.op[rows].astype(np.int64) - offsets[blocks[block]]
    on_host = timeline.stream[rows] == HOST_STREAM
    arrive, start, end, host = (np.full(int(begins[-1]), -1) for _ in range(4))
    device = place[~on_host]
    arrive[device] = timeline.arrive_ns[rows][~on_host]
    start[device] = timeline.start_ns[rows][~on_host]
    end[device] = timeline.end_ns[rows][~on_host]
    np.maximum.at(host, place[on_host], timeline.end_ns[rows][on_host])
    return RankTimes(
        rank=view,
        ops=graph.ops(rank),
        arrive_ns=arrive,
        start_ns=start,
        end_ns=end,
        host_ns=host,
        position=np.repeat(np.arange(len(blocks)), lengths),
    )
