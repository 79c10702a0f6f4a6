"""What one rank did: device ops, the host calls that launched them, and where the host waited."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore.errors import TraceError
from prismcore.graph import OpKind
from prismcore.traces.collectives import kind_of_call
from prismcore.traces.kineto_calls import Calls, StreamOps, find_calls, host_calls, stream_waits, waited_for
from prismcore.traces.kineto_file import KinetoTrace
from prismcore.traces.kineto_spans import CommunicationSpans

__all__ = ["HOST", "RankOps", "Step", "collective_kind", "device_events", "rank_ops", "steps_of"]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

MOST_STREAMS = 512  # what a graph may hold
ROUNDING_NS = 1000  #: times of older traces are whole microseconds

#: The lane of host calls; those above are streams.
HOST = 0

_STEP = re.compile(r"ProfilerStep#(\d{1,18})$")
_NCCL = ("nccl", "rccl", "void nccl")
_KINDS = {
    "allreduce": OpKind.ALL_REDUCE,
    "allgather": OpKind.ALL_GATHER,
    "reducescatter": OpKind.REDUCE_SCATTER,
    "broadcast": OpKind.BROADCAST,
    "sendrecv": OpKind.ALL_TO_ALL,
    "reduce": OpKind.REDUCE,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A profiled step of a rank: its number and span, ns."""

    number: int
    start_ns: int
    end_ns: int


@dataclass(kw_only=True, slots=True)
class RankOps:
    """Rows of a rank in the order in which the host came to them; arrays have shape [rows].

    A host row ends where the device may begin what it launched, one that synchronises where the call
    ended; they lie in the order of their ends, whichever thread made them. A blocking copy has one of
    each. One that synchronises begins where what it waited for had ended.
    """

    lane: _Ints  #: 0: host; stream k of the rank, by first use, is k + 1
    kind: _Ints  #: ``OpKind``
    event: _Ints  #: of the trace
    start_ns: _Ints
    end_ns: _Ints
    came_ns: _Ints  #: what tells the step that a row belongs to
    launch: _Ints  #: row of the host call that launched a device op; -1: a host row, or not in the trace
    synchronises: _Bools
    waited: _Ints  #: [pairs, 2]: a row, and a row of another stream (of any, for the host) it waited for
    waits_told: bool  #: the trace tells which stream waits for which
    after_wait: _Bools  #: the host let the stream wait for another one just before
    details: dict[int, dict[str, str]]  #: by row: what is told of kernels of NCCL
    guessed: _Bools  #: kernels of NCCL that send and receive, to and from whom is not told
    unknown: int  #: kernels of NCCL that nothing says the kind of
    streams: list[tuple[int, int]]  #: (device, stream) of lanes 1, 2, ...
    orphans: int  #: device ops without a host call
    early: int  #: device ops that began before the call that launched them


def steps_of(trace: KinetoTrace) -> list[Step]:
    """Spans of ``ProfilerStep#N``, else one of all that the trace holds."""
    found: dict[int, Step] = {}
    events = trace.of("user_annotation", "cpu_op", "Operator")
    for event, name in zip(events.tolist(), trace.texts(events), strict=True):
        match = _STEP.match(name)
        if match:
            number = int(match[1])
            step = Step(number=number, start_ns=int(trace.start_ns[event]), end_ns=int(trace.end_ns[event]))
            found.setdefault(number, step)
    if found:
        return sorted(found.values(), key=lambda step: step.start_ns)
    work = np.concatenate([device_events(trace), host_calls(trace)])
    if not len(work):
        return []
    return [Step(number=0, start_ns=int(trace.start_ns[work].min()), end_ns=int(trace.end_ns[work].max()))]


def collective_kind(name: str) -> OpKind | None:
    """What NCCL's kernel of this name does, old and new names alike; None: it is none of NCCL's.

    Names: ``ncclAllReduceRingLLKernel_sum_f32`` (NCCL 2.4),
    ``ncclKernel_AllReduce_RING_LL_Sum_float`` (2.12), ``ncclDevKernel_AllReduce_Sum_f16_RING_LL``,
    ``ncclDevKernel_SendRecv`` (2.19). Others, as ``ncclDevKernel_Generic``, count as ``KERNEL``.
    """
    if not name.startswith(_NCCL):
        return None
    text = name.lower().replace("_", "")
    return next((kind for key, kind in _KINDS.items() if key in text), OpKind.KERNEL)


