"""Nodes of one rank of a Chakra trace as rows: which stream, kind, communicator, and what they wait for."""

from __future__ import annotations

from typing import Any

from prismcore.errors import TraceError
from prismcore.graph import CopyDirection, DataType, Kernel, MarkKind, OpKind, Provenance, Reduction
from prismcore.graph.op import MOST_BYTES
from prismcore.traces.chakra import ChakraTrace
from prismcore.traces.chakra_node import COMM_TYPES, NODE_TYPES, ChakraNode
from prismcore.traces.chakra_order import ordered
from prismcore.traces.collectives import Collective, Members
from prismcore.traces.messages import Message
from prismcore.traces.op_columns import HOST, OpColumns
from prismcore.traces.plain_values import distinct_ranks, whole

__all__ = ["RankNodes"]

_MEMORY = (NODE_TYPES.index("MEM_LOAD_NODE"), NODE_TYPES.index("MEM_STORE_NODE"))
_COMP = NODE_TYPES.index("COMP_NODE")
_SEND, _RECV, _COLL = (NODE_TYPES.index(f"COMM_{name}_NODE") for name in ("SEND", "RECV", "COLL"))
_NOTHING = (0, 1)  # INVALID, METADATA
_KINDS = {
    "REDUCE_SCATTER_BLOCK": OpKind.REDUCE_SCATTER,
    "BARRIER": OpKind.ALL_REDUCE,
    **{name: OpKind[name] for name in COMM_TYPES[:8]},
}
_DTYPES = {dtype.name.lower(): dtype for dtype in DataType}
_MOST_STREAM = 2**16 - 2
_MOST_LANES = 64


