"""Execution traces alone as a graph: what was launched in which order, and who waited for whom.

No duration is known. Communication is costed by the model of ``prismcore.comm``; computation counts as 0
(provenance ``unknown``) and holds its name and, of a matrix product, its dimensions, so that a replay on a
device profile can cost it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from prismcore.errors import TraceError
from prismcore.graph import DataType, Gemm, Graph, Kernel, OpKind
from prismcore.profiles.cluster import ClusterProfile
from prismcore.rank_list import absent_words, format_absent, format_ranks
from prismcore.traces.collectives import NAMED, Collective, kind_of_call, told_of_many
from prismcore.traces.execution_trace import ExecutionTrace
from prismcore.traces.execution_trace_calls import COMMUNICATION, DTYPES, Call
from prismcore.traces.execution_trace_groups import Communicator, communicators_of, place_ranks
from prismcore.traces.messages import Message
from prismcore.traces.op_columns import OpColumns

__all__ = ["graph_of_execution_traces"]

_COMPUTE = 1
_HOST = ("cpu", "meta")  # devices whose ops are host work
_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")
#: Ops that launch nothing themselves: views, metadata, memory of the framework, wrappers of others.
_VIEWS = """
    _has_compatible_shallow_copy_type _reshape_alias _unsafe_view alias as_strided chunk contiguous detach
    detach_ diagonal empty empty_like empty_strided expand expand_as flatten is_nonzero is_same_size item
    lift_fresh movedim narrow new_empty new_empty_strided numpy_T permute record_stream reshape resize_
    resolve_conj resolve_neg result_type select set_ size slice split squeeze stride swapaxes t to transpose
    unbind unfold unsqueeze view view_as
""".split()  # noqa: SIM905
_NO_KERNEL = {"detach", "detach_", *(f"aten::{name}" for name in _VIEWS)}
_PRODUCTS = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1, "aten::_scaled_mm": 0}


def graph_of_execution_traces(
    traces: Sequence[ExecutionTrace], cluster: ClusterProfile
) -> tuple[Graph, list[str]]:
    """The graph, and what to distrust in it.

    Raises TraceError where ranks are not told, or the traces hold neither work on a device nor
    communication.
    """
    traces = place_ranks(traces)
    columns = OpColumns(warnings=told_of_many([text for trace in traces for text in trace.warnings]))
    shared = communicators_of(traces, columns.warnings)
    numbers = _common_steps(traces, columns.warnings)
    columns.labels = [f"step {number}" for number in numbers] or ["step 0"]
    kernels = 0
    for trace in traces:
        rank = trace.rank or 0
        mine = {key: of for (r, key), of in shared.items() if r == rank}
        kernels += _RankOps(trace, rank, mine, columns).run(numbers)
    if not kernels and not columns.collectives and not columns.messages:
        raise TraceError(
            f"{traces[0].path}: neither work on a device nor communication found in these traces, expected "
            f"those of a job on GPUs{_why_none(traces)}"
        )
    world = max([columns.rank[-1] + 1, *(m + 1 for of in shared.values() for m in of.members or ())])
    world = max([world, *(of.size or 0 for of in shared.values())])
    absent = format_absent(sorted(set(columns.rank)), range(world), most=NAMED)
    if absent:
        columns.warnings.append(absent_words(absent, f"{world:,}", "trace"))
    ops, _ = columns.matched()
    modelled = columns.model(cluster, ops)
    notes = [*columns.warnings]  # less what reports tell of the graph
    if kernels:
        columns.warnings.append(
            f"{kernels:,} ops on the device have no duration in execution traces and count as 0: a replay "
            "shows communication alone. Give the Kineto traces of the same run (--kineto), or replay with a "
            "device profile (--profile), which costs what it knows by name"
        )
    if modelled:
        columns.warnings.append(
            f"{modelled:,} communication ops have no duration in execution traces and take that of the model "
            f"of cluster {cluster.name}"
        )
    metadata: dict[str, Any] = {
        "imported_from": "pytorch-et",
        "notes": notes,
    }
    if modelled:
        metadata |= {"modelled_communication": modelled, "modelled_by": cluster.name}
    graph = columns.graph(world_size=world, matched=ops, waits=columns.wait_table(), metadata=metadata)
    return graph, columns.warnings


def _why_none(traces: Sequence[ExecutionTrace]) -> str:
    """Why there is no device work, as far as the traces say."""
    devices = sorted({d for trace in traces for of in trace.devices for d in of.split(",") if d})
    backends = sorted({g.backend for trace in traces for g in trace.groups.values() if g.backend})
    reasons = []
    if devices:
        reasons.append(f"all their tensors are on {' and '.join(devices)}")
    if backends:
        reasons.append(f"their process groups are of backend {' and '.join(backends)}")
    return f": {', and '.join(reasons)}" if reasons else ""


def _common_steps(traces: Sequence[ExecutionTrace], warnings: list[str]) -> list[int]:
    """Numbers of ``ProfilerStep#N`` in all traces; none: all is one step."""
    of = [[int(m[1]) for name in trace.name if (m := _STEP.match(name))] for trace in traces]
    common = set.intersection(*map(set, of))
    left_out = sorted({number for numbers in of for number in numbers} - common)
    if left_out:
        warnings.append(
            f"steps {format_ranks(left_out)} are not in all execution traces, and are left out"
            if common
            else "no profiled step is in all execution traces; each is taken as one step"
        )
    return sorted(common)


