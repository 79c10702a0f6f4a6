"""Random programs for replay: legal by construction, as every rank takes its ops from one global
order of what happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from prismcore.graph import OP_DTYPE, Graph, GraphBuilder, MarkKind, OpFlag, OpKind

STREAMS = 3
LOCAL_KINDS = (
    OpKind.KERNEL,
    OpKind.KERNEL,
    OpKind.KERNEL,
    OpKind.COPY,
    OpKind.SET,
    OpKind.HOST_GAP,
    OpKind.EVENT_RECORD,
    OpKind.EVENT_RECORD,
    OpKind.EVENT_WAIT,
    OpKind.EVENT_WAIT,
    OpKind.STREAM_SYNC,
    OpKind.EVENT_SYNC,
    OpKind.DEVICE_SYNC,
    OpKind.QUERY,
    OpKind.HOST_CALLBACK,
    OpKind.ALLOCATE,
    OpKind.FREE,
)

durations = st.integers(0, 40)
host_times = st.sampled_from([0, 0, 0, 1, 5, 30])
streams = st.integers(0, STREAMS - 1)


@dataclass
class Programs:
    """Ops of each rank over communicator 0 (all ranks) and 1 (all but the first, if two are left)."""

    ranks: int
    ops: list[list[dict[str, Any]]] = field(default_factory=list)
    groups: list[list[int]] = field(default_factory=list)

    def shuffle_launches(self, random: Any) -> None:
        """Swaps neighbouring ops of some ranks, so that orders cross: legal or not."""
        for ops in self.ops:
            for _ in range(random.randint(0, 3)):
                if len(ops) < 2:
                    break
                i = random.randrange(len(ops) - 1)
                grouped = any(o.get("flags", 0) & OpFlag.GROUP_CONTINUES for o in ops[max(i - 1, 0) : i + 2])
                if not grouped:
                    ops[i], ops[i + 1] = ops[i + 1], ops[i]

    def build(self) -> Graph:
        builder = GraphBuilder(self.ranks)
        builder.kernel(KERNEL)
        ids = [builder.communicator(f"c{i}", g) for i, g in enumerate(self.groups)]
        for r, ops in enumerate(self.ops):
            array = np.zeros(len(ops), dtype=OP_DTYPE)
            slots: dict[int, int] = {}
            for i, op in enumerate(ops):
                for key, value in op.items():
                    if key != "communicator":
                        array[i][key] = value
                if "communicator" in op:
                    array[i]["ref"] = slots.setdefault(op["communicator"], len(slots))
            bindings = [(ids[c], self.groups[c].index(r)) for c in slots]
            builder.set_rank(r, array, bindings)
        return builder.finish()


def _kernel() -> Any:
    from prismcore.graph import Kernel

    return Kernel(name="k")


KERNEL = _kernel()


@st.composite
def programs(draw: st.DrawFn, *, max_ranks: int = 4, max_actions: int = 40) -> Programs:
    ranks = draw(st.integers(1, max_ranks))
    p = Programs(ranks, ops=[[] for _ in range(ranks)], groups=[list(range(ranks))])
    if ranks > 2:
        p.groups.append(list(range(1, ranks)))
    one_stream = draw(st.booleans())
    pick_stream = st.just(0) if one_stream else streams
    marks = draw(st.booleans())
    for _ in range(draw(st.integers(0, max_actions))):
        action = draw(
            st.sampled_from(["local", "local", "local", "local", "collective", "message", "group", "mark"])
        )
        if action == "local":
            p.ops[draw(st.integers(0, ranks - 1))].append(draw(local_ops(pick_stream)))
        elif action == "mark":
            for r in range(ranks if marks else 0):
                p.ops[r].append(
                    {"kind": OpKind.MARK, "detail": MarkKind.ITERATION, "host_ns": draw(host_times)}
                )
        else:
            _communicate(draw, p, action, pick_stream)
    return p


@st.composite
def local_ops(draw: st.DrawFn, pick_stream: st.SearchStrategy[int]) -> dict[str, Any]:
    kind = draw(st.sampled_from(LOCAL_KINDS))
    op: dict[str, Any] = {"kind": kind, "stream": draw(pick_stream), "host_ns": draw(host_times)}
    if kind in (OpKind.KERNEL, OpKind.COPY, OpKind.SET, OpKind.HOST_CALLBACK, OpKind.HOST_GAP):
        op["duration_ns"] = draw(durations)
    if kind == OpKind.COPY and draw(st.booleans()):
        op["flags"] = OpFlag.BLOCKING
    if kind in (OpKind.EVENT_WAIT, OpKind.EVENT_SYNC):
        op |= {"event_stream": draw(pick_stream), "peer": draw(st.integers(1, 4))}
    if kind in (OpKind.ALLOCATE, OpKind.FREE):
        op["bytes"] = draw(st.integers(0, 1000))
    return op


def _communicate(draw: st.DrawFn, p: Programs, action: str, pick_stream: st.SearchStrategy[int]) -> None:
    c = draw(st.integers(0, len(p.groups) - 1))
    members = p.groups[c]

    def op(kind: OpKind, **fields: Any) -> dict[str, Any]:
        return {
            "kind": kind,
            "communicator": c,
            "bytes": 64,
            "stream": draw(pick_stream),
            "host_ns": draw(host_times),
            "duration_ns": draw(durations),
            "flags": draw(st.sampled_from([0, 0, 0, OpFlag.BLOCKING])),
            **fields,
        }

    if action == "collective":
        for r in members:
            p.ops[r].append(op(OpKind.ALL_REDUCE))
        return
    parts: dict[int, list[dict[str, Any]]] = {r: [] for r in members}
    for _ in range(1 if action == "message" else draw(st.integers(1, 4))):
        if action == "group" and draw(st.integers(0, 3)) == 0:
            for r in members:
                parts[r].append(op(OpKind.ALL_REDUCE, flags=0))
            continue
        source, target = draw(st.permutations(members))[:2] if len(members) > 1 else (members[0], members[0])
        if source == target and action == "message":
            return  # a message to oneself needs a group
        size, tag = len(members), draw(st.integers(0, 1))
        size_bytes = draw(st.sampled_from([8, 64]))
        distance = (members.index(target) - members.index(source)) % size
        parts[source].append(op(OpKind.SEND, peer=distance, tag=tag, bytes=size_bytes))
        parts[target].append(op(OpKind.RECV, peer=(size - distance) % size, tag=tag, bytes=size_bytes))
    for r, mine in parts.items():
        for part in mine[:-1]:
            part["flags"] |= OpFlag.GROUP_CONTINUES
        p.ops[r].extend(mine)
