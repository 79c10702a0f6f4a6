"""Random programs for replay: legal by construction, as every rank takes its ops from one global
order of what happens. Small ones come from hypothesis, which shrinks them; large ones from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar

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

HOST_TIMES = (0, 0, 0, 1, 5, 30)
T = TypeVar("T")


class Choices(Protocol):
    def integer(self, low: int, high: int) -> int: ...
    def pick(self, among: Sequence[T]) -> T: ...


class Drawn:
    """Choices that hypothesis makes."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def pick(self, among: Sequence[T]) -> T:
        return self.draw(st.sampled_from(among))


class Seeded(Random):
    """Choices that follow from a seed."""

    def integer(self, low: int, high: int) -> int:
        return self.randint(low, high)

    def pick(self, among: Sequence[T]) -> T:
        return self.choice(among)


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

    def build(self, metadata: dict[str, Any] | None = None) -> Graph:
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
        return builder.finish(metadata)


def _kernel() -> Any:
    from prismcore.graph import Kernel

    return Kernel(name="k")


KERNEL = _kernel()


ACTIONS = ("local",) * 4 + ("collective", "message", "group", "mark")
ASYNC_ACTIONS = ("local",) * 2 + ("collective", "message") * 2 + ("group", "mark")
ASYNC_KINDS = tuple(
    k for k in LOCAL_KINDS if k not in (OpKind.STREAM_SYNC, OpKind.EVENT_SYNC, OpKind.DEVICE_SYNC)
)


def make_programs(by: Choices, *, max_ranks: int, max_actions: int, asynchronous: bool) -> Programs:
    """asynchronous: the host synchronises rarely."""
    ranks = by.integer(1, max_ranks)
    p = Programs(ranks, ops=[[] for _ in range(ranks)], groups=[list(range(ranks))])
    if ranks > 2:
        p.groups.append(list(range(1, ranks)))
    num_streams = STREAMS if asynchronous else by.pick([1, STREAMS])
    marks = by.pick([False, True])
    kinds = ASYNC_KINDS if asynchronous and by.pick([False, True]) else LOCAL_KINDS
    flags = (*([0] * (9 if asynchronous else 3)), OpFlag.BLOCKING)
    for _ in range(by.integer(0, max_actions)):
        action = by.pick(ASYNC_ACTIONS if asynchronous else ACTIONS)
        if action == "local":
            p.ops[by.integer(0, ranks - 1)].append(_local_op(by, num_streams, kinds))
        elif action == "mark":
            for r in range(ranks if marks else 0):
                mark = {"kind": OpKind.MARK, "detail": MarkKind.ITERATION, "host_ns": by.pick(HOST_TIMES)}
                p.ops[r].append(mark)
        else:
            _communicate(by, p, action, num_streams, flags)
    return p


@st.composite
def programs(
    draw: st.DrawFn, *, max_ranks: int = 4, max_actions: int = 40, asynchronous: bool = False
) -> Programs:
    return make_programs(Drawn(draw), max_ranks=max_ranks, max_actions=max_actions, asynchronous=asynchronous)


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
            if "communicator" in x and _matching_key(x) == _matching_key(y):
                return False
    return True


def _matching_key(op: dict[str, Any]) -> tuple[Any, ...]:
    """Ops of one key match their partners in order."""
    message = op["kind"] in (OpKind.SEND, OpKind.RECV)
    return op.get("communicator"), message and (op["kind"], op["peer"], op["tag"])


def _local_op(by: Choices, num_streams: int, kinds: tuple[OpKind, ...]) -> dict[str, Any]:
    kind = by.pick(kinds)
    stream = by.integer(0, num_streams - 1)
    op: dict[str, Any] = {"kind": kind, "stream": stream, "host_ns": by.pick(HOST_TIMES)}
    if kind in (OpKind.KERNEL, OpKind.COPY, OpKind.SET, OpKind.HOST_CALLBACK, OpKind.HOST_GAP):
        op["duration_ns"] = by.integer(0, 40)
    if kind == OpKind.COPY:
        op["flags"] = by.pick([0, OpFlag.BLOCKING])
    if kind in (OpKind.EVENT_WAIT, OpKind.EVENT_SYNC):
        op |= {"event_stream": by.integer(0, num_streams - 1), "peer": by.integer(1, 4)}
    if kind in (OpKind.ALLOCATE, OpKind.FREE):
        op["bytes"] = by.integer(0, 1000)
    return op


def _communicate(by: Choices, p: Programs, action: str, num_streams: int, flags: Sequence[int]) -> None:
    c = by.integer(0, len(p.groups) - 1)
    members = p.groups[c]

    def op(kind: OpKind, **fields: Any) -> dict[str, Any]:
        return {
            "kind": kind,
            "communicator": c,
            "bytes": 64,
            "stream": by.integer(0, num_streams - 1),
            "host_ns": by.pick(HOST_TIMES),
            "duration_ns": by.integer(0, 40),
            "flags": by.pick(flags),
            **fields,
        }

    if action == "collective":
        for r in members:
            p.ops[r].append(op(OpKind.ALL_REDUCE))
        return
    parts: dict[int, list[dict[str, Any]]] = {r: [] for r in members}
    for _ in range(1 if action == "message" else by.integer(1, 4)):
        if action == "group" and by.integer(0, 3) == 0:
            for r in members:
                parts[r].append(op(OpKind.ALL_REDUCE, flags=0))
            continue
        source, target = by.pick(members), by.pick(members)
        if source == target and action == "message":
            return  # a message to oneself needs a group
        size, tag = len(members), by.integer(0, 1)
        size_bytes = by.pick([8, 64])
        distance = (members.index(target) - members.index(source)) % size
        parts[source].append(op(OpKind.SEND, peer=distance, tag=tag, bytes=size_bytes))
        parts[target].append(op(OpKind.RECV, peer=(size - distance) % size, tag=tag, bytes=size_bytes))
    for r, mine in parts.items():
        for part in mine[:-1]:
            part["flags"] |= OpFlag.GROUP_CONTINUES
        p.ops[r].extend(mine)
