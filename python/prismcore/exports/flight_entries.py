"""The communication of one rank as entries of torch's flight recorder.

Fields are those of version 2.10 (torch 2.14, ``c10d/FlightRecorder.hpp``). Times are ns of the replay; where
it could not go on, an entry says how far its rank came: ``scheduled`` by the host, ``started`` on the device.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prismcore.exports.call_sites import Frame, frames_of
from prismcore.exports.rank_times import RankTimes
from prismcore.graph import Communicator, DataType, OpKind, Provenance
from prismcore.graph.op import OpFlag
from prismcore.graph.origin import PROVENANCE

__all__ = ["RankDump", "rank_dump"]

TIMEOUT_MS = 600_000
_NAMES = {
    OpKind.ALL_REDUCE: "all_reduce",
    OpKind.ALL_GATHER: "_all_gather_base",
    OpKind.REDUCE_SCATTER: "_reduce_scatter_base",
    OpKind.BROADCAST: "broadcast",
    OpKind.REDUCE: "reduce",
    OpKind.ALL_TO_ALL: "all_to_all",
    OpKind.GATHER: "gather",
    OpKind.SCATTER: "scatter",
}
_UNEVEN = {OpKind.ALL_GATHER: "all_gather_v", OpKind.REDUCE_SCATTER: "reduce_scatter_v"}
_GIVES_SHARE = (OpKind.ALL_GATHER, OpKind.GATHER)
_TAKES_SHARE = (OpKind.REDUCE_SCATTER, OpKind.SCATTER)
_DTYPES = {
    DataType.INT8: ("Char", 1),
    DataType.UINT8: ("Byte", 1),
    DataType.INT32: ("Int", 4),
    DataType.UINT32: ("UInt32", 4),
    DataType.INT64: ("Long", 8),
    DataType.UINT64: ("UInt64", 8),
    DataType.FLOAT16: ("Half", 2),
    DataType.FLOAT32: ("Float", 4),
    DataType.FLOAT64: ("Double", 8),
    DataType.BFLOAT16: ("BFloat16", 2),
    DataType.FLOAT8E4M3: ("Float8_e4m3fn", 1),
    DataType.FLOAT8E5M2: ("Float8_e5m2", 1),
}


@dataclass(kw_only=True, slots=True)
class RankDump:
    """What a rank's file holds beside the version."""

    pg_config: dict[str, dict[str, str]] = field(default_factory=dict)
    pg_status: dict[str, dict[str, int]] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)
    unfinished: int = 0  #: entries that are not completed


@dataclass(kw_only=True, slots=True)
class _Clock:
    """Of a stream: how far it is known to come, and whether something on it never ends."""

    time_ns: int = 0
    blocked: bool = False

    def join(self, other: _Clock) -> None:
        self.time_ns = max(self.time_ns, other.time_ns)
        self.blocked |= other.blocked


