"""Traces of torch's profiler, one file a rank, stitched into one graph.

What a trace tells: when each device op ran, which host call launched it, and when the host waited. Which
stream waited for which it tells only with ``cuda_sync`` events; else that is taken from the times of all
its ops (``stitch.waits``). Host time between calls is kept as measured.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from prismcore.errors import TraceError
from prismcore.graph import DataType, Graph, Kernel, OpKind
from prismcore.rank_list import MAX_RANK, absent_words, format_absent, format_ranks, named_ranks
from prismcore.stitch.clocks import find_clocks, set_clocks
from prismcore.stitch.meetings import Meetings
from prismcore.stitch.programs import RowOps, build_graph
from prismcore.stitch.rows import Ints, Rows, last_before
from prismcore.stitch.timing import Timing, drop_circles, time_rows
from prismcore.stitch.waits import Waits, shown_waits
from prismcore.traces.collectives import Communicators, Members, find_meetings
from prismcore.traces.kineto_file import KinetoTrace, read_kineto
from prismcore.traces.kineto_kernels import copy_directions, kernels_of
from prismcore.traces.kineto_meetings import told_of
from prismcore.traces.kineto_messages import eager_sends, match_messages
from prismcore.traces.kineto_ops import HOST, device_events
from prismcore.traces.kineto_origin import graph_origin, provenance_of
from prismcore.traces.kineto_rows import (
    NoWorkError,
    RankRows,
    common_steps,
    join_rows,
    rows_of,
    waited_rows,
)
from prismcore.traces.trace_files import read_trace_files

__all__ = ["MeasuredTraces", "read_kineto_set", "stitch_kineto"]

NAMED = 20  # ranges of ranks in a warning
NOISE_NS = 2000  # of times of one device: whole microseconds in older traces


@dataclass(kw_only=True, slots=True)
class MeasuredTraces:
    """Steps of all ranks, stitched. Times count from the earliest begin of the first step."""

    steps: list[int]  #: numbers
    world_size: int
    rows: Rows
    ops: RowOps
    meetings: Meetings
    named: Ints  #: of device ops: number of their name in ``ops.kernels``
    told_members: list[Members | None]  #: of ``ops.communicators``; None: taken from the traces
    waits: Waits
    timing: Timing
    measured_end_ns: Ints  #: [ranks, steps]: when host and device had come to the end of each step
    warnings: list[str]
    origin: dict[str, Any]  #: metadata: the device, and where exported traces come from
    format: str = "kineto"  #: as ``prism import`` names it

    @property
    def exported(self) -> bool:
        """Whether the traces are of a replay (``prism export``), and not of a run."""
        return "exported_from" in self.origin

    def graph(self) -> Graph:
        """The steps as iterations of a graph."""
        metadata: dict[str, Any] = {"imported_from": self.format, "notes": self.warnings, **self.origin}
        if not self.exported:
            ends = self.measured_end_ns.max(axis=0)
            metadata["measured_iteration_time_ns"] = np.diff(ends, prepend=0).tolist()
        if self.format != "kineto":
            metadata["times_from"] = "kineto"
        return build_graph(
            self.rows,
            self.ops,
            self.waits,
            self.timing,
            world_size=self.world_size,
            steps=[f"step {number}" for number in self.steps],
            metadata=metadata,
        )


def read_kineto_set(paths: Sequence[str | os.PathLike[str]]) -> list[KinetoTrace]:
    """Reads the traces of a job, by rank. A folder stands for all that are traces of the ``*.json`` and
    ``*.json.gz`` in it, a tar archive alike; others there are told in a warning.

    Raises TraceError where one cannot be read, two are of one rank, the rank of one of several is not told
    by the trace or its name, or a folder or archive holds no trace.
    """
    if not paths:
        raise TraceError("no traces given, expected one file a rank")
    traces, warnings = read_trace_files(
        [Path(path) for path in paths], "kineto", lambda file: read_kineto(file.path, name=file.name)
    )
    traces[0].warnings += warnings
    return _by_rank(traces)


def _by_rank(traces: list[KinetoTrace]) -> list[KinetoTrace]:
    if len(traces) == 1 and traces[0].rank is None:
        traces[0].rank = 0
    by_rank: dict[int, KinetoTrace] = {}
    for trace in traces:
        if trace.rank is None:
            raise TraceError(
                f"{trace.path}: the rank is not told by the trace (distributedInfo), nor by its name; "
                "expected a name as rank3_trace.json"
            )
        if max(trace.rank, (trace.world_size or 1) - 1) > MAX_RANK:
            what = f"rank {trace.rank:,}" if trace.rank > MAX_RANK else f"world size {trace.world_size:,}"
            raise TraceError(f"{trace.path}: {what} found, expected ranks from 0 to {MAX_RANK:,}")
        other = by_rank.setdefault(trace.rank, trace)
        if other is not trace:
            raise TraceError(
                f"{trace.path}: rank {trace.rank} found, which {other.path} is as well; expected one file a "
                "rank: where the profiler ran for several cycles (step numbers in the names), import one of "
                "them at a time"
            )
    return [by_rank[rank] for rank in sorted(by_rank)]


def stitch_kineto(traces: Sequence[KinetoTrace]) -> MeasuredTraces:
    """Stitches the traces of a job; what is missing or cannot be matched is told in ``warnings``.

    Raises TraceError where no device work is found, or no step is in all traces.
    """
    warnings = [text for trace in traces for text in trace.warnings]
    ranks = [trace.rank for trace in traces if trace.rank is not None]
    world_size = max([ranks[-1] + 1, *(trace.world_size or 0 for trace in traces)])
    if absent := format_absent(ranks, range(world_size), most=NAMED):
        missing = absent_words(absent, f"{world_size:,}", "trace")
        warnings.append(f"{missing}; transfers of the others may hold waiting for the missing")
    numbers, parts = _working(traces, warnings)
    rows = join_rows(parts)
    kind = np.concatenate([part.kind for part in parts])
    sizes, dtypes = np.zeros(len(kind), dtype=np.int64), np.full(len(kind), int(DataType.NONE))
    meetings, communicators, peer = _meetings(parts, rows, kind, (sizes, dtypes), warnings)
    _share_clock(rows, parts, meetings, kind, warnings)
    waits = _waits(rows, parts)
    circles = drop_circles(rows, waits, meetings, hosts=1)
    if circles:
        warnings.append(
            f"{circles:,} waits between streams that contradict the order of collectives are left out"
        )
    timing = time_rows(rows, waits, meetings)
    warnings += timing.warnings
    if timing.late and (eager := eager_sends(rows, meetings, kind)):
        warnings.append(
            f"{eager:,} sends ended before their receive began (small messages do not wait); in the graph "
            "they wait for it, and end later than measured, as what follows them does"
        )
    kernels, refs, directions = _named(parts)
    meets = communicators.ref >= 0
    return MeasuredTraces(
        steps=numbers,
        world_size=world_size,
        rows=rows,
        ops=RowOps(
            kind=np.where((kind >= OpKind.ALL_REDUCE) & ~meets, int(OpKind.KERNEL), kind),
            ref=np.where(meets, communicators.ref, refs),
            peer=peer,
            tag=np.zeros(len(kind), dtype=np.int64),
            kernels=kernels,
            communicators=communicators.communicators,
            bytes=sizes,
            dtype=dtypes,
            detail=directions,
            provenance=provenance_of(parts),
            has_host=True,
        ),
        meetings=meetings,
        named=refs,
        told_members=communicators.told,
        waits=waits,
        timing=timing,
        measured_end_ns=_step_ends(rows, kind),
        warnings=warnings,
        origin=graph_origin([part.trace for part in parts], numbers, warnings),
    )


def _working(traces: Sequence[KinetoTrace], warnings: list[str]) -> tuple[list[int], list[RankRows]]:
    """Numbers of the steps, and the rows of each rank whose device worked in them."""
    working = [t for t in traces if len(device_events(t))]
    idle = [t.rank or 0 for t in traces if t not in working]
    numbers, spans = common_steps(working or traces, warnings)
    parts: list[RankRows] = []
    refused: NoWorkError | None = None
    for trace, of in zip(working or traces, spans, strict=True):
        try:
            parts.append(rows_of(trace, of, warnings))
        except NoWorkError as error:
            refused = refused or error
            idle.append(trace.rank or 0)
    if not parts and refused is not None:
        raise refused
    if idle:
        warnings.append(f"{named_ranks(idle, most=NAMED)} without GPU activity, left out")
    return numbers, parts


def _meetings(
    parts: Sequence[RankRows], rows: Rows, kind: Ints, payload: tuple[Ints, Ints], warnings: list[str]
) -> tuple[Meetings, Communicators, Ints]:
    """Meetings, communicators, and the other side of each message; enters bytes and, of all members the
    first's, types of elements into ``payload``."""
    sizes, dtypes = payload
    offset = 0
    found, sides = [], []
    lost = 0
    for part in parts:
        at = np.flatnonzero((part.kept >= 0) & (part.kind >= OpKind.ALL_REDUCE))
        row_of = {int(part.kept[i]): i + offset for i in at.tolist()}
        told = told_of(part.trace, part.ops, part.kept[at].tolist(), warnings)
        for collective in told.collectives:
            collective.row = row_of[collective.row]
        for side in told.sides:
            side.row = row_of[side.row]
            sizes[side.row] = side.bytes
        lost += len(told.lost)
        moved = np.flatnonzero((part.kept >= 0) & ((part.kind == OpKind.COPY) | (part.kind == OpKind.SET)))
        sizes[moved + offset] = np.maximum(part.trace.bytes[part.ops.event[part.kept[moved]]], 0)
        found.append((part.rank, told.collectives))
        sides.append((part.rank, told.sides))
        offset += len(part.kept)
    if lost:
        warnings.append(
            f"{lost:,} sends and receives do not tell their other side; they keep their measured times, "
            "waiting included"
        )
    meetings, communicators = find_meetings(found, len(kind), warnings, times=rows)
    for _, collectives in found:
        for collective in collectives:
            sizes[collective.row] = collective.bytes or 0
            dtypes[collective.row] = collective.dtype
    dtypes[:] = dtypes[np.unique(meetings.id, return_index=True)[1]][meetings.id]
    ids = meetings.id.copy()
    present = sorted(part.rank for part in parts)
    peer = match_messages(sides, present, ids, communicators, warnings, times=rows)
    numbers = np.unique(ids, return_inverse=True)[1].reshape(-1)
    return Meetings(id=numbers, size=np.bincount(numbers)[numbers]), communicators, peer


