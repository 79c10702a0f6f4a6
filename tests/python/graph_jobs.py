"""Random small jobs for tests, and what a graph must make of them, in plain Python."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from prismcore import _core
from prismcore.graph import OP_DTYPE, DataType, Graph, GraphBuilder, Kernel, OpFlag, OpKind

# A named op: kind, name it refers to (kernel, label or communicator), and all other fields.
NamedOp = tuple[int, str, tuple[tuple[str, int], ...]]

KERNELS = ("gemm", "norm", "softmax")
LABELS = ("step", "warm-up")
PLAIN = (OpKind.HOST_GAP, OpKind.EVENT_RECORD, OpKind.STREAM_SYNC, OpKind.ALLOCATE)
COLLECTIVES = (OpKind.ALL_REDUCE, OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER, OpKind.ALL_TO_ALL)
ROOTED = (OpKind.BROADCAST, OpKind.REDUCE, OpKind.GATHER)
POINT_TO_POINT = (OpKind.SEND, OpKind.RECV)
# Fields that a communication digest does not look at.
TIMES = ("stream", "event_stream", "host_ns", "duration_ns")


@dataclass
class Job:
    """Ranks by name: no ids, no slots, no blocks."""

    world_size: int
    communicators: dict[str, tuple[int, ...]]
    ranks: dict[int, list[NamedOp]] = field(default_factory=dict)


def _op(kind: int, name: str = "", **fields: int) -> NamedOp:
    return kind, name, tuple(sorted(fields.items()))


@st.composite
def _ops(draw: st.DrawFn, communicators: dict[str, int]) -> list[NamedOp]:
    """Ops of a rank that is a member of `communicators` (sizes by name)."""
    few = st.integers(0, 2)
    ops: list[NamedOp] = []
    for _ in range(draw(st.integers(0, 8))):
        what = draw(st.integers(0, 5 if communicators else 2))
        if what == 0:
            kernel = draw(st.sampled_from(KERNELS))
            flags = draw(st.integers(0, 3))
            ops.append(_op(OpKind.KERNEL, kernel, duration_ns=draw(few), stream=draw(few), flags=flags))
        elif what == 1:
            ops.append(_op(draw(st.sampled_from(PLAIN)), bytes=draw(few), host_ns=draw(few)))
        elif what == 2:
            ops.append(_op(OpKind.MARK, draw(st.sampled_from(LABELS)), detail=draw(few)))
        else:
            parts = draw(st.integers(1, 3))
            for part in range(parts):
                name = draw(st.sampled_from(sorted(communicators)))
                kind = draw(st.sampled_from((*COLLECTIVES, *ROOTED, *POINT_TO_POINT)))
                peer = draw(st.integers(0, communicators[name] - 1)) if kind not in COLLECTIVES else 0
                flags = OpFlag.GROUP_CONTINUES if part + 1 < parts else 0
                ops.append(
                    _op(kind, name, peer=peer, bytes=draw(few), duration_ns=draw(few), flags=int(flags))
                )
    return ops


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Worlds of up to 4 ranks, communicators of any members in any order, some ranks missing."""
    world = draw(st.integers(1, 4))
    everyone = st.permutations(range(world))
    communicators: dict[str, tuple[int, ...]] = {}
    for i in range(draw(st.integers(0, 3))):
        members = draw(everyone)[: draw(st.integers(1, world))]
        communicators[f"c{i}"] = tuple(members)
    job = Job(world, communicators)
    # A few programs, so that ranks share some.
    for rank in range(world):
        mine = {name: len(members) for name, members in communicators.items() if rank in members}
        if draw(st.integers(0, 4)):
            job.ranks[rank] = draw(_ops(mine))
    return job


def blocks_of(ops: list[NamedOp]) -> list[tuple[NamedOp, ...]]:
    """The ops cut after each communication launch."""
    blocks: list[list[NamedOp]] = [[]]
    for op in ops:
        blocks[-1].append(op)
        continues = dict(op[2]).get("flags", 0) & OpFlag.GROUP_CONTINUES
        if OpKind(op[0]).is_communication and not continues:
            blocks.append([])
    return [tuple(block) for block in blocks if block]