def rank_ops(trace: KinetoTrace) -> RankOps:
    """All device ops of a trace, each behind the call that launched it, and the host's waits."""
    device = device_events(trace)
    calls = find_calls(trace, device)
    launching = np.unique(calls.launch_of[calls.launch_of >= 0])
    count = len(launching) + len(calls.synchronise)
    event = np.concatenate([launching, calls.synchronise, device])
    is_device, synchronises = np.zeros((2, len(event)), dtype=bool)
    is_device[count:] = True
    synchronises[len(launching) : count] = True

    called = np.concatenate([launching, calls.synchronise, calls.launch_of])  # -1: an orphan
    call = np.where(called >= 0, called, event)
    begin_of_device = np.full(len(trace.start_ns), np.iinfo(np.int64).max)
    launched = calls.launch_of >= 0
    np.minimum.at(begin_of_device, calls.launch_of[launched], trace.start_ns[device[launched]])
    ends = np.where(synchronises, trace.end_ns[call], np.minimum(trace.end_ns[call], begin_of_device[call]))
    ends = np.where(called >= 0, ends, trace.start_ns[call])
    order = np.lexsort((trace.start_ns[event], is_device, synchronises, call, trace.start_ns[call], ends))
    event, is_device, synchronises, call, ends = (
        a[order] for a in (event, is_device, synchronises, call, ends)
    )
    orphan = (called < 0)[order]
    asked = trace.start_ns[call]

    streams, lane = _lanes(trace, event, is_device)
    row_of_call = np.full(len(trace.start_ns), -1)
    host_rows = np.flatnonzero(~is_device & ~synchronises)
    row_of_call[event[host_rows]] = host_rows
    launch = np.where(is_device & ~orphan, row_of_call[call], -1)
    end = np.where(is_device, trace.end_ns[event], ends)
    start = np.where(is_device, trace.start_ns[event], np.minimum(asked, end))
    waited, told = _waits(trace, calls, lane=lane, end_ns=end, asked=asked, streams=streams,
                          synchronise=np.flatnonzero(synchronises), event=event, launch=launch)  # fmt: skip
    of_host = waited[synchronises[waited[:, 0]]]
    np.maximum.at(start, of_host[:, 0], end[of_host[:, 1]])
    names = np.unique(trace.name[event[is_device]]).tolist()
    kind, details, guessed, unknown = _kinds(trace, event, is_device, launch, names)
    return RankOps(
        lane=lane,
        kind=kind,
        event=event,
        start_ns=np.minimum(start, end),
        end_ns=end,
        came_ns=np.maximum(asked, ends - 1),
        launch=launch,
        synchronises=synchronises,
        waited=waited,
        waits_told=told,
        after_wait=_after_waits(trace, event, lane, launch, calls.wait_event),
        details=details,
        guessed=guessed,
        unknown=unknown,
        streams=streams,
        orphans=int(orphan.sum()),
        early=int((is_device & ~orphan & (trace.start_ns[event] < asked - ROUNDING_NS)).sum()),
    )


def device_events(trace: KinetoTrace) -> _Ints:
    """Kernels, copies and sets."""
    return trace.of("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")


def _lanes(trace: KinetoTrace, event: _Ints, is_device: _Bools) -> tuple[list[tuple[int, int]], _Ints]:
    pairs = np.stack([trace.device[event], trace.stream[event]], axis=1)
    streams: dict[tuple[int, int], int] = {}
    lane = np.zeros(len(event), dtype=np.int64)
    for row in np.flatnonzero(is_device).tolist():
        pair = (int(pairs[row, 0]), int(pairs[row, 1]))
        lane[row] = streams.setdefault(pair, len(streams)) + 1
    if len(streams) > MOST_STREAMS:
        raise TraceError(
            f"{trace.path}: device ops on {len(streams):,} streams found, expected at most {MOST_STREAMS:,}"
        )
    return list(streams), lane


