"""What calls cost the host, in traces of torch's profiler.

A launch costs the host the time from the launch before to it: the trainer's own work and the call. Counted
are launches that the device waited for (the kernel began within 15 us of the end of the call), so that
nothing held the host up, and before which the host did not synchronise. Calls in between that have figures of
their own (events, queries) are taken off.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from prismcore.calibrate.samples import Ints
from prismcore.graph import OpKind
from prismcore.traces.kineto_file import KinetoTrace
from prismcore.traces.kineto_ops import HOST, rank_ops

__all__ = ["host_samples"]

STARTED_AT_ONCE_NS: Final = 15_000

_CALLS: Final = {
    "event_ns": re.compile(r"(cuda|hip)(EventRecord|StreamWaitEvent)|cu(EventRecord|StreamWaitEvent)"),
    "query_ns": re.compile(r"(cuda|hip)(EventQuery|StreamQuery)|cu(EventQuery|StreamQuery)"),
    "reserve_ns": re.compile(r"(cuda|hip)Malloc$|cuMemAlloc"),
}
_RUNTIME: Final = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "driver")


def host_samples(traces: Sequence[KinetoTrace]) -> dict[str, Ints]:
    """Durations by figure of a profile's ``[host]``: launches, copies, communication, events, queries,
    synchronisations that find nothing to wait for, allocations of device memory."""
    lists: dict[str, list[Ints]] = {}
    for trace in traces:
        for figure, durations in (*_calls(trace).items(), *_launches(trace).items()):
            if len(durations):
                lists.setdefault(figure, []).append(durations)
    return {figure: np.concatenate(parts) for figure, parts in lists.items()}


def _calls(trace: KinetoTrace) -> dict[str, Ints]:
    events = trace.of(*_RUNTIME)
    duration = trace.end_ns - trace.start_ns
    return {figure: duration[_matching(trace, events, pattern)] for figure, pattern in _CALLS.items()}


def _matching(trace: KinetoTrace, events: Ints, pattern: re.Pattern[str]) -> Ints:
    names = [i for i, text in enumerate(trace.strings) if pattern.match(text)]
    return events[np.isin(trace.name[events], names)]


def _launches(trace: KinetoTrace) -> dict[str, Ints]:
    ops = rank_ops(trace)
    first = np.full(len(ops.lane), -1)  # of each launching row, the first op that it launched
    launched = np.flatnonzero(ops.launch >= 0)[::-1]
    first[ops.launch[launched]] = launched
    rows = np.flatnonzero((ops.lane == HOST) & ((first >= 0) | ops.synchronises))
    events = ops.event[rows]
    order = np.argsort(trace.start_ns[events], kind="stable")
    rows, events = rows[order], events[order]
    start, end = trace.start_ns[events], trace.end_ns[events]
    waits = _waits(trace, ops.synchronises[rows], start, end)
    free = ops.synchronises[rows] & ~waits
    out = {"sync_ns": (end - start)[free]}

    op = first[rows[1:]]
    known = (op >= 0) & (first[rows[:-1]] >= 0)  # a launch right behind a launch
    known[known] = ops.start_ns[op[known]] - end[1:][known] <= STARTED_AT_ONCE_NS
    gap = start[1:] - start[:-1] - _others(trace, start[:-1], start[1:])
    kind = np.where(op >= 0, ops.kind[op], -1)
    moves = (kind == OpKind.COPY) | (kind == OpKind.SET)
    for figure, of in (
        ("launch_ns", kind == OpKind.KERNEL),
        ("copy_ns", moves),
        ("communication_ns", kind >= OpKind.ALL_REDUCE),
    ):
        out[figure] = gap[known & of & (gap > 0)]
    return out


def _waits(
    trace: KinetoTrace, synchronises: npt.NDArray[np.bool_], start: Ints, end: Ints
) -> npt.NDArray[np.bool_]:
    """Calls during which some device op ended: they may have waited for it."""
    ends = np.sort(trace.end_ns[trace.of("kernel", "gpu_memcpy", "gpu_memset")])
    within = np.searchsorted(ends, end, "right") > np.searchsorted(ends, start, "right")
    found: npt.NDArray[np.bool_] = synchronises & within
    return found


def _others(trace: KinetoTrace, begin: Ints, end: Ints) -> Ints:
    """Time of events and queries that begin between; shape [spans]."""
    events = trace.of(*_RUNTIME)
    others = np.concatenate([_matching(trace, events, _CALLS[figure]) for figure in ("event_ns", "query_ns")])
    others = others[np.argsort(trace.start_ns[others], kind="stable")]
    total = np.concatenate([[0], np.cumsum(trace.end_ns[others] - trace.start_ns[others])])
    starts = trace.start_ns[others]
    between: Ints = total[np.searchsorted(starts, end)] - total[np.searchsorted(starts, begin)]
    return between