def rank_dump(
    times: RankTimes, communicator: Callable[[int], Communicator], sites: list[str], fails_ns: int | None
) -> RankDump:
    """Entries of a rank in the order of its host. ``fails_ns``: when it failed; what such a rank did not end
    is not in its dump, so that an analyser finds it missing where others wait for it."""
    dump = RankDump()
    writer = _Writer(dump, times, communicator, sites)
    streams: defaultdict[int, _Clock] = defaultdict(_Clock)
    distance: defaultdict[int, int] = defaultdict(int)
    for op in times.ops[(times.ops["kind"] == OpKind.EVENT_WAIT) | (times.ops["kind"] == OpKind.EVENT_SYNC)]:
        stream = int(op["event_stream"])
        distance[stream] = max(distance[stream], int(op["peer"]))
    records: dict[int, deque[_Clock]] = {s: deque(maxlen=n) for s, n in distance.items()}
    host = created = 0
    ends, hosts = times.end_ns.tolist(), times.host_ns.tolist()
    launch: list[int] = []
    for place, op in enumerate(times.ops.tolist()):
        kind, flags, _, _, _, stream, event_stream, peer, host_ns, _, _, _ = op
        created = (created if launch else host) + host_ns
        if fails_ns is not None and not launch and hosts[place] < 0 and created >= fails_ns:
            break
        host = max(host, hosts[place])  # of a launch: at its first part, and where it waits at its last
        clock = streams[stream]
        if kind >= OpKind.ALL_REDUCE:
            launch.append(place)
            if flags & OpFlag.GROUP_CONTINUES:
                continue
            _launch(writer, streams, times, launch, created, fails_ns=fails_ns)
            flags, clock = int(np.bitwise_or.reduce(times.ops["flags"][launch])), streams[stream]
            launch = []
        elif kind == OpKind.EVENT_RECORD:
            if stream in records:
                records[stream].append(_Clock(time_ns=clock.time_ns, blocked=clock.blocked))
        elif kind == OpKind.EVENT_WAIT:
            clock.join(_record(records, event_stream, peer))
        elif ends[place] >= 0:
            clock.time_ns = max(clock.time_ns, ends[place])
        if flags & OpFlag.BLOCKING or kind == OpKind.STREAM_SYNC:
            waits = clock
        elif kind == OpKind.EVENT_SYNC:
            waits = _record(records, event_stream, peer)
        elif kind == OpKind.DEVICE_SYNC:
            waits = _Clock(blocked=any(c.blocked for c in streams.values()))
        else:
            continue
        if waits.blocked:
            break  # the host comes no further
    return dump


def _record(records: dict[int, deque[_Clock]], stream: int, ago: int) -> _Clock:
    of = records.get(stream, ())
    return of[-ago] if 0 < ago <= len(of) else _Clock()


def _launch(
    writer: _Writer,
    streams: defaultdict[int, _Clock],
    times: RankTimes,
    places: list[int],
    host: int,
    *,
    fails_ns: int | None,
) -> None:
    """Entries of a launch, and what becomes of its streams."""
    on = sorted({int(times.ops["stream"][place]) for place in places})
    ready = _Clock(time_ns=host)
    for stream in on:
        ready.join(streams[stream])
    starts, ends = times.start_ns[places], times.end_ns[places]
    done = bool((ends >= 0).all())
    if fails_ns is not None:  # a send that does not wait is cut there
        done &= not bool(((ends == fails_ns) & (ends - starts < times.ops["duration_ns"][places])).any())
    for place in places:
        if done:
            writer.completed(place, host)
        elif fails_ns is None:
            writer.unfinished(place, host, None if ready.blocked else ready.time_ns)
    end = int(ends.max()) if done else ready.time_ns
    for stream in on:
        streams[stream] = _Clock(time_ns=max(end, ready.time_ns), blocked=ready.blocked or not done)


