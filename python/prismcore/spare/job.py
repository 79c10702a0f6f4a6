"""What a step of a mapped job costs by depth: ``step(S) = S * shard + once``.

A group that computes S shards runs forward and backward S times, but reduces gradients and updates
parameters once. Both parts are read off a replay: of the rank that the others wait for, `once` is
what its iteration spends in exposed data-parallel communication and in what follows the last
gradient reduction (the optimizer); the rest is one shard.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore import adapters
from prismcore.errors import SpareError
from prismcore.graph import Graph, MarkKind, OpKind
from prismcore.graph.op import OpArray
from prismcore.replay import ReplayResult, replay

__all__ = ["StepCosts", "step_costs"]

#: Ranks looked at: those that wait least, one a class.
CANDIDATES = 8
#: Reductions far smaller than the largest are losses, norms and counts, not gradients.
SMALLEST_SHARE = 1000

_REDUCTIONS = (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER, OpKind.REDUCE)
_COMPUTE = (OpKind.KERNEL, OpKind.COPY, OpKind.SET)
_HOST_STREAM = 65535

_Times = npt.NDArray[np.int64]


@dataclass(kw_only=True, slots=True, frozen=True)
class StepCosts:
    """Of one iteration of a job, in ns; ``shard_ns + once_ns`` is the iteration."""

    iteration_ns: int
    shard_ns: int
    """Forward and backward of the job's own micro-batches, pipeline bubbles and waiting included."""
    once_ns: int
    exposed_ns: int
    """Of ``once_ns``: data-parallel transfers that nothing hides, until the last gradient is reduced."""
    iteration: int
    """Which one, counted from 0: the one of median length."""
    rank: int
    """The rank that the others wait for."""
    trainer: str
    communicators: tuple[str, ...]
    """Descriptions of those that reduce gradients."""
    groups: int
    """Data-parallel replicas that the job has."""


def step_costs(graph: Graph) -> StepCosts:
    """Replays ``graph`` and splits its median iteration into one shard and what a step does once.

    Raises:
        SpareError: the two cannot be told apart: no known data-parallel communicator, no gradient
            reduction, or parameters that are gathered layer by layer.
        DeadlockError, MismatchError: the job cannot be replayed.
    """
    kinds = _known_kinds(graph)
    whole = replay(graph)
    iteration = _median_iteration(whole)
    ranks = _candidates(graph, whole, iteration)
    result = replay(graph, timeline_ranks=ranks)
    end_ns = int(result.iteration_end_ns[:, iteration].max())
    begin_ns = int(result.iteration_end_ns[:, iteration - 1].max()) if iteration else 0
    found = [
        _of_rank(graph, result, kinds, rank=r, iteration=iteration, begin_ns=begin_ns, end_ns=end_ns)
        for r in ranks
    ]
    told = [one for one in found if one is not None]
    if not told:
        raise SpareError(
            f"rank {ranks[0]} reduces no gradients in iteration {iteration}: expected reductions over "
            f"{', '.join(sorted(kinds.descriptions))}, as of two or more data-parallel replicas; give "
            "--layer-s and --allreduce-s instead"
        )
    once_ns, exposed_ns, groups, rank = min(told)
    iteration_ns = end_ns - begin_ns
    if once_ns >= iteration_ns:
        raise SpareError(
            f"iteration {iteration} of rank {rank}: {once_ns} of {iteration_ns} ns are exposed "
            "data-parallel communication and optimizer, expected some computation beside them"
        )
    return StepCosts(
        iteration_ns=iteration_ns,
        shard_ns=iteration_ns - once_ns,
        once_ns=once_ns,
        exposed_ns=exposed_ns,
        iteration=iteration,
        rank=rank,
        trainer=kinds.trainer,
        communicators=tuple(sorted(kinds.descriptions)),
        groups=groups,
    )


def description(name: str) -> str:
    """``DATA_PARALLEL_GROUP:7`` as ``DATA_PARALLEL_GROUP``."""
    head, colon, _ = name.rpartition(":")
    return head if colon else name


def _known_kinds(graph: Graph) -> adapters.DataParallel:
    if len(graph.ranks) == 0:
        raise SpareError("the graph holds no rank, expected a mapped job")
    names = sorted({description(graph.communicator(c).name) for c in range(graph.num_communicators)})
    kinds = adapters.data_parallel(names)
    if kinds is None:
        raise SpareError(
            f"no data-parallel communicator among {', '.join(names) or 'none'}: expected Megatron's, or the "
            "default group alone (torch DDP); give --layer-s and --allreduce-s instead"
        )
    return kinds