class _RankOps:
    """Adds the ops of one rank, in the order in which the host began them."""

    def __init__(
        self, trace: ExecutionTrace, rank: int, shared: dict[Any, Communicator], columns: OpColumns
    ) -> None:
        self.trace, self.rank, self.shared, self.columns = trace, rank, shared, columns
        self.lanes: dict[str, int] = {}
        self.pending: dict[int, int] = {}  #: lane -> row that the compute stream waits for
        self.last = -1  #: row on the compute stream
        self.flying: dict[int, list[tuple[int, int]]] = {}  #: number -> lane and row, oldest first
        self.waited = {call.number for call in trace.calls if call.name == "wait"}
        self.unknown: dict[str, int] = {}

    def run(self, steps: Sequence[int]) -> int:
        """Returns how many kernels it added."""
        trace = self.trace
        work = _works(trace)
        calls = {call.node: call for call in trace.calls}
        order = {number: i for i, number in enumerate(steps)}
        step = None if steps else 0
        kernels = 0
        for node, name in enumerate(trace.name):
            match = _STEP.match(name)
            if match and steps:
                if step is not None:
                    self.columns.mark(self.rank, step)
                step = order.get(int(match[1]))
            elif step is None:
                continue
            elif node in calls:
                self._communicate(calls[node])
            elif work[node]:
                self._compute(node)
                kernels += 1
        if step is not None:
            self.columns.mark(self.rank, step)
        if self.unknown:
            named = ", ".join(f"{name} ({count:,})" for name, count in sorted(self.unknown.items())[:5])
            self.columns.warnings.append(
                f"rank {self.rank}: calls of torch.distributed that move no data here, or are not known, are "
                f"left out: {named}"
            )
        return kernels

    def _compute(self, node: int) -> None:
        kernel = _kernel(self.trace, node)
        self.last = self.columns.add(
            self.rank, _COMPUTE, OpKind.KERNEL, kernel=kernel, dtype=kernel.dtype, waits=self.pending
        )

    def _communicate(self, call: Call) -> None:
        if call.name == "wait":
            flying = self.flying.get(call.number)
            if flying:
                lane, row = flying.pop()
                self.pending[lane] = max(self.pending.get(lane, -1), row)
            return
        kind = kind_of_call(call.name)
        if kind is None:
            self.unknown[call.name] = self.unknown.get(call.name, 0) + 1
            return
        of = self.shared[call.group]
        members = of.members or _assumed(self.rank, of.size)
        if kind in (OpKind.SEND, OpKind.RECV):
            if call.peer is None or call.peer >= len(members):
                self.unknown[call.name] = self.unknown.get(call.name, 0) + 1
                return
            other = members[call.peer]
            lane = self._lane(f"{of.name} {kind.name} {other}")
            row = self._row(kind, lane, call)
            here, there = (self.rank, other) if kind == OpKind.SEND else (other, self.rank)
            self.columns.messages.append(
                Message(
                    row=row,
                    communicator=(of.name, members),
                    source=here,
                    target=there,
                    sends=kind == OpKind.SEND,
                    tag=0,
                    bytes=call.bytes,
                )
            )
            self.columns.unmeasured[row] = (self.rank, other)
        else:
            lane = self._lane(of.name)
            row = self._row(kind, lane, call)
            self.columns.collectives.setdefault(self.rank, []).append(
                Collective(
                    row=row,
                    communicator=(of.name, of.members),
                    kind=int(kind),
                    bytes=call.bytes,
                    number=call.number,
                )
            )
            self.columns.unmeasured[row] = members
        if call.number in self.waited:
            self.flying.setdefault(call.number, []).append((lane, row))
        else:  # nobody waits by name: on the caller's stream
            self.pending[lane] = row

    def _row(self, kind: OpKind, lane: int, call: Call) -> int:
        waits = {on: row for on, row in self.pending.items() if on != lane}
        if self.last >= 0:
            waits[_COMPUTE] = self.last
        return self.columns.add(self.rank, lane, kind, bytes=call.bytes, dtype=call.dtype, waits=waits)

    def _lane(self, name: str) -> int:
        return self.lanes.setdefault(name, len(self.lanes) + 2)


