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

    def swap_any(self, random: Any) -> None:
        """Swaps neighbouring ops of some ranks, so that orders cross: legal or not."""
        for r, ops in enumerate(self.ops):
            units = _units(ops)
            for _ in range(random.randint(0, 6)):
                if len(units) > 1:
                    i = random.randrange(len(units) - 1)
                    units[i], units[i + 1] = units[i + 1], units[i]
            self.ops[r] = [op for unit in units for op in unit]

    def swap_independent(self, random: Any) -> None:
        """Swaps neighbours that are on different streams and have nothing to do with each other, many
        times. What was legal stays legal, but only for hosts that run ahead of their devices."""
        for r, ops in enumerate(self.ops):
            units = _units(ops)
            for _ in range(4 * len(units)):
                i = random.randrange(max(len(units) - 1, 1))
                if i + 1 < len(units) and _independent(units[i], units[i + 1]):
                    units[i], units[i + 1] = units[i + 1], units[i]
            self.ops[r] = [op for unit in units for op in unit]

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


ACTIONS = ("local",) * 4 + ("collective", "message", "group", "mark")
ASYNC_ACTIONS = ("local",) * 2 + ("collective", "message") * 2 + ("group", "mark")
ASYNC_KINDS = tuple(
    k for k in LOCAL_KINDS if k not in (OpKind.STREAM_SYNC, OpKind.EVENT_SYNC, OpKind.DEVICE_SYNC)
)


@st.composite
def programs(
    draw: st.DrawFn, *, max_ranks: int = 4, max_actions: int = 40, asynchronous: bool = False
) -> Programs:
    """asynchronous: the host synchronises rarely."""
    ranks = draw(st.integers(1, max_ranks))
    p = Programs(ranks, ops=[[] for _ in range(ranks)], groups=[list(range(ranks))])
    if ranks > 2:
        p.groups.append(list(range(1, ranks)))
    one_stream = not asynchronous and draw(st.booleans())
    pick_stream = st.just(0) if one_stream else streams
    marks = draw(st.booleans())
    kinds = LOCAL_KINDS
    if asynchronous and draw(st.booleans()):
        kinds = ASYNC_KINDS
    for _ in range(draw(st.integers(0, max_actions))):
        action = draw(st.sampled_from(ASYNC_ACTIONS if asynchronous else ACTIONS))
        if action == "local":
            p.ops[draw(st.integers(0, ranks - 1))].append(draw(local_ops(pick_stream, kinds)))
        elif action == "mark":
            for r in range(ranks if marks else 0):
                p.ops[r].append(
                    {"kind": OpKind.MARK, "detail": MarkKind.ITERATION, "host_ns": draw(host_times)}
                )
        else:
            flags = [0] * 9 if asynchronous else [0] * 3
            _communicate(draw, p, action, pick_stream, st.sampled_from([*flags, OpFlag.BLOCKING]))
    return p


def _units(ops: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Ops, grouped launches together."""
    units: list[list[dict[str, Any]]] = []
    inside = False
    for op in ops:
        if inside:
            units[-1].append(op)
        else:
            units.append([op])
        inside = bool(op.get("flags", 0) & OpFlag.GROUP_CONTINUES)
    return units


def _independent(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> bool:
    moving = (OpKind.KERNEL, OpKind.SET, OpKind.COPY, OpKind.HOST_CALLBACK, OpKind.ALLOCATE, OpKind.FREE)
    for op in (*a, *b):
        kind = op["kind"]
        if not (kind in moving or kind.is_communication or kind in (OpKind.EVENT_RECORD, OpKind.EVENT_WAIT)):
            return False
        if op.get("flags", 0) & OpFlag.BLOCKING:
            return False
    for x in a:
        for y in b:
            touched = [{o["stream"], o.get("event_stream", o["stream"])} for o in (x, y)]
            if touched[0] & touched[1]:
                return False
            if "communicator" in x and x["communicator"] == y.get("communicator"):
                return False
    return True


@st.composite
def local_ops(
    draw: st.DrawFn, pick_stream: st.SearchStrategy[int], kinds: tuple[OpKind, ...]
) -> dict[str, Any]:
    kind = draw(st.sampled_from(kinds))
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


def _communicate(
    draw: st.DrawFn,
    p: Programs,
    action: str,
    pick_stream: st.SearchStrategy[int],
    flags: st.SearchStrategy[int],
) -> None:
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
            "flags": draw(flags),
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