def _share_clock(
    rows: Rows, parts: Sequence[RankRows], meetings: Meetings, kind: Ints, warnings: list[str]
) -> None:
    """Brings ranks to one clock where theirs differ by more than noise; times then count from the earliest
    begin of the first step."""
    loose = np.isin(kind, (OpKind.SEND, OpKind.RECV, OpKind.BROADCAST, OpKind.REDUCE))
    clocks = find_clocks(rows, meetings, loose)
    roots = np.unique(clocks.component)
    if len(roots) > 1:
        shown = "; ".join(
            format_ranks(clocks.ranks[clocks.component == root].tolist(), most=NAMED)
            for root in roots[:8].tolist()
        )
        more = "; ..." if len(roots) > 8 else ""
        warnings.append(
            f"ranks {shown}{more} share no collective: how their clocks differ cannot be told, and "
            "they are taken as they are"
        )
    moved = set_clocks(rows, clocks)
    if moved.any():
        differ = clocks.ranks[np.abs(moved) > 0]
        warnings.append(
            f"clocks of ranks {format_ranks(differ.tolist(), most=NAMED)} differ from that of the lowest "
            "rank they are linked to by collectives; they are moved so that collectives end together"
        )
    begins = np.array([part.spans[0].start_ns for part in parts])
    earliest = min(int((begins - begins.min() - moved).min()), int(rows.start_ns.min()))
    rows.start_ns -= earliest
    rows.end_ns -= earliest