class _Writer:
    """Adds entries to the dump of a rank."""

    def __init__(
        self, dump: RankDump, times: RankTimes, communicator: Callable[[int], Communicator], sites: list[str]
    ) -> None:
        self._dump = dump
        self._times = times
        self._sites = sites
        self._frames: dict[str, list[Frame]] = {}
        self._slots = [
            (communicator(id), position, communicator(id).members.tolist())
            for id, position in times.rank.bindings.tolist()
        ]
        self._numbers: defaultdict[tuple[str, int], int] = defaultdict(int)

    def completed(self, place: int, host: int) -> None:
        entry = self._entry(place, host)
        start, end = int(self._times.arrive_ns[place]), int(self._times.end_ns[place])
        entry |= {
            "time_discovered_started_ns": start,
            "time_discovered_completed_ns": end,
            "duration_ms": (end - start) / 1e6,
            "state": "completed",
            "retired": True,
        }
        self._add(entry, "completed")

    def unfinished(self, place: int, host: int, started_ns: int | None) -> None:
        entry = self._entry(place, host)
        entry |= {
            "time_discovered_started_ns": started_ns,
            "time_discovered_completed_ns": None,
            "state": "scheduled" if started_ns is None else "started",
            "retired": False,
        }
        self._dump.unfinished += 1
        self._add(entry, "enqueued" if started_ns is None else "started")

    def _add(self, entry: dict[str, Any], reached: str) -> None:
        self._dump.entries.append(entry)
        status = self._dump.pg_status[entry["process_group"][0]]
        for what in ("enqueued", "started", "completed"):
            status[f"last_{what}_collective"] = entry["collective_seq_id"]
            if what == reached:
                break

    def _entry(self, place: int, host: int) -> dict[str, Any]:
        number, flags, dtype, _, ref, _, _, peer, _, tag, _, size = self._times.ops[place].tolist()
        kind = OpKind(number)
        communicator, position, members = self._slots[ref]
        message = kind in (OpKind.SEND, OpKind.RECV)
        if message:
            own, other = members[position], members[(position + peer) % len(members)]
            source, target = (own, other) if kind == OpKind.SEND else (other, own)
            ranks = sorted({source, target})
            group = f"{communicator.id}:{source}->{target}" + (f":{tag}" if tag else "")
            a, b = ranks.index(source), ranks.index(target)
            name = f"send {a}->{b}" if kind == OpKind.SEND else f"recv {b}<-{a}"
            side = kind
        else:
            ranks, group, name, side = members, str(communicator.id), "", OpKind.ALL_REDUCE
        self._enter(group, communicator.name, ranks)
        self._numbers[group, side] += 1
        sequence = self._numbers[group, side]
        shapes = _shapes(kind, DataType(dtype), size, len(members))
        records = len(self._dump.entries)
        site = int(self._times.position[place])
        return {
            "record_id": records,
            "pg_id": communicator.id,
            "process_group": (group, communicator.name),
            "collective_seq_id": sequence,
            "p2p_seq_id": sequence if message else 0,
            "op_id": records + 1,
            "profiling_name": f"nccl:{name or shapes.name}",
            "time_created_ns": host,
            PROVENANCE: Provenance(flags & max(Provenance)).name.lower(),
            "input_sizes": [shapes.inputs],
            "input_dtypes": [shapes.dtype],
            "output_sizes": [shapes.outputs],
            "output_dtypes": [shapes.dtype],
            "timeout_ms": TIMEOUT_MS,
            "is_p2p": message,
            "thread_id": "0",
            "thread_name": "",
            "frames": self._site(self._sites[site] if site < len(self._sites) else ""),
        }

    def _enter(self, group: str, name: str, ranks: list[int]) -> None:
        if group not in self._dump.pg_config:
            self._dump.pg_config[group] = {"name": group, "desc": name, "ranks": str(ranks)}
            self._dump.pg_status[group] = {
                f"last_{what}_collective": -1 for what in ("enqueued", "started", "completed")
            }

    def _site(self, site: str) -> list[Frame]:
        if site not in self._frames:
            self._frames[site] = frames_of(site)
        return self._frames[site]


@dataclass(kw_only=True, slots=True, frozen=True)
class _Shapes:
    name: str
    dtype: str
    inputs: list[int]
    outputs: list[int]


def _shapes(kind: OpKind, dtype: DataType, size: int, members: int) -> _Shapes:
    """Sizes of both buffers, from that of the larger one."""
    name, each = _DTYPES.get(dtype, ("Byte", 1))
    if size % each:
        name, each = "Byte", 1
    total = size // each
    share = -(-total // members)
    called = _NAMES.get(kind, "")
    if total % members and kind in _UNEVEN:
        called = _UNEVEN[kind]
    return _Shapes(
        name=called,
        dtype=name,
        inputs=[share if kind in _GIVES_SHARE else total],
        outputs=[share if kind in _TAKES_SHARE else total],
    )
