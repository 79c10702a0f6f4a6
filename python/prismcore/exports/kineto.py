"""Replays as traces of torch's profiler (Chrome's JSON, gzip), one file a rank, for HTA and its like.

A kernel of NCCL begins where its rank arrives, and holds the waiting for the others, as a profiled one does.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from prismcore.exports.kineto_events import Names, call_of, device_properties, process_group, sync_of
from prismcore.exports.rank_times import RankTimes, replays
from prismcore.graph import Communicator, Graph, MarkKind, OpKind, Provenance
from prismcore.graph.op import OpFlag
from prismcore.graph.origin import MARK, PROVENANCE, export_mark

__all__ = ["KinetoSize", "write_kineto"]

_HOST_PID = 1_000_000  # above every device
_MAIN_THREAD = 1
_FLUSHED = 1 << 20
_WORK = (OpKind.KERNEL, OpKind.COPY, OpKind.SET)
_SOURCE = max(Provenance)  # mask of the flags
_SOURCES = [source.name.lower() for source in sorted(Provenance)]
_SYNCS = (OpKind.STREAM_SYNC, OpKind.EVENT_SYNC, OpKind.DEVICE_SYNC)


@dataclass(kw_only=True, slots=True, frozen=True)
class KinetoSize:
    """What was written."""

    ranks: int
    iterations: int
    events: int
    file_bytes: int


def write_kineto(folder: Path, graph: Graph, ranks: Sequence[int]) -> KinetoSize:
    """``rankN_trace.json.gz`` of each of `ranks` into a folder that is there; iterations are profiled steps.

    Raises what ``prismcore.replay`` does, OSError.
    """
    names = Names(graph)
    events = size = iterations = 0
    for result, some in replays(graph, ranks):
        iterations = len(result.iteration_time_ns)
        for times in some:
            path = folder / f"rank{times.rank.rank}_trace.json.gz"
            with path.open("wb") as raw, gzip.GzipFile("", "wb", 5, raw, mtime=0) as out:
                events += _write_rank(out, graph, times, names)  # type: ignore[arg-type]
            size += path.stat().st_size
    return KinetoSize(ranks=len(ranks), iterations=iterations, events=events, file_bytes=size)


def _write_rank(out: BinaryIO, graph: Graph, times: RankTimes, names: Names) -> int:
    rank = times.rank.rank
    communicator = lru_cache(None)(graph.communicator)
    groups = [communicator(id) for id in times.rank.bindings["communicator"].tolist()]
    info = {
        "backend": "nccl",
        "rank": rank,
        "world_size": graph.world_size,
        "pg_count": len(groups),
        "pg_config": [process_group(group) for group in groups],
    }
    properties = [{"id": 0, **device_properties(graph)}]
    out.write(
        f'{{"schemaVersion": 1, "{MARK}": {json.dumps(export_mark(graph))}, '
        f'"deviceProperties": {json.dumps(properties)}, '
        f'"distributedInfo": {json.dumps(info)}, "displayTimeUnit": "ms", "baseTimeNanoseconds": 0, '
        '"traceEvents": [\n'.encode()
    )
    events = _Events(out, _HOST_PID + rank)
    events.named(rank)
    _RankEvents(events, times, names, groups).write()
    events.flush()
    out.write(f'\n], "traceName": "rank{rank}_trace.json"}}\n'.encode())
    return events.count


class _Events:
    """Writes events, many at a time."""

    def __init__(self, out: BinaryIO, pid: int) -> None:
        self._out = out
        self._pid = pid
        self._parts: list[str] = []
        self._length = 0
        self.count = 0

    def named(self, rank: int) -> None:
        for pid, name in ((0, f"GPU of rank {rank}"), (self._pid, f"host of rank {rank}")):
            arguments = json.dumps({"name": name})
            self._add(f'{{"ph": "M", "name": "process_name", "pid": {pid}, "tid": 0, "args": {arguments}}}')

    def host(self, category: str, name: str, begin: int, end: int, arguments: str = "") -> None:
        self._span(category, name, (self._pid, _MAIN_THREAD), (begin, end), arguments)

    def call(self, name: str, begin: int, end: int, correlation: int) -> None:
        self.host("cuda_runtime", name, begin, end, f'"correlation": {correlation}')

    def device(
        self,
        said: tuple[str, str, str],
        stream: int,
        span: tuple[int, int],
        correlation: int,
        source: int,
    ) -> None:
        """``source``: provenance of the duration."""
        category, name, arguments = said
        place = (
            f'"device": 0, "stream": {stream}, "correlation": {correlation}, '
            f'"{PROVENANCE}": "{_SOURCES[source]}"'
        )
        self._span(category, name, (0, stream), span, f"{place}, {arguments}")

    def _span(
        self, category: str, name: str, where: tuple[int, int], span: tuple[int, int], arguments: str
    ) -> None:
        (pid, tid), (begin, end) = where, span
        length = end - begin
        self.count += 1
        self._add(
            f'{{"ph": "X", "cat": "{category}", "name": {json.dumps(name)}, "pid": {pid}, "tid": {tid}, '
            f'"ts": {begin // 1000}.{begin % 1000:03d}, "dur": {length // 1000}.{length % 1000:03d}, '
            f'"args": {{{arguments}}}}}'
        )

    def _add(self, event: str) -> None:
        self._parts.append(event)
        self._length += len(event)
        if self._length > _FLUSHED:
            self.flush(more=True)

    def flush(self, *, more: bool = False) -> None:
        self._out.write(",\n".join(self._parts).encode() + (b",\n" if more else b""))
        self._parts.clear()
        self._length = 0


class _RankEvents:
    """Events of one rank in the order of its program."""

    def __init__(
        self, events: _Events, times: RankTimes, names: Names, groups: Sequence[Communicator]
    ) -> None:
        self._events = events
        self._times = times
        self._names = names
        self._groups = groups
        self._correlation = 0

    def write(self) -> None:
        times, ops = self._times, self._times.ops
        starts, ends, hosts = times.start_ns.tolist(), times.end_ns.tolist(), times.host_ns.tolist()
        host = called = begin = step_begin = step = 0
        launch: list[int] = []
        for place, op in enumerate(ops.tolist()):
            number, flags, _, detail, ref, stream, _, _, host_ns, _, _, size = op
            kind = OpKind(number)
            if not launch:
                begin = called = host
            called += host_ns  # of all parts of a launch
            host = max(host, hosts[place])
            if kind in _WORK:
                self._correlation += 1
                self._events.call(call_of(kind), begin, called, self._correlation)
                said = self._names.work(kind, detail, ref, size)
                span = starts[place], ends[place]
                self._events.device(said, stream, span, self._correlation, flags & _SOURCE)
            elif kind.is_communication:
                launch.append(place)
                if flags & OpFlag.GROUP_CONTINUES:
                    continue
                self._launch(launch, begin, called)
                launch = []
            elif kind in _SYNCS:
                self._call(sync_of(kind), begin, host)
                continue
            elif kind == OpKind.EVENT_RECORD:
                self._call("cudaEventRecord", begin, called)
            elif kind == OpKind.EVENT_WAIT:
                self._call("cudaStreamWaitEvent", begin, called)
            elif kind == OpKind.MARK and detail == MarkKind.ITERATION:
                self._step(step, step_begin, host)
                step, step_begin = step + 1, host
            if host > called and (kind in _WORK or kind.is_communication):  # it blocks
                self._call(sync_of(kind), called, host)
        if not step:
            self._step(0, 0, max([host, *ends]))

    def _step(self, number: int, begin: int, end: int) -> None:
        self._events.host("user_annotation", f"ProfilerStep#{number}", begin, end)

    def _call(self, name: str, begin: int, end: int) -> None:
        self._correlation += 1
        self._events.call(name, begin, end, self._correlation)

    def _launch(self, places: list[int], before: int, called: int) -> None:
        """One kernel for each communicator and stream of a launch."""
        kernels: dict[tuple[int, int], list[int]] = {}
        for place in places:
            op = self._times.ops[place]
            kernels.setdefault((int(op["ref"]), int(op["stream"])), []).append(place)
        for (ref, stream), parts in kernels.items():
            self._correlation += 1
            self._events.call(call_of(OpKind.ALL_REDUCE), before, called, self._correlation)
            ops = self._times.ops[parts]
            described = [
                (OpKind(kind), dtype, detail, size)
                for kind, dtype, detail, size in ops[["kind", "dtype", "detail", "bytes"]].tolist()
            ]
            begin = int(self._times.arrive_ns[parts].min())
            end = int(np.max(self._times.end_ns[parts]))
            said = self._names.talk(described, self._groups[ref], self._message(parts))
            source = int((ops["flags"] & _SOURCE).min())  # of several the weakest
            self._events.device(said, stream, (begin, end), self._correlation, source)
            before = called

    def _message(self, places: list[int]) -> tuple[int, int] | None:
        """Places, among the members, that a single message goes from and to."""
        op = self._times.ops[places[0]]
        if len(places) > 1 or op["kind"] not in (OpKind.SEND, OpKind.RECV):
            return None
        slot = int(op["ref"])
        own = int(self._times.rank.bindings["position"][slot])
        other = (own + int(op["peer"])) % self._groups[slot].size
        return (own, other) if op["kind"] == OpKind.SEND else (other, own)
