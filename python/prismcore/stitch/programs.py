"""Rows with waits and timing as an execution graph: one program a rank, one iteration a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from prismcore.graph import (
    OP_DTYPE,
    DataType,
    Graph,
    GraphBuilder,
    Kernel,
    MarkKind,
    OpArray,
    OpFlag,
    OpKind,
    Provenance,
)
from prismcore.stitch.rows import Ints, Rows
from prismcore.stitch.timing import Timing
from prismcore.stitch.waits import Waits

__all__ = ["STEP_BOUNDARY", "RowOps", "build_graph"]

#: The communicator of all ranks that meet, for no time, at the end of each step.
STEP_BOUNDARY = "step boundary"

# Where an op stands among those that come of one launch.
_WAIT, _GAP, _OP, _RECORD = range(4)
_ROOTED = (OpKind.BROADCAST, OpKind.REDUCE, OpKind.GATHER, OpKind.SCATTER)
_LAST = 2**27 - 1


@dataclass(kw_only=True, slots=True)
class RowOps:
    """What each row is; arrays have shape [rows]."""

    kind: Ints  #: ``OpKind``
    ref: Ints  #: into ``kernels`` or ``communicators``, of a mark into the labels of steps, by kind
    peer: Ints  #: rank of the other side of a send or recv, or of a root; -1: none, or the first member
    tag: Ints
    kernels: Sequence[str | Kernel]  #: a name alone where nothing tells the launch
    communicators: Sequence[tuple[str, tuple[int, ...]]]  #: name, members
    bytes: Ints | None = None
    dtype: Ints | None = None  #: ``DataType``; None: not known
    detail: Ints | None = None  #: ``Reduction``, ``CopyDirection``, ``MarkKind``; None: 0, also of a mark
    provenance: Ints | None = None
    """``Provenance`` of the durations, with ``OpFlag.BLOCKING`` where the host waits; None: all were
    measured."""
    has_host: bool = False
    """Lane 0 is the host: its rows take the host's time, and what it waits for it synchronises with. Rows of
    other lanes come to the device when the host has come to them. The caller's rows hold the marks."""

    def some(self, chosen: Ints) -> RowOps:
        """Of these rows alone."""
        return replace(
            self,
            kind=self.kind[chosen],
            ref=self.ref[chosen],
            peer=self.peer[chosen],
            tag=self.tag[chosen],
            bytes=None if self.bytes is None else self.bytes[chosen],
            dtype=None if self.dtype is None else self.dtype[chosen],
            detail=None if self.detail is None else self.detail[chosen],
            provenance=None if self.provenance is None else self.provenance[chosen],
        )


def build_graph(
    rows: Rows,
    ops: RowOps,
    waits: Waits,
    timing: Timing,
    *,
    world_size: int,
    steps: Sequence[str],
    metadata: Mapping[str, Any] | None = None,
) -> Graph:
    """A graph that replays the rows: a lane is a stream, a wait an event, a gap a host callback on the
    lane of its launch. Without a host, all ranks end a step together, since a trace of chosen steps does
    not say what was between them.

    ``steps``: labels of the steps. Raises GraphError where the columns do not fit together.
    """
    ranks = np.unique(rows.rank)
    builder = GraphBuilder(world_size=world_size)
    labels = np.array([builder.string(label) for label in steps], dtype=np.uint32)
    kernels = np.array(
        [builder.kernel(k if isinstance(k, Kernel) else Kernel(name=k)) for k in ops.kernels] or [0],
        dtype=np.uint32,
    )
    communicators = [*ops.communicators]
    if not ops.has_host:
        communicators.append((STEP_BOUNDARY, tuple(ranks.tolist())))
    ids = np.array([builder.communicator(name, members) for name, members in communicators])
    place, made, row = _laid_out(rows, ops, waits, timing, ranks=ranks, kernels=kernels, labels=labels)
    bounds = np.searchsorted(place, np.arange(len(ranks) + 1))
    for i, rank in enumerate(ranks.tolist()):
        mine = made[bounds[i] : bounds[i + 1]]
        of = row[bounds[i] : bounds[i + 1]]
        bindings = _bind(mine, of, ops, communicators=communicators, ids=ids, rank=rank)
        builder.set_rank(rank, mine, bindings)
    return builder.finish(metadata)