def _median_iteration(result: ReplayResult) -> int:
    counted = result.iteration_time_ns[result.first_counted :]
    order = np.argsort(counted, kind="stable")
    return result.first_counted + int(order[(len(order) - 1) // 2])


def _candidates(graph: Graph, result: ReplayResult, iteration: int) -> list[int]:
    """Of each rank class the rank that waits least; of those the ones that wait least."""
    waiting = result.splits[:, iteration, 3]
    chosen: dict[int, int] = {}
    for i in np.argsort(waiting, kind="stable").tolist():
        rank = int(result.ranks[i])
        chosen.setdefault(graph.rank(rank).rank_class, rank)
        if len(chosen) == CANDIDATES:
            break
    return list(chosen.values())


def _of_rank(
    graph: Graph,
    result: ReplayResult,
    kinds: adapters.DataParallel,
    *,
    rank: int,
    iteration: int,
    begin_ns: int,
    end_ns: int,
) -> tuple[int, int, int, int] | None:
    """(once_ns, exposed_ns, groups, rank) of the iteration [begin_ns, end_ns) as `rank` sees it.

    None where it reduces no gradients.
    """
    view, ops = graph.rank(rank), graph.ops(rank)
    slots = [graph.communicator(c) for c in view.bindings["communicator"].tolist()]
    ours = [i for i, c in enumerate(slots) if description(c.name) in kinds.descriptions]
    talks = ops["kind"] >= OpKind.ALL_REDUCE
    parallel = talks & np.isin(ops["ref"], ours)
    gradients = _gradients(ops, parallel, _window(ops, iteration))
    if len(gradients) == 0:
        return None
    _refuse_sharded(ops, parallel, gradients, kinds, rank=rank, iteration=iteration)

    place, stream, arrive, start, end = _intervals(graph, result, rank)
    on_device = stream != _HOST_STREAM
    tail_ns = int(end[on_device & np.isin(place, gradients)].max())
    kind = ops["kind"][place]
    transfers = on_device & parallel[place]
    others = on_device & talks[place] & ~parallel[place]
    computes = on_device & np.isin(kind, _COMPUTE)
    # Another communicator hides a transfer also while it waits: that time would pass anyway.
    busy_start = np.concatenate((start[computes], arrive[others]))
    busy_end = np.concatenate((end[computes], end[others]))
    busy = _covered(busy_start, busy_end, begin_ns, tail_ns)
    with_transfers = _covered(
        np.concatenate((busy_start, start[transfers])),
        np.concatenate((busy_end, end[transfers])),
        begin_ns,
        tail_ns,
    )
    exposed = with_transfers - busy
    groups = slots[int(ops["ref"][gradients[np.argmax(ops["bytes"][gradients])]])].size
    return exposed + end_ns - tail_ns, exposed, groups, rank


def _window(ops: OpArray, iteration: int) -> slice:
    """Places of the ops of an iteration; without marks, the whole program is iteration 0."""
    marks = np.flatnonzero((ops["kind"] == OpKind.MARK) & (ops["detail"] == MarkKind.ITERATION))
    if len(marks) == 0:
        return slice(0, len(ops))
    return slice(int(marks[iteration - 1]) + 1 if iteration else 0, int(marks[iteration]) + 1)


def _gradients(ops: OpArray, parallel: npt.NDArray[np.bool_], window: slice) -> npt.NDArray[np.int64]:
    """Places of the window's gradient reductions."""
    places: npt.NDArray[np.int64] = window.start + np.flatnonzero(
        (parallel & np.isin(ops["kind"], _REDUCTIONS))[window]
    )
    if len(places) == 0:
        return places
    sizes = ops["bytes"][places]
    large: npt.NDArray[np.int64] = places[sizes * SMALLEST_SHARE >= sizes.max()]
    return large


def _refuse_sharded(
    ops: OpArray,
    parallel: npt.NDArray[np.bool_],
    gradients: npt.NDArray[np.int64],
    kinds: adapters.DataParallel,
    *,
    rank: int,
    iteration: int,
) -> None:
    if kinds.gathers:
        return
    window = _window(ops, iteration)
    least = ops["bytes"][gradients].max() // SMALLEST_SHARE
    foreign = parallel & ~np.isin(ops["kind"], (OpKind.ALL_REDUCE, OpKind.REDUCE, OpKind.BROADCAST))
    found = np.flatnonzero((foreign & (ops["bytes"] > least))[window])
    if len(found):
        name = OpKind(int(ops["kind"][window][found[0]])).name.lower()
        raise SpareError(
            f"rank {rank}: {len(found)} of the default group's ops in iteration {iteration} are no gradient "
            f"reductions (the first is {name}), as of sharded parameters (FSDP), whose cost does not split "
            "into shards and a step; give --layer-s and --allreduce-s instead"
        )


def _intervals(
    graph: Graph, result: ReplayResult, rank: int
) -> tuple[_Times, npt.NDArray[np.uint16], _Times, _Times, _Times]:
    """Place in the rank's program, stream, arrival, start and end of everything it did."""
    timeline = result.timeline
    assert timeline is not None
    rows = np.flatnonzero(timeline.rank == rank)
    blocks = graph.program_blocks(graph.rank(rank).program)
    offsets = graph.block_offsets.astype(np.int64)
    begins = np.concatenate(([0], np.cumsum(np.diff(offsets)[blocks])))
    block = timeline.block_position[rows]
    place = begins[block] + timeline.op[rows].astype(np.int64) - offsets[blocks[block]]
    return (
        place,
        timeline.stream[rows],
        timeline.arrive_ns[rows],
        timeline.start_ns[rows],
        timeline.end_ns[rows],
    )


def _covered(start: _Times, end: _Times, low: int, high: int) -> int:
    """Length of the union of the intervals inside [low, high)."""
    start, end = start.clip(low, high), end.clip(low, high)
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    if len(start) == 0:
        return 0
    reach = np.maximum.accumulate(end)
    before = np.concatenate(([low], reach[:-1]))
    return int(np.maximum(reach - np.maximum(start, before), 0).sum())
