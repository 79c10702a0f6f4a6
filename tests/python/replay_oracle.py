"""Replay done naively: every op by itself, hosts ahead of devices, until nothing moves any more.

The independent check of the engine: no folding, no unions kept incrementally, no order of its own.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from perturbation_oracle import UNCHANGED, Changes

from prismcore.graph import Graph, MarkKind, OpFlag, OpKind

DEVICE_KINDS = (OpKind.KERNEL, OpKind.COPY, OpKind.SET)
CLASSES = ("compute", "transfer", "waiting", "callback")


class StuckError(Exception):
    """Some ranks can never go on."""


@dataclass
class Value:
    """A time that may not be known yet."""

    time: int | None = None


@dataclass
class Item:
    """Something issued to one or more streams of a rank."""

    kind: str
    host: int
    streams: list[int]
    ops: list[Any]
    done: Value = field(default_factory=Value)
    wait_for: Value | None = None
    handles: list[Any] = field(default_factory=list)  # one a part, taken in the order of issue
    arrived: bool = False
    kernel: int = 0  # its number among the kernels of the rank
    at: int = 0  # its number among the ops of the rank
    ready: int = 0  # a launch that has arrived: when


class OracleRank:
    def __init__(self, graph: Graph, rank: int) -> None:
        self.rank = rank
        self.ops = graph.ops(rank)
        self.bindings = graph.rank(rank).bindings
        self.pc = 0
        self.host = 0
        self.charged = False  # host_ns of the op at pc is spent
        self.streams: defaultdict[int, int] = defaultdict(int)
        self.queues: defaultdict[int, list[Item]] = defaultdict(list)
        self.records: defaultdict[int, list[Value]] = defaultdict(list)
        self.sequence: defaultdict[int, int] = defaultdict(int)
        self.intervals: list[tuple[str, int, int]] = []
        self.marks: list[tuple[int, list[Value]]] = []
        self.kernels = 0


class Oracle:
    def __init__(self, graph: Graph, *, eager_bytes: int = 0, changes: Changes = UNCHANGED) -> None:
        self.graph = graph
        self.changes = changes
        self.eager_bytes = eager_bytes
        self.ranks = [OracleRank(graph, int(r)) for r in graph.ranks]
        self.collectives: defaultdict[tuple[int, int], dict[int, tuple[int, int]]] = defaultdict(dict)
        self.sends: defaultdict[tuple[int, ...], list[tuple[int, int, int] | None]] = defaultdict(list)
        self.receives: defaultdict[tuple[int, ...], list[tuple[int, int, int] | None]] = defaultdict(list)

    def run(self) -> None:
        self.run_until_nothing_moves()
        if any(r.pc < len(r.ops) or any(r.queues.values()) for r in self.ranks):
            raise StuckError

    def run_until_nothing_moves(self) -> None:
        moved = True
        while moved:
            moved = False
            for r in self.ranks:
                while self.issue(r) or self.execute(r):
                    moved = True

    # The host.

    def issue(self, r: OracleRank) -> bool:
        if r.pc == len(r.ops):
            return False
        issued = r.host + sum(int(p["host_ns"]) for p in self.launch_parts(r))
        if not r.charged and issued >= self.changes.fails(r.rank):
            return False  # for ever
        op = r.ops[r.pc]
        kind = OpKind(int(op["kind"]))
        stream = int(op["stream"])
        if kind == OpKind.STREAM_SYNC and r.queues[stream]:
            return False
        if kind == OpKind.DEVICE_SYNC and any(r.queues.values()):
            return False
        event = None
        if kind in (OpKind.EVENT_WAIT, OpKind.EVENT_SYNC):
            records = r.records[int(op["event_stream"])]
            back = int(op["peer"])
            event = records[-back] if back <= len(records) else Value(0)
            if kind == OpKind.EVENT_SYNC and event.time is None:
                return False
        if not r.charged:
            parts = self.launch_parts(r)
            r.host += sum(int(p["host_ns"]) for p in parts)
            r.charged = True
            self.enqueue(r, kind, parts, event)
        if any(int(p["flags"]) & OpFlag.BLOCKING for p in self.launch_parts(r)) and (
            kind in DEVICE_KINDS or kind.is_communication
        ):
            streams = {int(p["stream"]) for p in self.launch_parts(r)}
            if any(r.queues[s] for s in streams):
                return False
            r.host = max(r.host, *(r.streams[s] for s in streams))
        r.pc += len(self.launch_parts(r))
        r.charged = False
        return True

    def launch_parts(self, r: OracleRank) -> list[Any]:
        end = r.pc
        while int(r.ops[end]["flags"]) & OpFlag.GROUP_CONTINUES:
            end += 1
        return list(r.ops[r.pc : end + 1])

    def enqueue(self, r: OracleRank, kind: OpKind, parts: list[Any], event: Value | None) -> None:
        op = parts[0]
        stream = int(op["stream"])

        def put(what: str, streams: list[int]) -> Item:
            item = Item(what, r.host, streams, parts, wait_for=event, at=r.pc)
            for s in streams:
                r.queues[s].append(item)
            return item

        if kind in DEVICE_KINDS:
            put("compute", [stream]).kernel = r.kernels
            r.kernels += kind == OpKind.KERNEL
        elif kind == OpKind.HOST_CALLBACK:
            put("callback", [stream])
        elif kind.is_communication:
            item = put("launch", sorted({int(p["stream"]) for p in parts}))
            item.handles = [self.enrol(r, p) for p in parts]
        elif kind == OpKind.HOST_GAP:
            r.host += int(op["duration_ns"])
        elif kind == OpKind.EVENT_RECORD:
            r.records[stream].append(put("record", [stream]).done)
        elif kind == OpKind.EVENT_WAIT:
            put("wait", [stream])
        elif kind == OpKind.EVENT_SYNC:
            assert event is not None
            assert event.time is not None
            r.host = max(r.host, event.time)
        elif kind == OpKind.STREAM_SYNC:
            r.host = max(r.host, r.streams[stream])
        elif kind == OpKind.DEVICE_SYNC:
            r.host = max([r.host, *r.streams.values()])
        elif kind == OpKind.MARK and int(op["detail"]) == MarkKind.ITERATION:
            used = sorted(set(r.streams) | set(r.queues))
            r.marks.append((r.host, [put("record", [s]).done for s in used]))

    # The device.

    def execute(self, r: OracleRank) -> bool:
        return any(queue and self.try_item(r, queue[0]) for queue in list(r.queues.values()))

    def try_item(self, r: OracleRank, item: Item) -> bool:
        if any(r.queues[s][0] is not item for s in item.streams):
            return False
        if item.kind == "wait" and item.wait_for is not None and item.wait_for.time is None:
            return False
        clocks = [r.streams[s] for s in item.streams]
        ready = max(item.host, *clocks)
        end = clocks[0]
        fails = self.changes.fails(r.rank)
        if item.kind in ("compute", "callback", "launch") and ready >= fails:
            return False
        if item.kind in ("compute", "callback"):
            duration = int(item.ops[0]["duration_ns"])
            if int(item.ops[0]["kind"]) == OpKind.KERNEL:
                duration = self.changes.kernel(r.rank, item.kernel, ready, duration)
            end = ready + duration
            if end > fails:
                return False
            r.intervals.append((item.kind, ready, end))
        elif item.kind == "wait":
            assert item.wait_for is not None
            end = max(clocks[0], item.wait_for.time or 0)
        elif item.kind == "launch":
            if not item.arrived:
                item.arrived = True
                item.ready = ready
                for handle, op in zip(item.handles, item.ops, strict=True):
                    self.arrive(handle, op, ready)
            spans = [self.met(*handle) for handle in item.handles]
            if any(s is None for s in spans):
                return False
            end = max(span[1] for span in spans if span is not None)
            if end > fails:
                return False
            end = max(end, ready)
            for span in spans:
                assert span is not None
                r.intervals.append(("waiting", ready, span[0]))
                r.intervals.append(("transfer", span[0], span[1]))
        for s in item.streams:
            r.queues[s].pop(0)
            r.streams[s] = end
        item.done.time = end
        return True

    def enrol(self, r: OracleRank, op: Any) -> tuple[Any, ...]:
        binding = r.bindings[int(op["ref"])]
        c, position = int(binding["communicator"]), int(binding["position"])
        kind = OpKind(int(op["kind"]))
        if kind in (OpKind.SEND, OpKind.RECV):
            size = len(self.graph.communicator(c).members)
            peer = (position + int(op["peer"])) % size
            sends = kind == OpKind.SEND
            ends = (position, peer) if sends else (peer, position)
            key = (c, *ends, int(op["tag"]))
            table = self.sends if sends else self.receives
            table[key].append(None)
            return (kind, key, len(table[key]) - 1)
        r.sequence[c] += 1
        return (kind, (c, r.sequence[c]), position)

    def arrive(self, handle: tuple[Any, ...], op: Any, ready: int) -> None:
        kind, key, k = handle
        if kind in (OpKind.SEND, OpKind.RECV):
            table = self.sends if kind == OpKind.SEND else self.receives
            table[key][k] = (ready, int(op["duration_ns"]), int(op["bytes"]))
        else:
            self.collectives[key][k] = (ready, int(op["duration_ns"]))

    def met(self, kind: OpKind, key: Any, k: int) -> tuple[int, int] | None:
        """Start and end of one part, if its partners have come."""
        if kind in (OpKind.SEND, OpKind.RECV):
            send = self.sends[key][k] if k < len(self.sends[key]) else None
            receive = self.receives[key][k] if k < len(self.receives[key]) else None
            eager = send is not None and 0 < self.eager_bytes >= send[2]
            members = self.graph.communicator(key[0]).members
            ends = int(members[key[1]]), int(members[key[2]])
            source_fails, target_fails = map(self.changes.fails, ends)
            if kind == OpKind.SEND and eager:
                assert send is not None
                return send[0], send[0] + self.changes.message(*ends, send[0], send[1])
            if send is None or receive is None:
                return None
            start = max(send[0], receive[0])
            duration = receive[1] if eager else max(send[1], receive[1])
            end = start + self.changes.message(*ends, start, duration)
            if eager:
                sent = send[0] + self.changes.message(*ends, send[0], send[1])
                return None if sent > source_fails else (start, end)
            fails = min(source_fails, target_fails)
            return None if start >= fails or end > fails else (start, end)
        here = self.collectives[key]
        members = self.graph.communicator(key[0]).members
        if len(here) < len(members):
            return None
        start = max(t for t, _ in here.values())
        duration = max(d for _, d in here.values())
        end = start + self.changes.collective(kind, members, start, duration)
        fails = min(self.changes.fails(int(m)) for m in members)
        return None if start >= fails or end > fails else (start, end)

    # Who is left.

    def is_done(self, r: OracleRank) -> bool:
        """Whether a rank came to the end of its program, and before it failed."""
        end = max([r.host, *r.streams.values()])
        return r.pc == len(r.ops) and not any(r.queues.values()) and end <= self.changes.fails(r.rank)

    def waits(self, r: OracleRank) -> tuple[int, int]:
        """The first op of a rank, in the order of its program, that waits for others, and since when."""
        heads = {id(q[0]): q[0] for q in r.queues.values() if q}.values()
        item = min((i for i in heads if i.arrived), key=lambda i: i.at)
        part = next(k for k, handle in enumerate(item.handles) if self.met(*handle) is None)
        return item.at + part, item.ready

    def ended_iterations(self, r: OracleRank) -> list[int]:
        """When those ended that did."""
        if not all(any(self.is_mark(op) for op in o.ops) for o in self.ranks):
            return [max([r.host, *r.streams.values()])] if self.is_done(r) else []
        ends = []
        for host, values in r.marks:
            times = [v.time for v in values]
            if None in times or max([host, *times]) > self.changes.fails(r.rank):
                break
            ends.append(max([host, *times]))
        return ends

    @staticmethod
    def is_mark(op: Any) -> bool:
        return int(op["kind"]) == OpKind.MARK and int(op["detail"]) == MarkKind.ITERATION

    # Where the time went.

    def iteration_ends(self, r: OracleRank) -> list[int]:
        if all(o.marks for o in self.ranks):
            return [max([host, *(v.time or 0 for v in values)]) for host, values in r.marks]
        return [max([r.host, *r.streams.values()])]

    def splits(self, r: OracleRank, iterations: int) -> list[tuple[int, ...]]:
        """compute, communication, exposed, waiting, host, idle of each iteration."""
        out = []
        begin = 0
        for end in self.ended_iterations(r)[:iterations]:
            cuts = {begin, end}
            for _, a, b in r.intervals:
                cuts |= {t for t in (a, b) if begin < t < end}
            ordered = sorted(cuts)
            sums = dict.fromkeys(("compute", "transfer", "exposed", "waiting", "host", "callback"), 0)
            for a, b in pairwise(ordered):
                active = {c for c, x, y in r.intervals if x <= a and b <= y and x < y}
                if "transfer" in active:
                    sums["transfer"] += b - a
                first = next((c for c in CLASSES if c in active), "host")
                sums["exposed" if first == "transfer" else first] += b - a
            out.append(tuple(sums.values()))
            begin = end
        return out
