"""What one rank did: device ops, the host calls that launched them, and where the host waited."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore.errors import TraceError
from prismcore.graph import OpKind
from prismcore.traces.kineto_file import COMMUNICATION, KinetoTrace

__all__ = ["HOST", "RankOps", "Step", "by_thread", "rank_ops", "steps_of"]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]

MOST_STREAMS = 1024

#: The lane of host calls; those above are streams.
HOST = 0

_STEP = re.compile(r"ProfilerStep#(\d{1,18})$")
_SYNCHRONISE = re.compile(r"(cuda|hip)(Stream|Device|Event)Synchronize|cu(Stream|Ctx|Event)Synchronize")
_WAIT_EVENT = ("cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent")
_KINDS = {
    "allreduce": OpKind.ALL_REDUCE,
    "allgather": OpKind.ALL_GATHER,
    "reducescatter": OpKind.REDUCE_SCATTER,
    "broadcast": OpKind.BROADCAST,
    "reduce": OpKind.REDUCE,
    "sendrecv": OpKind.ALL_TO_ALL,
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

    A host row ends where the device may begin what it launched; one that synchronises begins where the
    device had come to its end.
    """

    lane: _Ints  #: 0: host; stream k of the rank, by first use, is k + 1
    kind: _Ints  #: ``OpKind``
    event: _Ints  #: of the trace
    start_ns: _Ints
    end_ns: _Ints
    launch: _Ints  #: row of the host call that launched a device op; -1: a host row, or not in the trace
    synchronises: _Bools
    after_wait: _Bools  #: the host let the stream wait for another one just before
    streams: list[tuple[int, int]]  #: (device, stream) of lanes 1, 2, ...
    orphans: int  #: device ops without a host call


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
    work = np.concatenate([_device_events(trace), _calls(trace)])
    if not len(work):
        return []
    return [Step(number=0, start_ns=int(trace.start_ns[work].min()), end_ns=int(trace.end_ns[work].max()))]


def collective_kind(name: str) -> OpKind | None:
    """What NCCL's kernel of this name does, old and new names alike; None: it is none of NCCL's.

    Names: ``ncclAllReduceRingLLKernel_sum_f32`` (NCCL 2.4),
    ``ncclKernel_AllReduce_RING_LL_Sum_float`` (2.12), ``ncclDevKernel_AllReduce_Sum_f16_RING_LL``,
    ``ncclDevKernel_SendRecv`` (2.19).
    """
    if not name.startswith(("nccl", "rccl", "void nccl")):
        return None
    text = name.lower().replace("_", "")
    for key in ("allreduce", "allgather", "reducescatter", "broadcast", "sendrecv", "reduce"):
        if key in text:
            return _KINDS[key]
    return OpKind.KERNEL


def rank_ops(trace: KinetoTrace) -> RankOps:
    """All device ops of a trace, each behind the call that launched it, and the host's waits."""
    device = _device_events(trace)
    calls = _calls(trace)
    names = np.array(trace.texts(calls), dtype=object)
    synchronises = np.array([_SYNCHRONISE.match(n) is not None for n in names], dtype=bool)
    call_of = _launches(trace, device, calls[~synchronises])
    launching = np.unique(call_of[call_of >= 0])
    host = np.concatenate([launching, calls[synchronises]])
    is_sync = np.concatenate(
        [np.zeros(len(launching), dtype=bool), np.ones(int(synchronises.sum()), dtype=bool)]
    )

    event = np.concatenate([host, device])
    is_device = np.arange(len(event)) >= len(host)
    launch_event = np.concatenate([host, np.where(call_of >= 0, call_of, -1)])
    came = np.where(launch_event >= 0, trace.start_ns[launch_event], trace.start_ns[event])
    order = np.lexsort((trace.start_ns[event], is_device, launch_event, came))
    event, is_device, launch_event = event[order], is_device[order], launch_event[order]
    synchronises = np.concatenate([is_sync, np.zeros(len(device), dtype=bool)])[order]

    streams, lane = _lanes(trace, event, is_device)
    row_of_call = np.full(len(trace.start_ns) + 1, -1)
    host_rows = np.flatnonzero(~is_device)
    row_of_call[event[host_rows]] = host_rows
    launch = np.where(is_device & (launch_event >= 0), row_of_call[launch_event], -1)
    start, end = trace.start_ns[event].copy(), trace.end_ns[event].copy()
    launched = np.flatnonzero(launch >= 0)
    np.minimum.at(end, launch[launched], start[launched])
    end = np.maximum(start, end)
    _end_waits(start, end, lane, synchronises, len(streams) + 1)
    return RankOps(
        lane=lane,
        kind=_kinds(trace, event, is_device),
        event=event,
        start_ns=start,
        end_ns=end,
        launch=launch,
        synchronises=synchronises,
        after_wait=_after_waits(trace, event, lane, launch, calls[np.isin(names, _WAIT_EVENT)]),
        streams=streams,
        orphans=int((call_of < 0).sum()),
    )


