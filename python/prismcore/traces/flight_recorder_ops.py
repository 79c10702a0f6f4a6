"""Dumps of torch's flight recorder as a graph: the calls of torch.distributed and the time between them.

A rank's host makes its calls when the dump says; each runs on a stream of its group. What was timed ends
when it ended; what is before it on its stream (computation, that a dump does not hold) is a gap. What was
not timed takes the duration of the model of ``prismcore.comm``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from prismcore.errors import TraceError
from prismcore.graph import Graph, OpKind, Provenance
from prismcore.graph.op import MOST_BYTES
from prismcore.graph.origin import from_mark
from prismcore.profiles.cluster import ClusterProfile
from prismcore.rank_list import absent_words, format_absent, format_ranks
from prismcore.stitch.rows import segment_reduce
from prismcore.traces.collectives import NAMED, Collective, kind_of_call, rank_list, told_of_many
from prismcore.traces.flight_recorder import Entry, FlightRecord
from prismcore.traces.flight_recorder_times import time_calls
from prismcore.traces.messages import Message
from prismcore.traces.op_columns import HOST, OpColumns

__all__ = ["graph_of_flight_records"]

_NAMED = 5
_COALESCED = "coalesced"


def graph_of_flight_records(
    records: Sequence[FlightRecord], cluster: ClusterProfile
) -> tuple[Graph, list[str]]:
    """The graph, of one iteration, and what to distrust in it.

    Raises TraceError where the dumps hold no calls.
    """
    columns = OpColumns(warnings=told_of_many([text for record in records for text in record.warnings]))
    columns.labels = ["calls"]
    columns.late = {record.rank for record in records if record.entries and record.entries[0].record > 0}
    if columns.late:
        columns.warnings.append(
            f"rings of ranks {rank_list(sorted(columns.late))} start late: the calls before are not in them"
        )
    versions = {record.version for record in records}
    if len(versions) > 1:
        columns.warnings.append(f"dumps of versions {', '.join(sorted(versions))} are mixed")
    begin = _begin(records)
    unfinished: dict[tuple[str, int], dict[int, Entry]] = {}
    left_out: Counter[str] = Counter()
    durations: dict[int, int] = {}
    for record in records:
        calls = _RankCalls(record, columns, begin, left_out)
        calls.run(unfinished)
        durations |= calls.durations
    columns.warnings += _tell_left_out(left_out)
    world = 1 + max(*columns.rank, *(m for r in records for of in r.members.values() for m in of), 0)
    absent = format_absent([record.rank for record in records], range(world), most=NAMED)
    if absent:
        columns.warnings.append(absent_words(absent, f"{world:,}", "dump"))
    columns.warnings += _tell_unfinished(unfinished, records)

    ops, meetings = columns.matched()
    rows, waits = columns.rows(), columns.wait_table()
    untimed = np.zeros(len(rows.rank), dtype=np.int64)
    untimed[list(columns.unmeasured)] = 1
    timing = time_calls(
        rows, waits, meetings, durations=durations, untimed=untimed, warnings=columns.warnings
    )
    modelled = segment_reduce(np.maximum, untimed, meetings.id) > 0
    members = _members(columns)
    for row in np.flatnonzero(modelled & (untimed == 0)).tolist():
        columns.unmeasured[row] = members[row]
    given = columns.model(cluster, ops)
    timing.duration_ns[modelled] = np.array(columns.duration_ns)[modelled]
    notes = [*columns.warnings]  # less what reports tell of the graph
    if given:
        columns.warnings.append(
            f"{given:,} communication ops were not timed on all members (TORCH_NCCL_ENABLE_TIMING) and take "
            f"the duration of the model of cluster {cluster.name}"
        )
    metadata: dict[str, Any] = {
        "imported_from": "flight-recorder",
        "notes": notes,
        **_origin(records),
    }
    if given:
        metadata |= {"modelled_communication": given, "modelled_by": cluster.name}
    graph = columns.graph(world_size=world, matched=ops, waits=waits, timing=timing, metadata=metadata)
    return graph, columns.warnings


def _origin(records: Sequence[FlightRecord]) -> dict[str, Any]:
    """What exported dumps say of the graph they are of; its iterations are one here, set-up and all."""
    found: dict[str, Any] = {}
    for record in records:
        found = from_mark(record.mark) | found
        if not found and any(entry.provenance is not None for entry in record.entries):
            found = from_mark({})
    found.pop("warmup_iterations", None)
    return found


def _begin(records: Sequence[FlightRecord]) -> int:
    """The time of the first call of all."""
    calls = [(entry, record.path) for record in records for entry in record.entries]
    if not calls:
        raise TraceError(f"{records[0].path}: no calls found in any of {len(records)} dumps, expected some")
    begin = min(entry.created_ns for entry, _ in calls)
    last, path = max((max(entry.created_ns, entry.completed_ns or 0), path) for entry, path in calls)
    if last - begin > MOST_BYTES:
        raise TraceError(
            f"{path}: a call at {last:,} ns found, the first at {begin:,} ns; expected dumps of one run"
        )
    return begin


def _members(columns: OpColumns) -> dict[int, tuple[int, ...]]:
    """Ranks that take part in each row of communication."""
    found = {
        c.row: tuple(c.communicator[1] or (rank,)) for rank, of in columns.collectives.items() for c in of
    }
    return found | {message.row: (message.source, message.target) for message in columns.messages}


def _tell_left_out(left_out: Counter[str]) -> list[str]:
    """What calls could not be read as they were, over all ranks."""
    warnings = []
    if coalesced := left_out.pop(_COALESCED, 0):
        warnings.append(
            f"{coalesced:,} coalesced calls do not tell what is in them; each counts as an all-gather of "
            "unknown size"
        )
    if left_out:
        named = ", ".join(f"{name} ({count:,})" for name, count in left_out.most_common(_NAMED))
        warnings.append(f"calls that are not known are left out: {named}")
    return warnings


class _RankCalls:
    """Adds the calls of one rank."""

    def __init__(self, record: FlightRecord, columns: OpColumns, begin: int, left_out: Counter[str]) -> None:
        self.record, self.columns, self.begin, self.left_out = record, columns, begin, left_out
        self.lanes: dict[str, int] = {}
        self.durations: dict[int, int] = {}  #: of rows that the device timed

    def run(self, unfinished: dict[tuple[str, int], dict[int, Entry]]) -> None:
        rank = self.record.rank
        parts = {(e.group, e.number) for e in self.record.entries if e.message}
        end = 0
        for entry in self.record.entries:
            end = max(end, entry.created_ns - self.begin)
            if entry.name == _COALESCED and self._has_parts(entry, parts):
                continue
            kind = self._kind(entry)
            if kind is None:
                continue
            if entry.state != "completed":
                unfinished.setdefault((entry.group, entry.number), {})[rank] = entry
            self.columns.add(rank, HOST, OpKind.HOST_GAP, span=(end, end), provenance=Provenance.MEASURED)
            self._add(entry, kind, end)
        self.columns.mark(rank, 0, end)

    def _has_parts(self, entry: Entry, parts: set[tuple[str, int]]) -> bool:
        """Whether the sends and receives of a coalesced call stand in the dump one by one."""
        return entry.bytes == 0 and any(group == entry.group for group, _ in parts)

    def _kind(self, entry: Entry) -> OpKind | None:
        if entry.name == _COALESCED:
            self.left_out[_COALESCED] += 1
            return OpKind.ALL_GATHER
        kind = kind_of_call(entry.name)
        if kind is None or (kind >= OpKind.SEND) != entry.message:
            self.left_out["".join(c if c.isprintable() else "?" for c in entry.name[:40])] += 1
            return None
        return kind

    def _source(self, entry: Entry) -> Provenance:
        if entry.provenance is not None:
            return entry.provenance
        return Provenance.UNKNOWN if from_mark(self.record.mark) else Provenance.MEASURED

    def _add(self, entry: Entry, kind: OpKind, called_ns: int) -> None:
        rank, members = self.record.rank, self.record.members.get(entry.group)
        label = entry.group
        if entry.description not in ("", "undefined"):
            label = f"{entry.group}:{entry.description}"
        span = _span(entry, self.begin, called_ns)
        name = label if not entry.message else f"{label} {kind.name}"
        row = self.columns.add(
            rank,
            self.lanes.setdefault(name, len(self.lanes) + 1),
            kind,
            span=span or (called_ns, called_ns),
            bytes=entry.bytes,
            dtype=entry.dtype,
            provenance=self._source(entry) if span else Provenance.MODEL,
        )
        if span is not None and entry.duration_ns is not None:
            self.durations[row] = entry.duration_ns
        if not entry.message:
            self.columns.collectives.setdefault(rank, []).append(
                Collective(
                    row=row,
                    communicator=(label, members),
                    kind=int(kind),
                    bytes=entry.bytes,
                    number=entry.number,
                )
            )
            if span is None:
                self.columns.unmeasured[row] = members or (rank,)
            return
        order = sorted(members or ())
        other = order[entry.peer] if entry.peer is not None and entry.peer < len(order) else rank
        here, there = (rank, other) if kind == OpKind.SEND else (other, rank)
        self.columns.messages.append(
            Message(
                row=row,
                communicator=(label, tuple(order) or (rank,)),
                source=here,
                target=there,
                sends=kind == OpKind.SEND,
                tag=0,
                bytes=entry.bytes,
            )
        )
        if span is None:
            self.columns.unmeasured[row] = (here, there)


def _span(entry: Entry, begin: int, called_ns: int) -> tuple[int, int] | None:
    """Begin and end on the device; None where they were not seen, or cannot be."""
    if entry.state != "completed" or entry.completed_ns is None:
        return None
    end = entry.completed_ns - begin
    if entry.duration_ns is not None:
        start = end - entry.duration_ns
    elif entry.started_ns is not None:
        start = entry.started_ns - begin
    else:
        return None
    return (max(start, called_ns), end) if end >= max(start, called_ns) else None


def _tell_unfinished(
    unfinished: dict[tuple[str, int], dict[int, Entry]], records: Sequence[FlightRecord]
) -> list[str]:
    """Of each group the first call that did not end: who came how far, and who did not come."""
    first: dict[str, int] = {}
    for group, number in unfinished:
        first[group] = min(number, first.get(group, number))
    warnings = []
    for group, number in sorted(first.items())[:_NAMED]:
        entries = unfinished[group, number]
        one = next(iter(entries.values()))
        states = {
            state: [r for r, e in entries.items() if e.state == state] for state in ("started", "scheduled")
        }
        came = [f"{state} on ranks {format_ranks(ranks)}" for state, ranks in states.items() if ranks]
        members = next((r.members[group] for r in records if group in r.members), ())
        there = {
            r.rank for r in records for e in r.entries if e.group == group and e.number == number
        }  # fmt: skip
        lacking = sorted((set(members) & {r.rank for r in records}) - there) if not one.message else []
        if lacking:
            came.append(f"never called on ranks {format_ranks(lacking)}")
        warnings.append(
            f"communicator {group}: {one.name} {number} did not end ({', '.join(came)}); it and later ones "
            "count as if they had"
        )
    if len(first) > _NAMED:
        warnings.append(f"calls of {len(first) - _NAMED} more communicators did not end")
    return warnings