def _waits(
    trace: KinetoTrace,
    calls: Calls,
    *,
    lane: _Ints,
    end_ns: _Ints,
    asked: _Ints,
    streams: list[tuple[int, int]],
    synchronise: _Ints,
    event: _Ints,
    launch: _Ints,
) -> tuple[_Ints, bool]:
    """Pairs (row, row it waited for), and whether the trace tells those between streams."""
    order = np.argsort(lane, kind="stable")
    parts = np.split(order, np.searchsorted(lane[order], np.arange(1, len(streams) + 1)))[1:]
    of_stream = {stream: StreamOps.of(rows, asked[rows]) for stream, rows in zip(streams, parts, strict=True)}
    place = {int(event[row]): row for row in synchronise.tolist()}
    rows = np.array([place[e] for e in calls.synchronise.tolist()], dtype=np.int64)
    copies = {
        int(event[launch[row]]): row
        for row in np.flatnonzero(launch >= 0).tolist()
        if int(event[launch[row]]) in place
    }
    pairs = waited_for(trace, calls, of_stream, rows=rows, end_ns=end_ns, launched=copies)
    between, told = stream_waits(trace, calls, of_stream)
    found = np.array(pairs + between, dtype=np.int64).reshape(-1, 2)
    return found, told > 0


def _kinds(
    trace: KinetoTrace, event: _Ints, is_device: _Bools, launch: _Ints, names: list[int]
) -> tuple[_Ints, dict[int, dict[str, str]], _Bools, int]:
    """Kinds, what is told of kernels of NCCL, which of those send and receive without a word to whom, and
    how many have an unknown kind."""
    of_category = {"gpu_memcpy": OpKind.COPY, "memcpy": OpKind.COPY, "gpu_memset": OpKind.SET,
                   "memset": OpKind.SET}  # fmt: skip
    table = np.array([int(of_category.get(t.lower(), OpKind.KERNEL)) for t in trace.strings] or [0])
    kinds = np.where(is_device, table[trace.category[event]], int(OpKind.HOST_GAP))
    by_name = {i: collective_kind(trace.strings[i]) for i in names}
    nccl = np.isin(trace.name[event], [i for i, kind in by_name.items() if kind is not None])
    nccl |= np.isin(event, [e for e, told in trace.details.items() if "Collective name" in told])
    spans = CommunicationSpans(trace)
    details: dict[int, dict[str, str]] = {}
    guessed = np.zeros(len(event), dtype=bool)
    unknown = 0
    for row in np.flatnonzero(nccl & (kinds == OpKind.KERNEL)).tolist():
        own = trace.details.get(int(event[row]), {})
        details[row] = told = own or (spans.details(int(event[launch[row]])) if launch[row] >= 0 else {})
        kind = kind_of_call(told.get("Collective name", "")) or kind_of_call(told.get("Range", ""))
        if kind is None:
            kind = by_name[int(trace.name[event[row]])] or OpKind.KERNEL
            guessed[row] = kind == OpKind.ALL_TO_ALL
            unknown += kind == OpKind.KERNEL
        kinds[row] = kind
    return kinds, details, guessed, unknown


def _after_waits(trace: KinetoTrace, event: _Ints, lane: _Ints, launch: _Ints, waits: _Ints) -> _Bools:
    """Device ops before whose launch, and behind that of the op before on their stream, some stream was
    told to wait, apart from what a launch of NCCL does itself."""
    own = CommunicationSpans(trace).launching(waits, event[launch[(launch >= 0)]])
    times = np.sort(trace.start_ns[waits[~own]])
    after = np.zeros(len(event), dtype=bool)
    for of in range(1, int(lane.max(initial=0)) + 1):
        rows = np.flatnonzero((lane == of) & (launch >= 0))
        counts = np.searchsorted(times, trace.start_ns[event[launch[rows]]])
        after[rows[1:]] = counts[1:] > counts[:-1]
    return after
