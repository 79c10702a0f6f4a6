"""What a slice of the timeline says about its op: category, name, arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prismcore.graph import (
    CopyDirection,
    DataType,
    Graph,
    OpKind,
    Provenance,
    Rank,
    Reduction,
)
from prismcore.graph.op import OpArray
from prismcore.report.perfetto import Argument, PerfettoWriter
from prismcore.report.units import format_bytes
from prismcore.report.words import kernel_label

__all__ = ["Labels"]

_REDUCING = (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER, OpKind.REDUCE)
_ROOTED = (OpKind.BROADCAST, OpKind.REDUCE, OpKind.GATHER, OpKind.SCATTER)
_MESSAGES = (OpKind.SEND, OpKind.RECV)
_NAMED_PARTS = 2  # of a grouped launch, in its name; more are counted


class Labels:
    """Labels of the ops of one rank at a time, encoded once for each different op."""

    def __init__(self, graph: Graph, writer: PerfettoWriter) -> None:
        self._graph = graph
        self._writer = writer
        self._kernels: dict[int, tuple[str, dict[str, Argument]]] = {}
        self._known: dict[Any, bytes] = {}
        self._ops: OpArray = np.empty(0)
        self._kinds: npt.NDArray[np.uint8] = np.empty(0, dtype=np.uint8)
        self._sites: Sequence[str] = ()
        self._slots: list[tuple[str, npt.NDArray[np.uint32], int]] = []

    def enter(self, rank: Rank, ops: OpArray, call_sites: Sequence[str]) -> None:
        """From here on, places are those of this rank's expanded `ops`."""
        self._ops, self._kinds, self._sites = ops, ops["kind"], call_sites
        self._slots = []
        for communicator, position in rank.bindings.tolist():
            found = self._graph.communicator(communicator)
            self._slots.append((found.name, found.members, position))

    def is_communication(self, places: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of the ops at `places` reach other ranks."""
        return self._kinds[places] >= OpKind.ALL_REDUCE

    def role(self, places: npt.NDArray[np.int64]) -> str:
        """What the stream that runs the ops at `places` is for, to be put behind its name."""
        if not len(places) or not bool(self.is_communication(places).all()):
            return ""
        names = {self._slots[slot][0] for slot in np.unique(self._ops["ref"][places]).tolist()}
        return f": {names.pop()}" if len(names) == 1 else ": communication"

    def device(self, place: int, block: int) -> bytes:
        """Of what an op does on its stream."""
        kind = int(self._kinds[place])
        if kind < OpKind.ALL_REDUCE:
            key = (kind, self._ops[place].tobytes())
            if key not in self._known:
                self._known[key] = self._writer.label(*self._work(place))
            return self._known[key]
        category, name, arguments = self._talk(place)
        arguments["call site"] = self._site(block)
        return self._writer.label(category, name, arguments)

    def group(self, places: Sequence[int], block: int, times: Sequence[tuple[int, int]]) -> bytes:
        """Of a grouped launch, with one argument a part."""
        parts = [self._talk(place) for place in places]
        names = [name for _, name, _ in parts]
        total = int(self._ops["bytes"][list(places)].sum())
        arguments: dict[str, Argument] = {"op": "group", "parts": len(parts), "bytes": total}
        for i, ((_, name, said), (start, end)) in enumerate(zip(parts, times, strict=True)):
            arguments[f"part {i}"] = f"{name}, {said['bytes']} B, {start} to {end} ns, {said['communicator']}"
        arguments["call site"] = self._site(block)
        if len(parts) <= _NAMED_PARTS:
            name = " + ".join(names)
        else:
            ops = [str(said["op"]) for _, _, said in parts]
            counted = [f"{ops.count(op)} {op}" if ops.count(op) > 1 else op for op in dict.fromkeys(ops)]
            name = f"{' + '.join(counted)}, {format_bytes(total)}"
        return self._writer.label("communication", name, arguments)

    def waiting(self, place: int) -> bytes:
        """Of the time between a rank's arrival and the start of the transfer."""
        name, members, _ = self._slots[int(self._ops[place]["ref"])]
        key = ("waiting", name, len(members))
        if key not in self._known:
            arguments: dict[str, Argument] = {"communicator": name, "ranks": len(members)}
            self._known[key] = self._writer.label("waiting", "waiting for other ranks", arguments)
        return self._known[key]

    def host(self, place: int, *, waits: bool = False) -> bytes:
        """Of the host's time in an op; ``waits``: of the part in which it waits for the device."""
        kind = OpKind(int(self._kinds[place]))
        op = self._ops[place]
        arguments: dict[str, Argument] = {}
        if kind == OpKind.KERNEL:
            name = "launch"
            arguments["kernel"] = self._kernel(int(op["ref"]))[0]
        elif kind.is_communication:
            name = f"launch {kind.name.lower()}"
        else:
            name = kind.name.lower()
            if kind in (
                OpKind.ALLOCATE,
                OpKind.FREE,
                OpKind.RESERVE,
                OpKind.RELEASE,
                OpKind.COPY,
                OpKind.SET,
            ):
                arguments["bytes"] = int(op["bytes"])
        if waits:
            name += ": waits"
        key = ("host", name, *arguments.values())
        if key not in self._known:
            self._known[key] = self._writer.label("host", name, arguments)
        return self._known[key]

    def _site(self, block: int) -> str:
        return self._sites[block] if block < len(self._sites) else ""

    def _work(self, place: int) -> tuple[str, str, dict[str, Argument]]:
        op = self._ops[place]
        kind = OpKind(int(op["kind"]))
        provenance = _provenance(op)
        if kind == OpKind.KERNEL:
            name, arguments = self._kernel(int(op["ref"]))
            return "kernel", name, {**arguments, "provenance": provenance}
        if kind == OpKind.COPY:
            direction = CopyDirection(int(op["detail"])).name.lower().replace("_", " ")
            return "copy", f"copy {direction}", {"bytes": int(op["bytes"]), "provenance": provenance}
        return (
            "copy" if kind == OpKind.SET else "host",
            kind.name.lower(),
            {
                "bytes": int(op["bytes"]),
                "provenance": provenance,
            },
        )

    def _kernel(self, id: int) -> tuple[str, dict[str, Argument]]:
        if id not in self._kernels:
            kernel = self._graph.kernel(id)
            name = kernel_label(kernel.name)
            arguments: dict[str, Argument] = {"kernel": kernel.name}
            if kernel.gemm is not None:
                gemm = kernel.gemm
                name += f" {gemm.m}x{gemm.n}x{gemm.k}"
                arguments |= {"m": gemm.m, "n": gemm.n, "k": gemm.k, "batch": gemm.batch}
            else:
                arguments["grid"] = "x".join(map(str, kernel.grid))
                arguments["block"] = "x".join(map(str, kernel.block))
                arguments["shared bytes"] = kernel.shared_bytes
            if kernel.dtype != DataType.NONE:
                arguments["dtype"] = kernel.dtype.name.lower()
            self._kernels[id] = (name, arguments)
        return self._kernels[id]

    def _talk(self, place: int) -> tuple[str, str, dict[str, Argument]]:
        op = self._ops[place]
        kind = OpKind(int(op["kind"]))
        communicator, members, position = self._slots[int(op["ref"])]
        size = int(op["bytes"])
        arguments: dict[str, Argument] = {
            "op": kind.name.lower(),
            "communicator": communicator,
            "ranks": len(members),
            "bytes": size,
        }
        name = f"{kind.name.lower()} {format_bytes(size)}"
        if op["dtype"] != DataType.NONE:
            arguments["dtype"] = DataType(int(op["dtype"])).name.lower()
        if kind in _REDUCING:
            arguments["reduction"] = Reduction(int(op["detail"])).name.lower()
        if kind in _MESSAGES:
            arguments["peer"] = int(members[(position + int(op["peer"])) % len(members)])
            arguments["tag"] = int(op["tag"])
            name += f" {'to' if kind == OpKind.SEND else 'from'} rank {arguments['peer']}"
        else:
            name += f", {communicator}"
            if kind in _ROOTED:
                arguments["root"] = int(members[int(op["peer"])])
        arguments["provenance"] = _provenance(op)
        return "communication", name, arguments


def _provenance(op: Any) -> str:
    return Provenance(int(op["flags"]) & 3).name.lower()