def _works(trace: ExecutionTrace) -> list[bool]:
    """Which nodes launch something on a device: ops on its tensors none of whose parts does."""
    on_device = [any(not d.startswith(_HOST) for d in of.split(",")) if of else False for of in trace.devices]
    place = {id: at for at, id in enumerate(trace.id.tolist())}
    parents = [place.get(id, -1) for id in trace.parent.tolist()]
    records = {at for at, name in enumerate(trace.name) if name == COMMUNICATION}
    inside = [False] * len(parents)  # work is somewhere below
    work = [False] * len(parents)
    leaf = [True] * len(parents)
    for parent in parents:
        if parent >= 0:
            leaf[parent] = False
    for at in range(len(parents) - 1, -1, -1):
        name, parent = trace.name[at], parents[at]
        communicates = at in records or parent in records or name.startswith(("nccl:", "c10d::", "gloo:"))
        launches = (
            on_device[at]
            and not inside[at]
            and not communicates
            and name not in _NO_KERNEL
            and (leaf[at] or name.startswith("aten::"))
        )
        work[at] = launches
        if parent >= 0 and (launches or inside[at] or communicates):
            inside[parent] = True
    return work


def _kernel(trace: ExecutionTrace, node: int) -> Kernel:
    name = trace.name[node]
    at = _PRODUCTS.get(name)
    if at is None:
        return Kernel(name=name)
    shapes = trace.shapes[node][at : at + 2]
    if len(shapes) < 2 or not all(
        isinstance(shape, list)
        and 2 <= len(shape) <= 3
        and all(type(n) is int and 0 < n < 2**31 for n in shape)
        for shape in shapes
    ):
        return Kernel(name=name)
    (*batch, m, k), (*_, n) = shapes
    dtype = re.search(r"Tensor\(([^()]*)\)", str(trace.types[node][at : at + 1]))
    return Kernel(
        name=name,
        gemm=Gemm(m=m, n=n, k=k, batch=batch[0] if batch else 1),
        dtype=DTYPES.get(dtype[1].lower(), DataType.NONE) if dtype else DataType.NONE,
    )


def _assumed(rank: int, size: int | None) -> tuple[int, ...]:
    """Members of a group that is not told, for the cost of its collectives: neighbours of the rank."""
    size = min(size or 1, 2**20)
    first = rank - rank % size
    return tuple(np.arange(first, first + size).tolist())