def _laid_out(
    rows: Rows, ops: RowOps, waits: Waits, timing: Timing, *, ranks: Ints, kernels: Any, labels: Any
) -> tuple[Ints, OpArray, Ints]:
    """All ops in order: the place of their rank, the ops, and the row each came from (-1: none)."""
    count, lanes = waits.shape
    hosts = int(ops.has_host)
    steps = len(labels)
    index = np.arange(count)
    stream = np.maximum(rows.lane - hosts, 0)
    on_host = rows.lane < hosts
    segment = np.searchsorted(ranks, rows.rank) * steps + rows.step
    foreign = _needed(rows, waits)
    foreign[:, :hosts] = False  # they follow in order
    recorded = np.zeros(count, dtype=bool)
    recorded[waits[foreign]] = True
    # Event ops name the record by how many records ago: counts of those before each row.
    before = np.zeros((lanes, count + 1), dtype=np.int64)
    for lane in range(lanes):
        np.cumsum(recorded & (rows.lane == lane), out=before[lane, 1:])

    waiting, on = np.nonzero(foreign)
    waited = waits[waiting, on]
    gaps = index[(rows.launch == index) & (timing.gap_ns > 0)]
    records = index[recorded]
    ends = np.arange(0 if ops.has_host else len(ranks) * steps)
    parts = (
        (waiting, _WAIT),
        (gaps, _GAP),
        (index, _OP),
        (records, _RECORD),
    )
    keys = [(segment[r] << 31) | (rows.launch[r] << 2) | phase for r, phase in parts]
    sizes = [len(k) for k in keys]
    made = np.zeros(sum(sizes) + 3 * len(ends), dtype=OP_DTYPE)
    row = np.full(len(made), -1, dtype=np.int64)
    made["dtype"] = DataType.NONE
    at = np.cumsum([0, *sizes, len(ends), len(ends), len(ends)])

    part = made[at[0] : at[1]]
    part["kind"] = np.where(on_host[waiting], int(OpKind.EVENT_SYNC), int(OpKind.EVENT_WAIT))
    part["stream"], part["event_stream"] = stream[waiting], on - hosts
    part["peer"] = before[on, rows.launch[waiting]] - before[on, waited]
    part = made[at[1] : at[2]]
    part["kind"] = np.where(on_host[gaps], int(OpKind.HOST_GAP), int(OpKind.HOST_CALLBACK))
    part["stream"] = stream[gaps]
    part["duration_ns"] = timing.gap_ns[gaps]
    part = made[at[2] : at[3]]
    communicates = ops.kind >= OpKind.ALL_REDUCE
    follows = np.zeros(count, dtype=bool)
    follows[:-1] = rows.launch[1:] == rows.launch[:-1]
    part["kind"], part["stream"], part["tag"] = ops.kind, stream, ops.tag
    part["detail"] = int(MarkKind.ITERATION) if ops.detail is None else ops.detail
    provenance = int(Provenance.MEASURED) if ops.provenance is None else ops.provenance
    part["flags"] = provenance | np.where(follows, int(OpFlag.GROUP_CONTINUES), 0)
    refs = (communicates, ops.kind == OpKind.KERNEL, ops.kind == OpKind.MARK)
    chosen = [np.where(of, ops.ref, 0) for of in refs]
    part["ref"] = np.select(refs, (chosen[0], kernels[chosen[1]], labels[chosen[2]]), 0)
    part["duration_ns"] = timing.duration_ns
    if ops.bytes is not None:
        part["bytes"] = ops.bytes
    if ops.dtype is not None:
        part["dtype"] = ops.dtype
    row[at[2] : at[3]] = index
    part = made[at[3] : at[4]]
    part["kind"], part["stream"] = OpKind.EVENT_RECORD, stream[records]
    made["kind"][at[4] : at[5]] = OpKind.DEVICE_SYNC
    part = made[at[5] : at[6]]
    part["kind"], part["ref"] = OpKind.ALL_REDUCE, len(ops.communicators)
    part["flags"] = Provenance.MODEL | OpFlag.BLOCKING
    part = made[at[6] : at[7]]
    part["kind"], part["detail"], part["ref"] = (
        OpKind.MARK,
        MarkKind.ITERATION,
        np.tile(labels, len(ranks))[: len(ends)],
    )
    last = (ends << 31) | (_LAST << 2)
    key = np.concatenate([*keys, last, last + 1, last + 2])
    order = np.argsort(key, kind="stable")
    return (key[order] >> 31) // steps, made[order], row[order]


def _needed(rows: Rows, waits: Waits) -> npt.NDArray[np.bool_]:
    """Waits on other lanes, one for each two launches, less those that the op before on the same lane
    has already."""
    count = len(waits)
    index = np.arange(count)
    previous = waits[index, rows.lane]
    had = waits[previous]
    had[previous < 0] = -1
    needed: npt.NDArray[np.bool_] = (waits >= 0) & (waits != had)
    needed[index, rows.lane] = False
    waiting, on = np.nonzero(needed)
    pairs = rows.launch[waiting] * count + rows.launch[waits[waiting, on]]
    first = np.unique(pairs, return_index=True)[1]
    needed[:] = False
    needed[waiting[first], on[first]] = True
    return needed


def _bind(
    made: OpArray,
    row: Ints,
    ops: RowOps,
    *,
    communicators: Sequence[tuple[str, tuple[int, ...]]],
    ids: Ints,
    rank: int,
) -> list[tuple[int, int]]:
    """Puts communicator slots and relative peers of a rank into its ops; returns its bindings."""
    talks = np.flatnonzero(made["kind"] >= OpKind.ALL_REDUCE)
    # Communicators of one name and the same members are one: a rank has one slot for it.
    _, first, same = np.unique(ids, return_index=True, return_inverse=True)
    used, inverse = np.unique(first[same.reshape(-1)][made["ref"][talks]], return_inverse=True)
    slots = inverse.reshape(-1)
    made["ref"][talks] = slots
    positions = [communicators[communicator][1].index(rank) for communicator in used.tolist()]
    message = made["kind"][talks] >= OpKind.SEND
    rooted = np.isin(made["kind"][talks], _ROOTED) & (row[talks] >= 0)
    rooted[rooted] = ops.peer[row[talks[rooted]]] >= 0
    for at in np.flatnonzero(rooted).tolist():
        root = int(ops.peer[row[talks[at]]])
        made["peer"][talks[at]] = communicators[int(used[slots[at]])][1].index(root)
    sides, on = talks[message], slots[message]
    pairs, which = np.unique(np.stack([on, ops.peer[row[sides]]]), axis=1, return_inverse=True)
    relative = np.zeros(pairs.shape[1], dtype=np.int64)
    for i, (slot, peer) in enumerate(pairs.T.tolist()):
        members = communicators[int(used[slot])][1]
        relative[i] = (members.index(peer) - positions[slot]) % len(members)
    made["peer"][sides] = relative[which.reshape(-1)]
    return list(zip(ids[used].tolist(), positions, strict=True))
