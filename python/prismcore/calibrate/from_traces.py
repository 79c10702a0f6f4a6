"""Samples from traces of torch's profiler (Kineto)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prismcore.calibrate.device import found_device
from prismcore.calibrate.host_calls import host_samples
from prismcore.calibrate.samples import CollectiveKey, CopyKey, Ints, Samples, by_number, not_measured
from prismcore.errors import TraceError
from prismcore.graph import CopyDirection, DataType, OpKind, Provenance
from prismcore.rank_list import format_ranks
from prismcore.stitch.rows import segment_reduce
from prismcore.traces.kineto import MeasuredTraces, stitch_kineto
from prismcore.traces.kineto_file import KinetoTrace
from prismcore.traces.kineto_ops import HOST, collective_kind

__all__ = ["samples_of_traces"]

_Bools = npt.NDArray[np.bool_]
_PAGEABLE = re.compile(r"pageable", re.IGNORECASE)


def samples_of_traces(traces: Sequence[KinetoTrace]) -> Samples:
    """Samples of one job's traces, one a rank.

    Kernels and copies have their measured durations; a collective that of the member that came last, which
    is the least of its members' (clocks of ranks need not agree for that).

    Raises TraceError where the traces cannot be stitched, are of different devices, or are exports
    of a replay in which nothing was measured.
    """
    measured = stitch_kineto(traces)
    samples = Samples(
        source=_named(traces),
        ranks=len(traces),
        device=found_device(traces),
        host={} if measured.exported else host_samples(traces),
        warnings=list(measured.warnings),
    )
    rows, ops = measured.rows, measured.ops
    duration = rows.end_ns - rows.start_ns
    known = _known(samples, measured)
    chosen = np.flatnonzero((ops.kind == OpKind.KERNEL) & known)
    for number, durations in by_number(ops.ref[chosen], duration[chosen]).items():
        kernel = ops.kernels[number]
        if not isinstance(kernel, str) and collective_kind(kernel.name) is None:
            samples.kernels[kernel] = durations
    _add_copies(samples, measured, duration, known)
    _add_collectives(samples, measured, duration, known)
    return samples


def _known(samples: Samples, measured: MeasuredTraces) -> _Bools:
    """Rows whose durations were measured: of traces of a run all, of exported ones those that say so."""
    rows, sources = measured.rows, measured.ops.provenance
    if sources is None:
        known = np.ones(len(rows.rank), dtype=bool)
    else:
        known = sources == Provenance.MEASURED
        device = rows.lane != HOST
        if not (known & device).any():
            raise TraceError(not_measured(samples.source, exported=True))
        if lost := int((device & ~known).sum()):
            samples.warnings.append(f"{lost:,} durations that were not measured are left out")
    if measured.exported:
        samples.warnings.append(
            "the traces are of a replay (prism export), not of a run: host figures stay the base's"
        )
    return known


def _named(traces: Sequence[KinetoTrace]) -> str:
    """Their file or folder, and ranks."""
    if len(traces) == 1:
        return traces[0].path
    folders = {os.path.dirname(trace.path) or "." for trace in traces}
    place = next(iter(folders)) if len(folders) == 1 else f"{len(folders)} folders"
    return f"{place} (ranks {format_ranks([t.rank or 0 for t in traces])})"


def _add_copies(samples: Samples, measured: MeasuredTraces, duration: Ints, known: _Bools) -> None:
    ops = measured.ops
    if ops.bytes is None or ops.detail is None:
        return
    names = [kernel if isinstance(kernel, str) else kernel.name for kernel in ops.kernels]
    pageable = np.array([_PAGEABLE.search(name) is not None for name in names] or [False])
    chosen = np.flatnonzero((ops.kind == OpKind.COPY) & known)
    key = ops.detail[chosen] * 2 + pageable[measured.named[chosen]]
    for number in np.unique(key).tolist():
        mine = chosen[key == number]
        for size, durations in by_number(ops.bytes[mine], duration[mine]).items():
            copy = CopyKey(direction=CopyDirection(number // 2), bytes=size, pageable=bool(number % 2))
            samples.copies[copy] = durations


def _add_collectives(samples: Samples, measured: MeasuredTraces, duration: Ints, known: _Bools) -> None:
    ops, meetings = measured.ops, measured.meetings
    if ops.bytes is None:
        return
    rows = np.flatnonzero((ops.kind >= OpKind.ALL_REDUCE) & (ops.kind < OpKind.SEND) & known)
    if not len(rows):
        return
    least = segment_reduce(np.minimum, duration, meetings.id)
    size = segment_reduce(np.maximum, ops.bytes, meetings.id)
    rows = rows[np.unique(meetings.id[rows], return_index=True)[1]]
    present = set(np.unique(measured.rows.rank).tolist())
    absent = len(present) < measured.world_size
    reasons = []
    lists: dict[CollectiveKey, list[int]] = {}
    for row in rows.tolist():
        communicator = int(ops.ref[row])
        _, members = ops.communicators[communicator]
        told = measured.told_members[communicator]
        if absent if told is None else not present.issuperset(told):
            reasons.append("members without a trace")
        elif len(members) < 2 and told is None:
            reasons.append("of one rank")
        elif len(told or members) != int(meetings.size[row]) or len(members) < 2:
            reasons.append("not matched between ranks")
        elif int(size[row]) <= 0:
            reasons.append("size not told")
        else:
            dtype = DataType.NONE if ops.dtype is None else DataType(int(ops.dtype[row]))
            key = CollectiveKey(
                kind=OpKind(int(ops.kind[row])),
                bytes=int(size[row]),
                members=members,
                **({} if dtype == DataType.NONE else {"dtype": dtype.name.lower()}),
            )
            lists.setdefault(key, []).append(int(least[row]))
    samples.leave_out(reasons)
    samples.collectives = {key: np.array(values) for key, values in lists.items()}
