"""Traces of torch's profiler, one file a rank, stitched into one graph.

What a trace tells: when each device op ran, which host call launched it, and when the host waited. What
it does not tell is which stream waited for which: that is taken from the times of all its ops
(``stitch.waits``). Host time between calls is kept as measured.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prismcore.errors import TraceError
from prismcore.graph import Graph, Kernel, OpKind
from prismcore.rank_list import MAX_RANK, format_absent, format_ranks
from prismcore.stitch.meetings import TOLERANCE_NS, Meetings
from prismcore.stitch.programs import RowOps, build_graph
from prismcore.stitch.rows import Ints, Rows, last_before
from prismcore.stitch.timing import Timing, drop_circles, time_rows
from prismcore.stitch.waits import Waits, shown_waits
from prismcore.traces.collectives import Members, find_meetings
from prismcore.traces.kineto_file import KinetoTrace, read_kineto
from prismcore.traces.kineto_kernels import copy_directions, kernels_of
from prismcore.traces.kineto_meetings import collectives_of
from prismcore.traces.kineto_ops import HOST, RankOps, Step, rank_ops, steps_of

__all__ = ["MeasuredTraces", "read_kineto_set", "stitch_kineto"]

MOST_NS = 2**61  # of all traces together: 73 years
MOST_CELLS = 2**30  # rows times streams: 8 GiB
NAMED = 20  # ranges of ranks or steps in a warning


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
    format: str = "kineto"  #: as ``prism import`` names it

    def graph(self) -> Graph:
        """The steps as iterations of a graph."""
        ends = self.measured_end_ns.max(axis=0)
        metadata: dict[str, Any] = {
            "imported_from": self.format,
            "measured_iteration_time_ns": np.diff(ends, prepend=0).tolist(),
            "notes": self.warnings,
        }
        return build_graph(
            self.rows,
            self.ops,
            self.waits,
            self.timing,
            world_size=self.world_size,
            steps=[f"step {number}" for number in self.steps],
            metadata=metadata,
        )


@dataclass(kw_only=True, slots=True)
class _RankRows:
    """Rows of one rank that belong to the steps, and one more at the end of each step."""

    rank: int
    trace: KinetoTrace
    ops: RankOps
    kept: Ints  #: rows of ``ops``, -1 at ends of steps
    start_ns: Ints
    end_ns: Ints
    lane: Ints
    kind: Ints
    step: Ints  #: of each row
    spans: list[Step]


def read_kineto_set(paths: Sequence[str | os.PathLike[str]]) -> list[KinetoTrace]:
    """Reads the traces of a job, by rank.

    Raises TraceError where one cannot be read, two are of one rank, or the rank of one of several is not
    told by the trace or its name.
    """
    if not paths:
        raise TraceError("no traces given, expected one file a rank")
    traces = [read_kineto(path) for path in paths]
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
            raise TraceError(f"{trace.path}: rank {trace.rank} found, which {other.path} is as well")
    return [by_rank[rank] for rank in sorted(by_rank)]


def stitch_kineto(traces: Sequence[KinetoTrace]) -> MeasuredTraces:
    """Stitches the traces of a job; what is missing or cannot be matched is told in ``warnings``.

    Raises TraceError where no device work is found, or no step is in all traces.
    """
    warnings = [text for trace in traces for text in trace.warnings]
    ranks = [trace.rank for trace in traces if trace.rank is not None]
    world_size = max([ranks[-1] + 1, *(trace.world_size or 0 for trace in traces)])
    if absent := format_absent(ranks, range(world_size), most=NAMED):
        warnings.append(f"ranks {absent} of {world_size:,} have no trace")
    numbers, spans = _common_steps(traces, warnings)
    parts = [_rows_of(trace, of, warnings) for trace, of in zip(traces, spans, strict=True)]
    rows = _joined(parts)
    offsets = np.cumsum([0, *(len(part.kept) for part in parts)])
    found = []
    sizes = np.zeros(len(rows.rank), dtype=np.int64)
    for part, offset in zip(parts, offsets.tolist(), strict=False):
        at = np.flatnonzero((part.kept >= 0) & (part.kind >= OpKind.ALL_REDUCE))
        collectives = collectives_of(part.trace, part.ops, part.kept[at].tolist())
        for collective, row in zip(collectives, at.tolist(), strict=True):
            collective.row = row + offset
        moved = np.flatnonzero((part.kept >= 0) & ((part.kind == OpKind.COPY) | (part.kind == OpKind.SET)))
        sizes[moved + offset] = np.maximum(part.trace.bytes[part.ops.event[part.kept[moved]]], 0)
        found.append((part.rank, collectives))
    meetings, communicators = find_meetings(found, len(rows.rank), warnings)
    for collective in (c for _, collectives in found for c in collectives):
        sizes[collective.row] = collective.bytes or 0
    _share_clock(rows, meetings, warnings)
    waits = _waits(rows, parts)
    circles = drop_circles(rows, waits, meetings)
    if circles:
        warnings.append(
            f"{circles:,} waits between streams that contradict the order of collectives are left out"
        )
    kernels, refs, directions = _named(parts)
    kind = np.concatenate([part.kind for part in parts])
    meets = communicators.ref >= 0
    return MeasuredTraces(
        steps=numbers,
        world_size=world_size,
        rows=rows,
        ops=RowOps(
            kind=np.where((kind >= OpKind.ALL_REDUCE) & ~meets, int(OpKind.KERNEL), kind),
            ref=np.where(meets, communicators.ref, refs),
            peer=np.full(len(kind), -1),
            tag=np.zeros(len(kind), dtype=np.int64),
            kernels=kernels,
            communicators=communicators.communicators,
            bytes=sizes,
            detail=directions,
            has_host=True,
        ),
        meetings=meetings,
        named=refs,
        told_members=communicators.told,
        waits=waits,
        timing=time_rows(rows, waits, meetings),
        measured_end_ns=_step_ends(rows, kind),
        warnings=warnings,
    )


def _common_steps(traces: Sequence[KinetoTrace], warnings: list[str]) -> tuple[list[int], list[list[Step]]]:
    spans = [steps_of(trace) for trace in traces]
    for trace, of in zip(traces, spans, strict=True):
        if not of:
            raise TraceError(
                f"{trace.path}: no kernels, copies or steps found, expected a trace with GPU activity"
            )
    common = set.intersection(*({step.number for step in of} for of in spans))
    if not common:
        seen = "; ".join(
            f"rank {trace.rank}: {', '.join(str(s.number) for s in of)}"
            for trace, of in list(zip(traces, spans, strict=True))[:4]
        )
        raise TraceError(f"no profiled step is in all traces ({seen}); expected traces of the same steps")
    left_out = sorted({step.number for of in spans for step in of} - common)
    if left_out:
        warnings.append(f"steps {format_ranks(left_out, most=NAMED)} are not in all traces, and are left out")
    kept = [[step for step in of if step.number in common] for of in spans]
    order = [step.number for step in kept[0]]
    for trace, of in zip(traces, kept, strict=True):
        if [step.number for step in of] != order:
            raise TraceError(f"{trace.path}: its steps come in another order than those of {traces[0].path}")
    return order, kept


def _rows_of(trace: KinetoTrace, spans: list[Step], warnings: list[str]) -> _RankRows:
    ops = rank_ops(trace)
    if not len(ops.streams):
        raise TraceError(f"{trace.path}: no kernels or copies found, expected a trace with GPU activity")
    if ops.orphans:
        warnings.append(
            f"rank {trace.rank}: {ops.orphans:,} device ops without the call that launched them; they are "
            "placed by their own begin"
        )
    anchor = np.where(ops.launch >= 0, ops.launch, np.arange(len(ops.lane)))
    came = trace.start_ns[ops.event[anchor]]
    begins = np.array([step.start_ns for step in spans])
    ends = np.array([step.end_ns for step in spans])
    step = np.searchsorted(begins, came, "right") - 1
    inside = (step >= 0) & (came <= ends[np.maximum(step, 0)])
    if not inside.any():
        raise TraceError(
            f"{trace.path}: none of its device ops belongs to a step; expected steps with GPU activity"
        )
    outside = int((~inside & (ops.lane != HOST)).sum())
    if outside:
        warnings.append(f"rank {trace.rank}: {outside:,} device ops outside of all steps are left out")
    kept = np.concatenate([np.flatnonzero(inside), np.full(len(spans), -1)])
    step = np.concatenate([step[inside], np.arange(len(spans))])
    order = np.lexsort((kept < 0, step))
    kept, step = kept[order], step[order]
    at_end = kept < 0
    start = np.where(at_end, ends[step], ops.start_ns[kept])
    return _RankRows(
        rank=trace.rank or 0,
        trace=trace,
        ops=ops,
        kept=kept,
        start_ns=start,
        end_ns=np.where(at_end, start, ops.end_ns[kept]),
        lane=np.where(at_end, HOST, ops.lane[kept]),
        kind=np.where(at_end, int(OpKind.MARK), ops.kind[kept]),
        step=step,
        spans=spans,
    )


def _joined(parts: Sequence[_RankRows]) -> Rows:
    """Times from the earliest begin of a first step on."""
    begin = min(part.spans[0].start_ns for part in parts)
    first = min(int(part.start_ns.min()) for part in parts)
    last = max(int(part.end_ns.max()) for part in parts)
    if max(last, begin) - min(first, begin) > MOST_NS:
        raise TraceError(f"times from {first:,} to {last:,} ns found, expected ranks on clocks of one time")
    lengths = [len(part.kept) for part in parts]
    lanes = max(int(part.lane.max()) for part in parts)
    if sum(lengths) * (lanes + 1) > MOST_CELLS:
        raise TraceError(
            f"{sum(lengths):,} ops on up to {lanes:,} streams a rank found, expected at most {MOST_CELLS:,} "
            "for the product; import fewer ranks, or traces of fewer steps"
        )
    return Rows(
        rank=np.repeat([part.rank for part in parts], lengths),
        step=np.zeros(sum(lengths), dtype=np.int64),
        lane=np.concatenate([part.lane for part in parts]),
        launch=np.arange(sum(lengths)),
        start_ns=np.concatenate([part.start_ns for part in parts]) - begin,
        end_ns=np.concatenate([part.end_ns for part in parts]) - begin,
    )


def _share_clock(rows: Rows, meetings: Meetings, warnings: list[str]) -> None:
    """Brings ranks to one clock by the ends of their collectives, which they share, where the clocks
    differ by more than noise."""
    shared = np.flatnonzero(meetings.size > 1)
    if not len(shared):
        return
    first = np.full(int(meetings.id.max()) + 1, -1)
    reference: Ints = shared[::-1]
    first[meetings.id[reference]] = reference  # the row of the lowest rank
    late = rows.end_ns[shared] - rows.end_ns[first[meetings.id[shared]]]
    moved = []
    for rank in np.unique(rows.rank[shared]).tolist():
        off = int(np.median(late[rows.rank[shared] == rank]))
        if abs(off) > TOLERANCE_NS:
            mine = rows.rank == rank
            rows.start_ns[mine] -= off
            rows.end_ns[mine] -= off
            moved.append(rank)
    if moved:
        warnings.append(
            f"clocks of ranks {format_ranks(moved)} differ from that of the lowest rank they meet; they are "
            "moved so that collectives end together"
        )
    earliest = int(rows.start_ns.min())
    if earliest < 0:
        rows.start_ns -= earliest
        rows.end_ns -= earliest


def _waits(rows: Rows, parts: Sequence[_RankRows]) -> Waits:
    """Device ops wait for the call that launched them and the one before on their stream, the host where
    it synchronised; other streams are waited for where the times show it for all ops alike."""
    lanes = int(rows.lane.max()) + 1
    collective = np.concatenate([part.kind >= OpKind.ALL_REDUCE for part in parts])
    after, synchronises = (
        np.concatenate(
            [np.where(part.kept >= 0, getattr(part.ops, name)[part.kept], False) for part in parts]
        )
        for name in ("after_wait", "synchronises")
    )
    types = np.where(
        rows.lane == HOST, np.where(synchronises, 1, 0), 2 + rows.lane * 4 + collective * 2 + after
    )
    waits = shown_waits(rows, types.astype(np.int64), lanes)
    _wait_at_synchronisations(rows, waits, synchronises)
    launched = last_before(rows, rows.lane == HOST)
    device = rows.lane != HOST
    waits[device, HOST] = launched[device]
    return waits


def _wait_at_synchronisations(rows: Rows, waits: Waits, synchronises: npt.NDArray[np.bool_]) -> None:
    """A call that synchronises waits for the ops whose end it began at; no other host call waits."""
    host = rows.lane == HOST
    for lane in range(1, waits.shape[1]):
        before = last_before(rows, rows.lane == lane)
        holds = host & synchronises & (before >= 0)
        holds[holds] = rows.end_ns[before[holds]] <= rows.start_ns[holds]
        waits[host, lane] = np.where(holds[host], before[host], -1)


def _step_ends(rows: Rows, kind: Ints) -> Ints:
    """Shape [ranks, steps]: the latest end, of host and streams, of all rows up to each step's."""
    ends = []
    for rank in np.unique(rows.rank).tolist():
        mine = rows.rank == rank
        ends.append(np.maximum.accumulate(rows.end_ns[mine])[kind[mine] == OpKind.MARK])
    return np.array(ends)


def _named(parts: Sequence[_RankRows]) -> tuple[list[Kernel], Ints, Ints]:
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
