"""Host calls of one rank: which launched what, and what those that synchronise waited for."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore.traces.kineto_arguments import whole
from prismcore.traces.kineto_file import KinetoTrace

__all__ = ["Calls", "StreamOps", "find_calls", "host_calls", "stream_waits", "waited_for"]

_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]
_Pairs = list[tuple[int, int]]

_SYNCHRONISE = re.compile(r"(?:cuda|hip)(Stream|Device|Event)Synchronize|cu(Stream|Ctx|Event)Synchronize")
#: Copies that hold the host until they are done.
_BLOCKING_COPY = re.compile(r"(?:cuda|hip|cu)Memcpy(?!.*Async)(?!.*Batch)")
_WAIT_EVENT = ("cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent")


@dataclass(kw_only=True, slots=True)
class Calls:
    """Events of the trace, by what they are."""

    launch_of: _Ints  #: shape [device ops]: the call that launched each; -1: not in the trace
    synchronise: _Ints
    wait_event: _Ints  #: a stream is told to wait
    by_correlation: dict[int, int]  #: the outer call of each number among those that matter to waits


@dataclass(kw_only=True, slots=True)
class StreamOps:
    """Device ops of one stream, in the order in which the host asked for them."""

    rows: _Ints
    asked_ns: _Ints  #: begin of their call
    latest: _Ints  #: the last in the order of the stream of those asked for until then

    def before(self, time_ns: _Ints) -> _Ints:
        """Row of the last op that was asked for before each time; -1 for none."""
        at = np.searchsorted(self.asked_ns, time_ns) - 1
        found: _Ints = np.where(at >= 0, self.latest[np.maximum(at, 0)], -1)
        return found

    @staticmethod
    def of(rows: _Ints, asked_ns: _Ints) -> StreamOps:
        order = np.argsort(asked_ns, kind="stable")
        rows = rows[order]
        return StreamOps(rows=rows, asked_ns=asked_ns[order], latest=np.maximum.accumulate(rows))


def host_calls(trace: KinetoTrace) -> _Ints:
    """Calls of the runtime and of the driver."""
    return trace.of("cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "driver")


def find_calls(trace: KinetoTrace, device: _Ints) -> Calls:
    """``device``: events of device ops. Of two calls with one number (a runtime call and the driver's
    below it) the outer one counts. Blocking copies both launch and synchronise."""
    calls = host_calls(trace)
    by_name = {i: _what(trace.strings[i]) for i in np.unique(trace.name[calls]).tolist()}
    what = np.array([by_name[i] for i in trace.name[calls].tolist()], dtype=object)
    launch_of = _launches(trace, device, calls[what != "synchronise"])
    copying = np.unique(launch_of[np.isin(launch_of, calls[what == "copy"])])
    told = trace.of("cuda_sync")
    wanted = set(trace.correlation[told].tolist())
    wanted |= {_record_of(trace, e) for e in told.tolist()}
    numbered = calls[np.isin(trace.correlation[calls], sorted(wanted))]
    numbered = numbered[np.argsort(-trace.start_ns[numbered], kind="stable")]
    return Calls(
        launch_of=launch_of,
        synchronise=np.concatenate([calls[what == "synchronise"], copying]),
        wait_event=calls[what == "wait event"],
        by_correlation=dict(zip(trace.correlation[numbered].tolist(), numbered.tolist(), strict=True)),
    )


def _what(name: str) -> str:
    if _SYNCHRONISE.match(name):
        return "synchronise"
    if name in _WAIT_EVENT:
        return "wait event"
    return "copy" if _BLOCKING_COPY.match(name) else ""


def _launches(trace: KinetoTrace, device: _Ints, calls: _Ints) -> _Ints:
    numbered = calls[trace.correlation[calls] >= 0]
    numbered = numbered[np.argsort(trace.start_ns[numbered], kind="stable")]
    numbers, first = np.unique(trace.correlation[numbered], return_index=True)
    wanted = trace.correlation[device]
    if not len(numbers):
        return np.full(len(device), -1)
    at = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
    return np.where((numbers[at] == wanted) & (wanted >= 0), numbered[first[at]], -1)


def _record_of(trace: KinetoTrace, event: int) -> int:
    """Correlation of the call that recorded what a ``cuda_sync`` event waits for; -1: not told."""
    found = whole(trace.details.get(event, {}).get("wait_on_cuda_event_record_corr_id"), least=0)
    return -1 if found is None else found


def _source_of(trace: KinetoTrace, event: int) -> tuple[int, int] | None:
    """Device and stream that a ``cuda_sync`` event waits for; None: not told."""
    stream = whole(trace.details.get(event, {}).get("wait_on_stream"), least=0)
    return None if stream is None else (int(trace.device[event]), stream)


def stream_waits(
    trace: KinetoTrace, calls: Calls, streams: dict[tuple[int, int], StreamOps]
) -> tuple[_Pairs, int]:
    """Pairs of rows: a device op and the one of another stream that it was told to wait for, by the
    ``Stream Wait Event`` of ``cuda_sync``; and how many such waits the trace tells."""
    pairs: _Pairs = []
    told = 0
    events = trace.of("cuda_sync")
    for event, name in zip(events.tolist(), trace.texts(events), strict=True):
        if "wait" not in name.lower():
            continue
        source = _source_of(trace, event)
        record = calls.by_correlation.get(_record_of(trace, event))
        if source is None or record is None:
            continue
        told += 1
        target = streams.get((int(trace.device[event]), int(trace.stream[event])))
        if source not in streams or target is None or target is streams[source]:
            continue
        call = calls.by_correlation.get(int(trace.correlation[event]), event)
        next_op = int(np.searchsorted(target.asked_ns, trace.start_ns[call], "right"))
        waited = int(streams[source].before(trace.start_ns[[record]])[0])
        if next_op < len(target.rows) and 0 <= waited < target.rows[next_op]:
            pairs.append((int(target.rows[next_op]), waited))
    return pairs, told


def waited_for(
    trace: KinetoTrace,
    calls: Calls,
    streams: dict[tuple[int, int], StreamOps],
    *,
    rows: _Ints,
    end_ns: _Ints,
    launched: dict[int, int],
) -> _Pairs:
    """Pairs of rows: a call that synchronises and a device op that it saw the end of.

    ``rows``: of ``calls.synchronise``; ``end_ns``: of all rows; ``launched``: the row of the op of each
    blocking copy. What a call waits for is told by ``cuda_sync`` events of its number. Without them, one
    of a device waits for all its streams, one of a stream or an event for the stream that came last to
    its end during the call; where none did, for the one that such calls of the thread wait for mostly.
    """
    events = calls.synchronise
    begin, end = trace.start_ns[events], trace.end_ns[events]
    told = {int(trace.correlation[e]): e for e in trace.of("cuda_sync").tolist()}
    kinds, at_stream, until = [], [], begin.copy()
    for i, (event, name) in enumerate(zip(events.tolist(), trace.texts(events), strict=True)):
        kind = "device" if "Device" in name or "Ctx" in name else "stream" if "Stream" in name else "event"
        stream = None
        sync = told.get(int(trace.correlation[event]))
        if event in launched:
            kind = "copy"
        elif sync is not None and kind == "stream" and trace.stream[sync] >= 0:
            stream = (int(trace.device[sync]), int(trace.stream[sync]))
        elif sync is not None and kind == "event":
            stream = _source_of(trace, sync)
            record = calls.by_correlation.get(_record_of(trace, sync))
            if record is not None:
                until[i] = trace.start_ns[record]
        kinds.append(kind)
        at_stream.append(stream)
    kind_of = np.array(kinds, dtype=object)
    place = {stream: i for i, stream in enumerate(streams)}
    of_stream = np.array([-1 if s is None else place.get(s, len(place)) for s in at_stream], dtype=np.int64)
    unknown = (of_stream < 0) & np.isin(kind_of, ("stream", "event"))
    pairs: _Pairs = []
    latest, latest_end = np.full(len(events), -1), begin.copy()
    for number, ops in enumerate(streams.values()):
        before = ops.before(until)
        seen = (before >= 0) & (before < rows)
        seen[seen] = end_ns[before[seen]] <= end[seen]
        chosen = seen & ((kind_of == "device") | (of_stream == number))
        pairs += zip(rows[chosen].tolist(), before[chosen].tolist(), strict=True)
        later = seen & unknown
        later[later] = end_ns[before[later]] > latest_end[later]
        latest[later], latest_end[later] = before[later], end_ns[before[later]]
    found = unknown & (latest >= 0)
    pairs += zip(rows[found].tolist(), latest[found].tolist(), strict=True)
    pairs += _usual(trace, events, streams, rows=rows, end_ns=end_ns, found=latest, open_=unknown & ~found
                    & (kind_of == "stream"))  # fmt: skip
    for event, row in zip(events.tolist(), rows.tolist(), strict=True):
        if event in launched and end_ns[launched[event]] <= trace.end_ns[event]:
            pairs.append((row, launched[event]))
    return pairs


def _usual(
    trace: KinetoTrace,
    events: _Ints,
    streams: dict[tuple[int, int], StreamOps],
    *,
    rows: _Ints,
    end_ns: _Ints,
    found: _Ints,
    open_: _Bools,
) -> _Pairs:
    """For calls that waited for nobody: the op before them on the stream that others of their thread
    waited for mostly, or on the only stream."""
    stream_of = {int(r): stream for stream, ops in streams.items() for r in np.intersect1d(ops.rows, found)}
    votes: dict[int, Counter[tuple[int, int]]] = {}
    for event, row in zip(events.tolist(), found.tolist(), strict=True):
        if row >= 0:
            votes.setdefault(int(trace.thread[event]), Counter())[stream_of[row]] += 1
    pairs: _Pairs = []
    for i in np.flatnonzero(open_).tolist():
        of_thread = votes.get(int(trace.thread[events[i]]))
        stream = of_thread.most_common(1)[0][0] if of_thread else next(iter(streams), None)
        if stream is None or (not of_thread and len(streams) > 1):
            continue
        before = int(streams[stream].before(trace.start_ns[events[[i]]])[0])
        if 0 <= before < rows[i] and end_ns[before] <= trace.end_ns[events[i]]:
            pairs.append((int(rows[i]), before))
    return pairs
