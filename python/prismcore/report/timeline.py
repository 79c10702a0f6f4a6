"""The timeline of a replay as a Perfetto trace: which slice says what.

One process a rank, in order; one thread for its host and one a stream; arrows from a launch on the host
to what it launched; a counter of allocated bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from prismcore.errors import GraphError
from prismcore.graph import Graph, MarkKind, OpKind, RankOrigin
from prismcore.graph.op import OpArray
from prismcore.replay import ReplayResult
from prismcore.report.labels import Labels
from prismcore.report.perfetto import PerfettoWriter

__all__ = ["TimelineSize", "write_timeline"]

HOST_STREAM = 65535
_HOST_ORDER = -1
_FIRST_STREAM_TID = 1 << 24  # above every pid, so that no stream passes for a main thread


@dataclass(kw_only=True, slots=True, frozen=True)
class TimelineSize:
    """What was written."""

    ranks: int
    iteration: int
    slices: int
    counter_values: int


@dataclass(kw_only=True, slots=True)
class _RankIntervals:
    """Intervals of one rank, in order of their place in its program."""

    stream: npt.NDArray[np.uint16]
    place: npt.NDArray[np.int64]  #: index into the rank's expanded ops
    block: npt.NDArray[np.uint32]
    arrive: npt.NDArray[np.int64]
    start: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]

    def where(self, chosen: npt.NDArray[np.bool_]) -> _RankIntervals:
        return _RankIntervals(**{name: getattr(self, name)[chosen] for name in self.__slots__})


@dataclass(kw_only=True, slots=True, frozen=True)
class _Flows:
    """Ids of the arrows of one rank, from a launch on the host to what runs on a stream."""

    first: int
    places: set[int]  #: of the ops that show on both

    def of(self, places: Sequence[int]) -> list[int]:
        return [self.first + place for place in places if place in self.places]


def write_timeline(
    out: BinaryIO, graph: Graph, result: ReplayResult, *, iteration: int | None = None
) -> TimelineSize:
    """Writes one iteration (counted from 0; None: the last) of the ranks of ``result.timeline``.

    An op belongs to the iteration in which the program issues it, wherever its stream runs it.
    Raises GraphError if there is no such iteration, or no timeline.
    """
    timeline = result.timeline
    if timeline is None:
        raise GraphError("the replay recorded no timeline; expected one made with timeline_ranks")
    count = len(result.iteration_time_ns)
    number = count - 1 if iteration is None else iteration
    if not 0 <= number < count:
        raise GraphError(f"iteration {number} found, expected one of the {count} replayed, from 0")
    writer = PerfettoWriter(out)
    labels = Labels(graph, writer)
    slices = values = 0
    ranks = np.unique(timeline.rank).tolist()
    tid, flow = _FIRST_STREAM_TID, 1
    for rank in ranks:
        rows = np.flatnonzero(timeline.rank == rank)
        view = graph.rank(rank)
        blocks = graph.program_blocks(view.program)
        offsets = graph.block_offsets.astype(np.int64)
        begins = np.concatenate(([0], np.cumsum(np.diff(offsets)[blocks])))
        block = timeline.block_position[rows]
        place = begins[block] + timeline.op[rows].astype(np.int64) - offsets[blocks[block]]
        order = np.argsort(place, kind="stable")
        all_intervals = _RankIntervals(
            stream=timeline.stream[rows][order],
            place=place[order],
            block=block[order],
            arrive=timeline.arrive_ns[rows][order],
            start=timeline.start_ns[rows][order],
            end=timeline.end_ns[rows][order],
        )
        ops = graph.ops(rank)
        first, last = _window(ops, number)
        shown = all_intervals.where((all_intervals.place >= first) & (all_intervals.place < last))
        inferred = ", inferred" if view.origin == RankOrigin.INFERRED else ""
        pid = rank + 1
        process = writer.process(pid, f"rank {rank} (class {view.rank_class}{inferred})")
        labels.enter(view, ops, graph.program_call_sites(view.program))
        streams = sorted(set(shown.stream.tolist()) - {HOST_STREAM})
        host = writer.thread(pid, pid, "host", _HOST_ORDER)
        on_host = shown.stream == HOST_STREAM
        flows = _Flows(first=flow, places=set(shown.place[on_host]) & set(shown.place[~on_host]))
        flow += len(ops)
        for stream in (HOST_STREAM, *streams):
            track, own = host, shown.where(shown.stream == stream)
            if stream != HOST_STREAM:
                name = f"stream {stream}{labels.role(own.place)}"
                track, tid = writer.thread(pid, tid, name, stream), tid + 1
            slices += _write_track(writer, labels, track, own, flows)
        memory = writer.counter_bytes(process, "allocated")
        for time_ns, live in _memory(ops, all_intervals, first, last):
            writer.count(memory, time_ns, live)
            values += 1
    return TimelineSize(ranks=len(ranks), iteration=number, slices=slices, counter_values=values)


def _window(ops: OpArray, iteration: int) -> tuple[int, int]:
    """Places of the ops of an iteration; without marks, the whole program is iteration 0."""
    marks = np.flatnonzero((ops["kind"] == OpKind.MARK) & (ops["detail"] == MarkKind.ITERATION))
    if len(marks) == 0:
        return 0, len(ops)
    return (int(marks[iteration - 1]) + 1 if iteration else 0), int(marks[iteration]) + 1


def _launches(rows: _RankIntervals) -> Iterator[slice]:
    """Runs of rows that overlap in time: the parts of a grouped launch."""
    order = np.argsort(rows.arrive, kind="stable")
    for name in rows.__slots__:
        setattr(rows, name, getattr(rows, name)[order])
    first, reach = 0, None
    for i, (arrive, end) in enumerate(zip(rows.arrive.tolist(), rows.end.tolist(), strict=True)):
        if reach is not None and arrive >= reach:
            yield slice(first, i)
            first, reach = i, end
        else:
            reach = end if reach is None else max(reach, end)
    if reach is not None:
        yield slice(first, len(rows.place))


def _write_track(
    writer: PerfettoWriter, labels: Labels, track: int, rows: _RankIntervals, flows: _Flows
) -> int:
    """Slices of one track; how many. Waiting before a transfer is a slice of its own."""
    written = 0
    on_host = bool(len(rows.stream)) and int(rows.stream[0]) == HOST_STREAM
    talks = np.asarray(labels.is_communication(rows.place))
    if not on_host:
        # Only communication waits; a kernel's arrival is its launch, while its stream is still busy.
        rows.arrive = np.where(talks, rows.arrive, rows.start)
    seen = -1  # place of the last op on the host: a blocking op shows twice, calling and then waiting
    for launch in _launches(rows):
        places = rows.place[launch].tolist()
        begin, end = int(rows.start[launch].min()), int(rows.end[launch].max())
        arrive = int(rows.arrive[launch].min())
        if on_host:
            label = labels.host(places[0], waits=places[0] == seen)
        elif len(places) == 1:
            label = labels.device(places[0], int(rows.block[launch][0]))
        else:
            times = list(zip(rows.start[launch].tolist(), rows.end[launch].tolist(), strict=True))
            label = labels.group(places, int(rows.block[launch][0]), times)
        if arrive < begin:
            writer.begin(track, arrive, labels.waiting(places[0]))
            writer.end(track, begin)
            written += 1
        writer.begin(track, begin, label, flows.of(places) if places[0] != seen else ())
        writer.end(track, end)
        seen = places[0] if on_host else seen
        written += 1
    return written


def _memory(ops: OpArray, intervals: _RankIntervals, first: int, last: int) -> Sequence[tuple[int, int]]:
    """(host time, allocated bytes after it) of each allocate and free of the window."""
    signed = np.where(ops["kind"] == OpKind.ALLOCATE, ops["bytes"], 0)
    signed = np.where(ops["kind"] == OpKind.FREE, -ops["bytes"], signed)
    live = np.cumsum(signed)
    places = np.flatnonzero((ops["kind"] == OpKind.ALLOCATE) | (ops["kind"] == OpKind.FREE))
    places = places[(places >= first) & (places < last)]
    host = intervals.where(intervals.stream == HOST_STREAM)
    # The host's clock after an op is the end of the last host interval up to it.
    at = np.searchsorted(host.place, places, side="right") - 1
    times = np.where(at >= 0, host.end[at] if len(host.end) else 0, 0)
    return list(zip(times.tolist(), live[places].tolist(), strict=True))