class RankNodes:
    """Adds the nodes of one rank."""

    def __init__(
        self, trace: ChakraTrace, columns: OpColumns, world: int, told: dict[str, int], own: bool
    ) -> None:
        self.trace, self.columns, self.world, self.told, self.own = trace, columns, world, told, own
        self.lanes: dict[str, int] = {}
        self.members: dict[str, tuple[int, ...]] = dict(trace.groups)
        self.numbers: dict[object, int] = {}
        self.launches: dict[int, int] = {}
        self.labels = {label: number for number, label in enumerate(columns.labels)}

    def run(self, marked: bool) -> None:
        """``marked``: the traces mark their iterations; otherwise all is one."""
        begin = len(self.columns.rank)
        nodes, waits = ordered(self.trace, self.columns.warnings)
        for node in nodes:
            of = distinct_ranks(node.attributes.get("members"))
            if of is not None:
                self.members[self._group(node)] = of
        clocks: list[dict[int, int]] = []
        for node, on in zip(nodes, waits, strict=True):
            clock: dict[int, int] = {}
            for dep in on:
                for lane, row in clocks[dep].items():
                    clock[lane] = max(clock.get(lane, -1), row)
            added = self._add(node, clock)
            clocks.append(clock if added is None else {self.columns.lane[added]: added})
        if not marked:
            self._mark("")
        elif len(self.columns.rank) == begin:  # a rank that does nothing is there
            self._mark("", MarkKind.PHASE)

    def _mark(self, label: str, kind: MarkKind = MarkKind.ITERATION) -> int:
        number = self.labels.setdefault(label, len(self.labels))
        if number == len(self.columns.labels):
            self.columns.labels.append(label)
        return self.columns.mark(self.trace.rank, number, kind=kind)

    def _add(self, node: ChakraNode, clock: dict[int, int]) -> int | None:
        """The row of a node; None for one that does nothing, and is waited for through."""
        said = str(node.attributes.get("op", "")) if self.own else ""
        if self.own and node.attributes.get("is_cpu_op") is True:
            return self._host(node, said, clock)
        if node.type in _NOTHING or node.type >= len(NODE_TYPES):
            return None
        if node.type in (_SEND, _RECV):
            return self._message(node, clock)
        if node.type == _COLL:
            return self._collective(node, clock)
        kind = {"copy": OpKind.COPY, "set": OpKind.SET, "host_callback": OpKind.HOST_CALLBACK}.get(
            said, OpKind.COPY if node.type in _MEMORY else OpKind.KERNEL
        )
        on_cpu = node.attributes.get("is_cpu_op", node.type == _COMP and not self.own) in (True, 1)
        name = "memory" if node.type in _MEMORY else "cpu" if on_cpu else "compute"
        name = name if node.type <= _COLL else NODE_TYPES[node.type]
        provenance, duration = self._duration(node)
        self.told["unknown"] += node.duration_ns is None
        dtype = _DTYPES.get(str(node.attributes.get("dtype")), DataType.NONE)
        direction = str(node.attributes.get("direction", "device_to_device")).upper()
        return self._row(
            node,
            name,
            kind,
            clock,
            kernel=Kernel(name=node.name, dtype=dtype) if kind == OpKind.KERNEL else None,
            bytes=self._size(node, "tensor_size") if kind in (OpKind.COPY, OpKind.SET) else 0,
            detail=CopyDirection[direction]
            if kind == OpKind.COPY and direction in CopyDirection.__members__
            else 0,
            duration_ns=duration,
            provenance=provenance,
        )

    def _host(self, node: ChakraNode, said: str, clock: dict[int, int]) -> int:
        """Of our own traces: host time, waits for the device, marks."""
        if said == "mark":
            kind = str(node.attributes.get("mark", "iteration")).upper()
            row = self._mark(
                str(node.attributes.get("label", "")),
                MarkKind[kind] if kind in MarkKind.__members__ else MarkKind.PHASE,
            )
            self.columns.waits[row] = {lane: on for lane, on in clock.items() if lane != HOST}
            return row
        return self.columns.add(
            self.trace.rank,
            HOST,
            OpKind.HOST_GAP,
            duration_ns=node.duration_ns or 0,
            provenance=Provenance.MEASURED,
            waits={lane: on for lane, on in clock.items() if lane != HOST},
        )

    def _collective(self, node: ChakraNode, clock: dict[int, int]) -> int:
        type = node.attributes.get("comm_type")
        name = COMM_TYPES[type] if isinstance(type, int) and 0 <= type < len(COMM_TYPES) else str(type)
        if name not in _KINDS:
            raise TraceError(
                f"{self._named(node)}: comm_type {str(type)[:40]} found, expected 0 to {len(COMM_TYPES) - 1}"
            )
        kind = _KINDS[name]
        communicator = self._communicator(node)
        provenance, duration = self._duration(node)
        size = 0 if name == "BARRIER" else self._size(node, "comm_size", "tensor_size")
        reduction = str(node.attributes.get("reduction", "sum")).upper()
        root = whole(node.attributes.get("root"))
        row = self._row(
            node,
            f"collectives {communicator[0]}",
            kind,
            clock,
            bytes=size,
            dtype=_DTYPES.get(str(node.attributes.get("dtype")), DataType.NONE),
            detail=Reduction[reduction] if reduction in Reduction.__members__ else 0,
            root=-1 if root is None else root,
            duration_ns=duration,
            provenance=provenance,
        )
        number = self.numbers[communicator] = self.numbers.get(communicator, -1) + 1
        self.columns.collectives.setdefault(self.trace.rank, []).append(
            Collective(row=row, communicator=communicator, kind=int(kind), bytes=size, number=number)
        )
        if node.duration_ns is None:
            self.columns.unmeasured[row] = communicator[1] or (self.trace.rank,)
        return row

    def _message(self, node: ChakraNode, clock: dict[int, int]) -> int:
        sends = node.type == _SEND
        kind = OpKind.SEND if sends else OpKind.RECV
        here, there = (self._whole(node, name) for name in ("comm_src", "comm_dst"))
        other = there if sends else here
        if self.trace.rank != (here if sends else there):
            raise TraceError(
                f"{self._named(node)}: a message from {here} to {there} found on rank {self.trace.rank}"
            )
        name, members = self._communicator(node)
        if members is None or other not in members:
            name, members = "messages", range(self.world)
        if other not in members:
            raise TraceError(f"{self._named(node)}: rank {other} found, expected 0 to {self.world - 1}")
        provenance, duration = self._duration(node)
        size = self._size(node, "comm_size", "tensor_size")
        tag = int(node.attributes.get("comm_tag") or 0) if self._tagged(node) else 0
        row = self._row(
            node,
            f"{kind.name} {other}",
            kind,
            clock,
            bytes=size,
            dtype=_DTYPES.get(str(node.attributes.get("dtype")), DataType.NONE),
            tag=tag % 2**32,
            duration_ns=duration,
            provenance=provenance,
        )
        self.columns.messages.append(
            Message(
                row=row,
                communicator=(name, members),
                source=here,
                target=there,
                sends=sends,
                tag=tag % 2**32,
                bytes=size,
            )
        )
        if node.duration_ns is None:
            self.columns.unmeasured[row] = (here, there)
        return row

    def _row(self, node: ChakraNode, name: str, kind: OpKind, clock: dict[int, int], **how: Any) -> int:
        lane = self._lane(node, name)
        launch = node.attributes.get("launch") if self.own else None
        first = self.launches.get(launch) if isinstance(launch, int) else None
        row = self.columns.add(
            self.trace.rank,
            lane,
            kind,
            blocking=node.attributes.get("blocking") is True,
            launch=first if first is not None and self._follows(first) else None,
            waits={on: at for on, at in clock.items() if on not in (lane, HOST)},
            **how,
        )
        if isinstance(launch, int) and first is None:
            self.launches[launch] = row
        return row

    def _follows(self, first: int) -> bool:
        """Whether all rows since the first of a launch are of it."""
        return self.columns.launch[-1] == first

    def _lane(self, node: ChakraNode, name: str) -> int:
        stream = node.attributes.get("stream")
        if isinstance(stream, int) and not isinstance(stream, bool) and 0 <= stream <= _MOST_STREAM:
            if self.own:
                return stream + 1
            name = f"stream {stream}"
        if name not in self.lanes and len(self.lanes) >= _MOST_LANES:
            name = name.split()[0]
        return self.lanes.setdefault(name, len(self.lanes) + 1)

    def _communicator(self, node: ChakraNode) -> tuple[str, Members | None]:
        group = self._group(node)
        label = str(node.attributes.get("communicator", group or "world"))
        if group in self.members:
            return label, self.members[group]
        dims = node.attributes.get("involved_dim")
        if group in ("", "0") and (not isinstance(dims, list) or all(dims)):
            return label, range(self.world)
        return (label if group else f"dimensions {dims}"), None

    def _group(self, node: ChakraNode) -> str:
        value = node.attributes.get("pg_name", "")
        return "" if value is None else str(value)

    def _duration(self, node: ChakraNode) -> tuple[Provenance, int]:
        if node.duration_ns is None:
            return Provenance.UNKNOWN, 0
        said = str(node.attributes.get("provenance", "")).upper()
        if said in Provenance.__members__:
            return Provenance[said], node.duration_ns
        self.told["unsaid"] += 1
        return Provenance.MEASURED, node.duration_ns

    def _size(self, node: ChakraNode, *names: str) -> int:
        for name in names:
            if name in node.attributes:
                return self._whole(node, name, MOST_BYTES)
        return 0

    def _whole(self, node: ChakraNode, name: str, most: int = 2**24 - 1) -> int:
        value = node.attributes.get(name)
        found = whole(value)
        if found is None or found > most:
            raise TraceError(
                f"{self._named(node)}: attribute {name} {str(value)[:40]!r} found, expected a whole number "
                f"from 0 to {most:,}"
            )
        return found

    def _tagged(self, node: ChakraNode) -> bool:
        tag = node.attributes.get("comm_tag")
        if tag is not None and (not isinstance(tag, int) or isinstance(tag, bool)):
            raise TraceError(
                f"{self._named(node)}: attribute comm_tag {str(tag)[:40]!r} found, expected a whole number"
            )
        return tag is not None

    def _named(self, node: ChakraNode) -> str:
        return f"{self.trace.path}: node {node.id} ({node.name[:60]})"