def by_thread(trace: KinetoTrace, events: _Ints) -> dict[int, _Ints]:
    """Positions in ``events`` of those of each thread, in order."""
    thread = trace.thread[events]
    order = np.argsort(thread, kind="stable")
    first = np.flatnonzero(np.diff(thread[order].astype(np.int64), prepend=-1))
    parts = np.split(order, first[1:])
    return {int(thread[part[0]]): part for part in parts if len(part)}


def _device_events(trace: KinetoTrace) -> _Ints:
    return trace.of("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")


def _calls(trace: KinetoTrace) -> _Ints:
    return trace.of("cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "driver")


def _launches(trace: KinetoTrace, device: _Ints, calls: _Ints) -> _Ints:
    """The call that launched each device op, by correlation; -1 for none. Of two calls with one number
    (a runtime call and the driver's below it) the outer one."""
    numbered = calls[trace.correlation[calls] >= 0]
    numbered = numbered[np.argsort(trace.start_ns[numbered], kind="stable")]
    numbers, first = np.unique(trace.correlation[numbered], return_index=True)
    wanted = trace.correlation[device]
    if not len(numbers):
        return np.full(len(device), -1)
    at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    return np.where((numbers[at] == wanted) & (wanted >= 0), numbered[first[at]], -1)


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


def _kinds(trace: KinetoTrace, event: _Ints, is_device: _Bools) -> _Ints:
    by_name: dict[int, int] = {}
    copies = {i for i, text in enumerate(trace.strings) if text.lower() in ("gpu_memcpy", "memcpy")}
    sets = {i for i, text in enumerate(trace.strings) if text.lower() in ("gpu_memset", "memset")}
    kinds = np.full(len(event), int(OpKind.HOST_GAP))
    for row in np.flatnonzero(is_device).tolist():
        category, name = int(trace.category[event[row]]), int(trace.name[event[row]])
        if category in copies:
            kinds[row] = OpKind.COPY
        elif category in sets:
            kinds[row] = OpKind.SET
        else:
            if name not in by_name:
                by_name[name] = int(collective_kind(trace.strings[name]) or OpKind.KERNEL)
            kinds[row] = by_name[name]
    return kinds


def _end_waits(start: _Ints, end: _Ints, lane: _Ints, synchronises: _Bools, lanes: int) -> None:
    """Lets calls that synchronise begin at the latest end, during the call, of what was launched
    before."""
    latest = np.zeros(lanes, dtype=np.int64)
    for row, of in enumerate(lane.tolist()):
        if of != HOST:
            latest[of] = end[row]
        elif synchronises[row]:
            within = latest[(latest > start[row]) & (latest <= end[row])]
            if len(within):
                start[row] = within.max()


def _after_waits(trace: KinetoTrace, event: _Ints, lane: _Ints, launch: _Ints, waits: _Ints) -> _Bools:
    """Device ops before whose launch, and behind that of the op before on their stream, some stream was
    told to wait, apart from what a launch of NCCL does itself."""
    own = _in_communication(trace, waits, event[launch[(launch >= 0)]])
    times = np.sort(trace.start_ns[waits[~own]])
    after = np.zeros(len(event), dtype=bool)
    for of in range(1, int(lane.max(initial=0)) + 1):
        rows = np.flatnonzero((lane == of) & (launch >= 0))
        counts = np.searchsorted(times, trace.start_ns[event[launch[rows]]])
        after[rows[1:]] = counts[1:] > counts[:-1]
    return after


def _in_communication(trace: KinetoTrace, waits: _Ints, launches: _Ints) -> _Bools:
    """Which of the calls are inside a call of torch.distributed that launches something."""
    names = [i for i, text in enumerate(trace.strings) if text == COMMUNICATION]
    spans = np.flatnonzero(np.isin(trace.name, names))
    spans = spans[np.argsort(trace.start_ns[spans], kind="stable")]
    begin, end = trace.start_ns[spans], trace.end_ns[spans]
    inside = np.zeros(len(waits), dtype=bool)
    of_launches, of_waits = by_thread(trace, launches), by_thread(trace, waits)
    for of, called in by_thread(trace, spans).items():
        if of not in of_launches or of not in of_waits:
            continue
        at = np.sort(trace.start_ns[launches[of_launches[of]]])
        launches_in = np.searchsorted(at, end[called], "right") > np.searchsorted(at, begin[called])
        mine = called[launches_in]
        if not len(mine):
            continue
        of_thread = of_waits[of]
        place = np.searchsorted(begin[mine], trace.start_ns[waits[of_thread]], "right") - 1
        found = (place >= 0) & (trace.start_ns[waits[of_thread]] <= end[mine][np.maximum(place, 0)])
        inside[of_thread] |= found
    return inside