class _Numbering:
    """Gives kernels, labels and communicators ids in a shuffled order, with some unused ones."""

    def __init__(self, target: GraphBuilder | _core.Recorder, seed: int) -> None:
        self.random = random.Random(seed)
        names = [("kernel", k) for k in KERNELS] + [("label", k) for k in LABELS]
        if seed:
            names += [("kernel", "noise"), ("label", "noise")]
            self.random.shuffle(names)
        self.ids: dict[tuple[str, str], int] = {}
        for what, name in names:
            if what == "label":
                self.ids[what, name] = target.string(name)
            elif isinstance(target, GraphBuilder):
                self.ids[what, name] = target.kernel(Kernel(name=name, grid=(len(name), 1, 1)))
            else:
                self.ids[what, name] = target.kernel(name, (len(name), 1, 1), (1, 1, 1))

    def rows(self, ops: list[NamedOp], slots: dict[str, int]) -> np.ndarray:
        rows = np.zeros(len(ops), dtype=OP_DTYPE)
        rows["dtype"] = DataType.NONE
        for row, (kind, name, fields) in zip(rows, ops, strict=True):
            row["kind"] = kind
            for key, value in fields:
                row[key] = value
            if kind == OpKind.KERNEL:
                row["ref"] = self.ids["kernel", name]
            elif kind == OpKind.MARK:
                row["ref"] = self.ids["label", name]
            elif OpKind(kind).is_communication:
                row["ref"] = slots[name]
        return rows


def slots_of(ops: list[NamedOp]) -> dict[str, int]:
    """Communicators numbered by first use."""
    slots: dict[str, int] = {}
    for kind, name, _ in ops:
        if OpKind(kind).is_communication:
            slots.setdefault(name, len(slots))
    return slots


def build(job: Job, seed: int = 0) -> Graph:
    """The job through GraphBuilder.set_rank; other seeds give other numbers, never other content."""
    builder = GraphBuilder(job.world_size)
    numbering = _Numbering(builder, seed)
    names = list(job.communicators)
    ranks = list(job.ranks)
    if seed:
        numbering.random.shuffle(names)
        numbering.random.shuffle(ranks)
    rename = (lambda name: name + "'") if seed else (lambda name: name)
    ids = {name: builder.communicator(rename(name), job.communicators[name]) for name in names}
    for rank in ranks:
        used = list(slots_of(job.ranks[rank]))
        if seed:
            numbering.random.shuffle(used)
        slots = {name: i for i, name in enumerate(used)}
        bindings = [(ids[name], job.communicators[name].index(rank)) for name in used]
        builder.set_rank(rank, numbering.rows(job.ranks[rank], slots), bindings)
    return builder.finish()


def record(job: Job, rank: int, seed: int = 0) -> _core.Graph:
    """One rank of the job through a Recorder, with a communicator it never uses."""
    recorder = _core.Recorder(rank, job.world_size)
    numbering = _Numbering(recorder, seed)
    recorder.add_communicator("unused", 1, 0)
    mine = [name for name, members in job.communicators.items() if rank in members]
    if seed:
        numbering.random.shuffle(mine)
    slots = {}
    for name in mine:
        members = np.array(job.communicators[name], dtype=np.uint32)
        slots[name] = recorder.add_communicator(name, len(members), job.communicators[name].index(rank))
        recorder.set_members(slots[name], members)
    recorder.append_many(numbering.rows(job.ranks[rank], slots).view(np.uint8))
    return recorder.finish()


def named(graph: Graph, rank: int, names: dict[tuple[int, ...], str] | None = None) -> list[NamedOp]:
    """A rank's ops read back by name; `names` gives communicators another name by member list."""
    ops: list[NamedOp] = []
    bindings = graph.rank(rank).bindings
    for row in graph.ops(rank):
        kind = int(row["kind"])
        name = ""
        if kind == OpKind.KERNEL:
            name = graph.kernel(int(row["ref"])).name
        elif kind == OpKind.MARK:
            name = graph.string(int(row["ref"]))
        elif OpKind(kind).is_communication:
            communicator = graph.communicator(int(bindings[row["ref"]]["communicator"]))
            name = communicator.name
            if names is not None:
                name = names[tuple(communicator.members.tolist())]
        keys = [key for key in OP_DTYPE.names or () if key not in ("kind", "ref", "dtype")]
        ops.append((kind, name, tuple((key, int(row[key])) for key in keys)))
    return ops
