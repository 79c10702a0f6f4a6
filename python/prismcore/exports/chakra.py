"""Graphs as Chakra execution traces: one file a rank, as MLCommons' schema has them.

A trace holds no times but durations, and what each node waits for; so no replay is needed, and a rank is
written alone, op by op.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from prismcore.exports.chakra_lanes import HOST, Lanes
from prismcore.exports.chakra_nodes import (
    Talk,
    Vocabulary,
    call_site_attr,
    global_metadata,
    launch_attr,
    members_attr,
    node,
)
from prismcore.graph import Graph, OpKind, Rank
from prismcore.graph.op import OpFlag

__all__ = ["ChakraSize", "write_chakra", "write_chakra_rank"]

_CACHED_BLOCKS = 1024
_ON_STREAMS = (OpKind.KERNEL, OpKind.COPY, OpKind.SET, OpKind.HOST_CALLBACK)
_Ops = list[tuple[int, ...]]


@dataclass(kw_only=True, slots=True, frozen=True)
class ChakraSize:
    """What was written."""

    ranks: int
    nodes: int
    file_bytes: int


def write_chakra(folder: Path, graph: Graph, ranks: Sequence[int]) -> ChakraSize:
    """``chakra.N.et`` of each of `ranks`, and ``comm_groups.json`` of the communicators in them, into a
    folder that is there. Raises GraphError for ranks that the graph does not hold, OSError."""
    vocabulary = Vocabulary(graph)
    groups: dict[int, Talk] = {}
    nodes = size = 0
    for rank in ranks:
        path = folder / f"chakra.{rank}.et"
        with path.open("wb") as out:
            nodes += write_chakra_rank(out, graph, rank, vocabulary, groups)
        size += path.stat().st_size
    named = {groups[id].pg_name: list(groups[id].members) for id in sorted(groups)}
    (folder / "comm_groups.json").write_text(json.dumps(named) + "\n")
    return ChakraSize(ranks=len(ranks), nodes=nodes, file_bytes=size)


def write_chakra_rank(
    out: BinaryIO,
    graph: Graph,
    rank: int,
    vocabulary: Vocabulary | None = None,
    groups: dict[int, Talk] | None = None,
) -> int:
    """The trace of one rank; how many nodes. Memory does not follow its length.

    ``vocabulary`` of the graph, to be given again for its next rank; ``groups`` takes the communicators that
    the rank uses, by id.
    """
    view = graph.rank(rank)
    slots = _slots(graph, view)
    vocabulary = vocabulary or Vocabulary(graph)
    vocabulary.enter(slots)
    metadata: list[tuple[str, int | str]] = [
        ("schema", "prismcore"),
        ("rank", rank),
        ("world_size", graph.world_size),
        ("iterations", graph.iterations),
        ("metadata", json.dumps(graph.metadata, sort_keys=True)),
    ]
    out.write(global_metadata(metadata))
    trace = _RankTrace(out, vocabulary, slots, Lanes(_distances(graph, view.program)))
    for ops, site in _blocks(graph, view.program):
        trace.block(ops, site)
    trace.flush()
    if groups is not None:
        for slot in sorted(trace.used):
            groups[int(view.bindings["communicator"][slot])] = slots[slot]
    return trace.nodes


class _RankTrace:
    """Writes the ops of one rank, in order, as nodes."""

    def __init__(self, out: BinaryIO, vocabulary: Vocabulary, slots: Sequence[Talk], lanes: Lanes) -> None:
        self._out = out
        self._vocabulary = vocabulary
        self._slots = slots
        self._lanes = lanes
        self._spent = 0  # host time that no node stands for yet
        self.nodes = 0
        self.used: set[int] = set()

    def block(self, ops: _Ops, site: str) -> None:
        launch: _Ops = []
        for op in ops:
            kind, flags, _, detail, ref, stream, event_stream, peer, host_ns, _, duration_ns, _ = op
            self._spent += host_ns
            if kind >= OpKind.ALL_REDUCE:
                launch.append(op)
                if not flags & OpFlag.GROUP_CONTINUES:
                    self._communicate(launch, site)
                    launch = []
            elif kind in _ON_STREAMS:
                self._run(op)
            elif kind == OpKind.HOST_GAP:
                self._spent += duration_ns
            elif kind == OpKind.EVENT_RECORD:
                self._lanes.record(stream)
            elif kind == OpKind.EVENT_WAIT:
                self._lanes.wait(stream, self._lanes.recorded(event_stream, peer))
            elif kind == OpKind.STREAM_SYNC:
                self._wait(OpKind.STREAM_SYNC, self._lanes.of(stream))
            elif kind == OpKind.EVENT_SYNC:
                self._wait(OpKind.EVENT_SYNC, self._lanes.recorded(event_stream, peer))
            elif kind == OpKind.DEVICE_SYNC:
                self._wait(OpKind.DEVICE_SYNC, self._lanes.all())
            elif kind == OpKind.MARK:
                self.flush()
                self._host(self._vocabulary.mark(detail, ref))

    def flush(self) -> None:
        """Host time so far as a node."""
        if self._spent:
            spent, self._spent = self._spent, 0
            self._host(self._vocabulary.host(OpKind.HOST_GAP, spent))

    def _wait(self, kind: OpKind, clock: dict[int, tuple[int, ...]]) -> None:
        if clock:
            self.flush()
            self._lanes.host_waits(clock)
            self._host(self._vocabulary.host(kind))

    def _host(self, saying: Any) -> None:
        id = self._write(saying, self._lanes.ready(()))
        self._lanes.host_ran(id)

    def _run(self, op: tuple[int, ...]) -> None:
        self.flush()
        stream = op[5]
        id = self._write(self._vocabulary.device((*op[:6], op[10], op[11])), self._lanes.ready((stream,)))
        self._ran((stream,), (id,), blocking=bool(op[1] & OpFlag.BLOCKING))

    def _communicate(self, launch: _Ops, site: str) -> None:
        self.flush()
        streams = sorted({op[5] for op in launch})
        deps = self._lanes.ready(streams)
        first = self.nodes + 1
        more = call_site_attr(site) + (launch_attr(first) if len(launch) > 1 else b"")
        for op in launch:
            kind, flags, dtype, detail, ref, stream, _, peer, _, tag, duration_ns, size = op
            saying = self._vocabulary.talk(
                (kind, flags, dtype, detail, ref, stream, duration_ns, size, peer, tag)
            )
            new = members_attr(self._slots[ref].members) if ref not in self.used else b""
            self.used.add(ref)
            self._write(saying, deps, new + more)
        blocking = any(op[1] & OpFlag.BLOCKING for op in launch)
        self._ran(streams, tuple(range(first, self.nodes + 1)), blocking=blocking)

    def _ran(self, streams: Sequence[int], ids: tuple[int, ...], *, blocking: bool) -> None:
        self._lanes.ran(streams, ids)
        if blocking:
            self._lanes.host_waits({streams[0]: ids})

    def _write(self, saying: Any, deps: list[int], more: bytes = b"") -> int:
        self.nodes += 1
        self._out.write(node(self.nodes, saying, self._lanes.host.get(HOST, ()), deps, more))
        return self.nodes


def _slots(graph: Graph, view: Rank) -> list[Talk]:
    """Communicators of a rank. Their numbers are above 0: to ASTRA-sim group 0 is the whole world."""
    found = []
    for id, position in view.bindings.tolist():
        communicator = graph.communicator(id)
        members = communicator.members.tolist()
        found.append(Talk(pg_name=str(id + 1), name=communicator.name, members=members, position=position))
    return found


def _distances(graph: Graph, program: int) -> dict[int, int]:
    """By stream, how many of its records back an op of the program looks."""
    found: dict[int, int] = {}
    for block in np.unique(graph.program_blocks(program)).tolist():
        ops = graph.block(block)
        looks = ops[(ops["kind"] == OpKind.EVENT_WAIT) | (ops["kind"] == OpKind.EVENT_SYNC)]
        for stream in np.unique(looks["event_stream"]).tolist():
            farthest = int(looks["peer"][looks["event_stream"] == stream].max())
            found[stream] = max(found.get(stream, 0), farthest)
    return found


def _blocks(graph: Graph, program: int) -> Iterator[tuple[_Ops, str]]:
    read: Callable[[int], _Ops] = functools.lru_cache(_CACHED_BLOCKS)(
        lambda block: graph.block(block).tolist()
    )
    sites = graph.program_call_sites(program)
    for position, block in enumerate(graph.program_blocks(program).tolist()):
        yield read(block), sites[position] if position < len(sites) else ""