def _waits(rows: Rows, parts: Sequence[RankRows]) -> Waits:
    """Device ops wait for the call that launched them and the one before on their stream, the host for what
    it saw the end of; other streams are waited for as the trace tells, else where the times show it for
    all ops alike."""
    lanes = int(rows.lane.max()) + 1
    host = rows.lane == HOST
    collective = np.concatenate([part.kind >= OpKind.ALL_REDUCE for part in parts])
    after = np.concatenate([(part.kept >= 0) & part.ops.after_wait[part.kept] for part in parts])
    types = np.where(host, 0, 1 + rows.lane * 4 + collective * 2 + after)
    waits = shown_waits(rows, types.astype(np.int64), lanes, noise_ns=NOISE_NS)
    waits[host, 1:] = -1
    told = np.repeat([part.ops.waits_told for part in parts], [len(part.kept) for part in parts])
    index = np.arange(len(rows.rank))
    own = waits[index, rows.lane]
    waits[told & ~host] = -1
    waits[index, rows.lane] = own
    pairs = waited_rows(parts)
    np.maximum.at(waits, (pairs[:, 0], rows.lane[pairs[:, 1]]), pairs[:, 1])
    launched = last_before(rows, host)
    waits[~host, HOST] = launched[~host]
    return waits


def _step_ends(rows: Rows, kind: Ints) -> Ints:
    """Shape [ranks, steps]: the latest end, of host and streams, of all rows up to each step's."""
    ends = []
    for rank in np.unique(rows.rank).tolist():
        mine = rows.rank == rank
        ends.append(np.maximum.accumulate(rows.end_ns[mine])[kind[mine] == OpKind.MARK])
    return np.array(ends)


def _named(parts: Sequence[RankRows]) -> tuple[list[Kernel], Ints, Ints]:
    """Kernels, and for each row the number of its own, of a mark that of its step; directions of copies."""
    kernels: dict[Kernel, int] = {}
    refs, details = [], []
    for part in parts:
        ref = np.where(part.kind == OpKind.MARK, part.step, 0)
        rows = np.flatnonzero((part.kept >= 0) & (part.lane != HOST))
        found, number = kernels_of(part.trace, part.ops, part.kept[rows])
        ref[rows] = np.array([kernels.setdefault(k, len(kernels)) for k in found], dtype=np.int64)[number]
        refs.append(ref)
        detail = np.zeros(len(ref), dtype=np.int64)
        copies = np.flatnonzero((part.kept >= 0) & (part.kind == OpKind.COPY))
        detail[copies] = copy_directions(part.trace, part.ops.event[part.kept[copies]])
        details.append(detail)
    return list(kernels), np.concatenate(refs), np.concatenate(details)
