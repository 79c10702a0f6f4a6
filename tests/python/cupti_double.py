"""CUPTI's double for Python tests: builds and drives it, packs records, and makes from a recorded program
the records that a real GPU would give. Layouts are those of ``cupti_activity.h`` of CUDA 13.0."""

from __future__ import annotations

import ctypes
import random
import struct
import subprocess
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from prismcore import Graph, _core
from prismcore.graph import CopyDirection, OpFlag, OpKind, Provenance

SOURCE = Path(__file__).parents[1] / "doubles/cupti.cc"
ORIGIN = 1_000_000
CONTEXT, DEFAULT_STREAM = 1, 7

LAUNCH, MEMCPY, MEMCPY_ASYNC, MEMSET_ASYNC = 211, 31, 41, 51
EVENT_RECORD, EVENT_WAIT, EVENT_SYNC, EVENT_QUERY = 135, 147, 137, 138
STREAM_SYNC, STREAM_QUERY, DEVICE_SYNC = 131, 132, 165
MALLOC, FREE = 20, 22
CU_MEM_RELEASE, CU_LAUNCH_KERNEL = 550, 307
NOT_READY = 600


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()  # one for the process: the recording keeps what it loaded


class Double:
    """The loaded double. ``names`` keeps what kernel records point to."""

    def __init__(self) -> None:
        self.path = Path(_folder().name) / "libcupti.so.13"
        if not self.path.exists():
            subprocess.run(
                [
                    *("c++", "-std=c++20", "-O1", "-shared", "-fPIC", "-Wl,-soname,libcupti.so.13", "-o"),
                    self.path,
                    SOURCE,
                ],
                check=True,
            )
        self.library = ctypes.CDLL(str(self.path))
        self.library.double_count.restype = ctypes.c_size_t
        self.names: dict[str, ctypes.Array[ctypes.c_char]] = {}

    def reset(self) -> None:
        self.library.double_reset()
        self.set_time(ORIGIN)

    def set_time(self, now: int) -> None:
        self.library.double_set_time(ctypes.c_uint64(now), ctypes.c_uint64(0))

    def post(self, record: bytes, *, whole: bool = True) -> None:
        self.library.double_post(record, ctypes.c_size_t(len(record)), ctypes.c_bool(whole))

    def deliver(self) -> None:
        self.library.double_deliver()

    def fail(self, call: str, result: int, number: int = 1) -> None:
        self.library.double_fail(call.encode(), ctypes.c_size_t(number), ctypes.c_int(result))

    def count(self, what: str) -> int:
        return int(self.library.double_count(what.encode()))

    def name(self, text: str) -> int:
        if text not in self.names:
            self.names[text] = ctypes.create_string_buffer(text.encode())
        return ctypes.addressof(self.names[text])


def api(callback: int, start: int, end: int, correlation: int, *, thread: int, result: int = 0,
        driver: bool = False) -> bytes:  # fmt: skip
    return struct.pack("<IIQQIIII", 4 if driver else 5, callback, start, end, 1, thread, correlation, result)


def kernel(name: int, start: int, end: int, correlation: int, stream: int, *, grid: Any = (1, 1, 1),
           block: Any = (1, 1, 1), shared: int = 0, node: int = 0) -> bytes:  # fmt: skip
    head = struct.pack("<IBBHIIQQQIII", 10, 0, 0, 32, 0, 0, start, end, end, 0, CONTEXT, stream)
    shape = struct.pack("<6i2i3I", *grid, *block, 48, shared, 0, 0, correlation)
    tail = struct.pack("<qQQQQ4BIQII", 0, name, 0, 0, 0, 0, 0, 0, 0, 0, node, 0, int(node != 0))
    rest = struct.pack("<QIIIIIIQIIB7x", 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0)
    return head + shape + tail + rest


def memcpy(kind: int, size: int, times: tuple[int, int], correlation: int, stream: int, *, source: int,
           destination: int) -> bytes:  # fmt: skip
    start, end = times
    return struct.pack("<I4BQQQIIIIIIQQIIIB3xQ", 1, kind, source, destination, 0, size, start, end, 0,
                       CONTEXT, stream, correlation, 0, 0, 0, 0, 0, 0, 0, 0, 0)  # fmt: skip


def memset(size: int, start: int, end: int, correlation: int, stream: int) -> bytes:
    return struct.pack("<IIQQQIIIIHHIQQIIIB3x", 2, 0, size, start, end, 0, CONTEXT, stream, correlation,
                       0, 3, 0, 0, 0, 0, 0, 0, 0)  # fmt: skip


def synchronization(kind: int, correlation: int, *, stream: int = 0xFFFFFFFF, event_sync: int = 0) -> bytes:
    return struct.pack("<IIQQIIIIQII", 38, kind, 0, 0, correlation, CONTEXT, stream, 5, event_sync, 0, 0)


def cuda_event(correlation: int, stream: int, event_sync: int) -> bytes:
    return struct.pack("<8IQQQ", 36, correlation, CONTEXT, stream, 5, 0, 0, 0, 0, 0, event_sync)


def stream_made(stream: int, flag: int, correlation: int = 0) -> bytes:
    return struct.pack("<6I", 37, CONTEXT, stream, 0, flag, correlation)


def memory(release: bool, size: int, correlation: int, *, kind: int = 3) -> bytes:
    body = struct.pack("<IIIIQQQQIIIIQII", 49, 2 if release else 1, kind, correlation, 4096, size, 0, 0, 1,
                       0, CONTEXT, 0, 0, 0, 0)  # fmt: skip
    return body + bytes(48)


class Rank:
    """A rank's program, as it would run on a GPU: made of the ops of a graph, by clocks of its own."""

    def __init__(self, double: Double, graph: Graph, rank: int, chance: random.Random) -> None:
        self.double = double
        self.graph = graph
        self.rank = rank
        self.chance = chance
        self.ops = plain(graph.ops(rank))
        self.host = 0
        self.streams: defaultdict[int, int] = defaultdict(int)
        self.recorded: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # id, time
        self.records: list[bytes] = [stream_made(DEFAULT_STREAM, 3)]
        self.notes: list[tuple[int, Callable[[], object]]] = []
        self.numbers = 0
        self.thread = threading.get_native_id()

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def call(self, callback: int, start: int, end: int, *, result: int = 0, driver: bool = False) -> int:
        number = self.number()
        self.records.append(
            api(callback, ORIGIN + start, ORIGIN + end, number, thread=self.thread, result=result,
                driver=driver)
        )  # fmt: skip
        return number

    def note(self, at: int, what: Callable[[], object]) -> None:
        self.notes.append((ORIGIN + at, what))

    def run(self) -> None:
        """Makes records and notes of all ops."""
        i = 0
        while i < len(self.ops):
            last = i
            while self.ops[last]["flags"] & OpFlag.GROUP_CONTINUES:
                last += 1
            if self.ops[i]["kind"] >= OpKind.ALL_REDUCE:
                self.communicate(i, last)
            else:
                self.one(self.ops[i])
            i = last + 1

    def begin(self, op: Any) -> int:
        """When the call begins: its cost is some of the host's time."""
        before = self.host
        self.host += int(op["host_ns"])
        return self.chance.randint(before + 1, self.host - 1)

    def launch(self, op: Any) -> tuple[int, int]:
        s = int(op["stream"])
        start = max(self.host, self.streams[s])
        self.streams[s] = start + int(op["duration_ns"])
        return ORIGIN + start, ORIGIN + self.streams[s]

    def one(self, op: Any) -> None:
        kind = OpKind(op["kind"])
        called = self.begin(op)
        s = int(op["stream"])
        stream = DEFAULT_STREAM + s
        size = int(op["bytes"])
        if kind == OpKind.KERNEL:
            of = self.graph.kernel(int(op["ref"]))
            driver = self.chance.random() < 0.3
            number = self.call(CU_LAUNCH_KERNEL if driver else LAUNCH, called, self.host, driver=driver)
            name = self.double.name(of.name)
            self.records.append(
                kernel(name, *self.launch(op), number, stream, grid=of.grid, block=of.block,
                       shared=of.shared_bytes)
            )  # fmt: skip
        elif kind == OpKind.COPY:
            self.copy(op, called)
        elif kind == OpKind.SET:
            number = self.call(MEMSET_ASYNC, called, self.host)
            self.records.append(memset(size, *self.launch(op), number, stream))
        elif kind == OpKind.EVENT_RECORD:
            number = self.call(EVENT_RECORD, called, self.host)
            self.recorded[s].append((number + 1000, self.streams[s]))
            self.records.append(cuda_event(number, stream, number + 1000))
        elif kind == OpKind.EVENT_WAIT:
            event, time = self.recorded[int(op["event_stream"])][-int(op["peer"])]
            number = self.call(EVENT_WAIT, called, self.host)
            self.records.append(synchronization(2, number, stream=stream, event_sync=event))
            self.streams[s] = max(self.streams[s], time)
        elif kind == OpKind.QUERY:
            self.query(op, called)
        elif kind in (OpKind.STREAM_SYNC, OpKind.EVENT_SYNC, OpKind.DEVICE_SYNC):
            self.synchronise(op)
        elif kind in (OpKind.ALLOCATE, OpKind.FREE):
            sign = 1 if kind == OpKind.ALLOCATE else -1
            self.note(self.host, lambda: _core.cupti_block(sign * size))
        elif kind in (OpKind.RESERVE, OpKind.RELEASE):
            frees = kind == OpKind.RELEASE
            number = self.call(CU_MEM_RELEASE if frees else MALLOC, called, self.host, driver=frees)
            self.records.append(memory(frees, size, number))
            self.records.append(memory(frees, size, self.call(27, called, called), kind=2))  # pinned: not it
        elif kind == OpKind.MARK:
            label = self.graph.string(int(op["ref"]))
            self.note(self.host, lambda: _core.cupti_mark("iteration", label))
        else:
            raise AssertionError(kind)

    def copy(self, op: Any, called: int) -> None:
        direction = CopyDirection(op["detail"])
        blocks = bool(op["flags"] & OpFlag.BLOCKING)
        start, end = self.launch(op)
        pageable = blocks and direction == CopyDirection.DEVICE_TO_HOST and self.chance.random() < 0.5
        if blocks:
            callback = MEMCPY_ASYNC if pageable or direction == CopyDirection.HOST_TO_HOST else MEMCPY
            asked, self.host = self.host, max(self.host, end - ORIGIN)
            number = self.call(callback, asked, self.host)
        else:
            number = self.call(MEMCPY_ASYNC, called, self.host)
        host = 1 if pageable else 2
        kinds = {
            CopyDirection.HOST_TO_DEVICE: (1, host, 3),
            CopyDirection.DEVICE_TO_HOST: (2, 3, host),
            CopyDirection.DEVICE_TO_DEVICE: (8, 3, 3),
            CopyDirection.HOST_TO_HOST: (9, host, host),
        }
        kind, source, destination = kinds[direction]
        stream = DEFAULT_STREAM + int(op["stream"])
        self.records.append(
            memcpy(
                kind, int(op["bytes"]), (start, end), number, stream, source=source, destination=destination
            )
        )

    def query(self, op: Any, called: int) -> None:
        result = self.chance.choice([0, NOT_READY])
        if op["peer"]:
            number = self.call(EVENT_QUERY, called, self.host, result=result)
            event = self.recorded[int(op["event_stream"])][-int(op["peer"])][0]
            self.records.append(synchronization(1, number, event_sync=event))
        else:
            number = self.call(STREAM_QUERY, called, self.host, result=result)
            self.records.append(synchronization(3, number, stream=DEFAULT_STREAM + int(op["stream"])))

    def synchronise(self, op: Any) -> None:
        asked = self.host
        if op["kind"] == OpKind.STREAM_SYNC:
            self.host = max(self.host, self.streams[int(op["stream"])])
            number = self.call(STREAM_SYNC, asked, self.host)
            self.records.append(synchronization(3, number, stream=DEFAULT_STREAM + int(op["stream"])))
        elif op["kind"] == OpKind.EVENT_SYNC:
            event, time = self.recorded[int(op["event_stream"])][-int(op["peer"])]
            self.host = max(self.host, time)
            number = self.call(EVENT_SYNC, asked, self.host)
            self.records.append(synchronization(1, number, event_sync=event))
        else:
            self.host = max(self.host, *self.streams.values(), 0)
            number = self.call(DEVICE_SYNC, asked, self.host)
            self.records.append(synchronization(4, number))

    def communicate(self, first: int, last: int) -> None:
        """NCCL's own calls and kernel lie inside the note of the launch."""
        parts = self.ops[first : last + 1]
        called = self.begin(parts[0])
        s = int(parts[0]["stream"])
        longest = int(parts["duration_ns"].max())
        start = max(self.host, self.streams[s])
        self.streams[s] = start + longest
        if longest > 0:
            inside = self.call(LAUNCH, self.host, self.host)
            name = self.double.name("ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)")
            self.records.append(
                kernel(name, ORIGIN + start, ORIGIN + start + longest, inside, DEFAULT_STREAM + s)
            )
        raw = np.ascontiguousarray(parts).view(np.uint8)
        begin = ORIGIN + called
        self.note(self.host, lambda: _core.cupti_communicate(begin, CONTEXT, DEFAULT_STREAM + s, raw))

    def record(self, **options: Any) -> Graph:
        """Feeds the double, records, and returns the graph; the double was reset."""
        _core.cupti_start(self.rank, self.graph.world_size, library=str(self.double.path), **options)
        names = []
        for slot, (communicator, position) in enumerate(self.graph.rank(self.rank).bindings.tolist()):
            known = self.graph.communicator(communicator)
            names.append(known.name)
            assert _core.cupti_add_communicator(known.name, len(known.members), position) == slot
            _core.cupti_set_members(slot, known.members.tolist())
        records = self.records[:1] + self.chance.sample(self.records[1:], len(self.records) - 1)
        for record in records:
            longer = bytes(8 * self.chance.randrange(3))  # a newer CUPTI's
            self.double.post(record + longer)
            if self.chance.random() < 0.02:
                self.double.deliver()
        for at, what in self.notes:
            self.double.set_time(at)
            what()
        _core.cupti_flush()
        self.double.set_time(ORIGIN + self.host + 1)
        _core.cupti_seal()
        _core.cupti_stop()
        return Graph(_core.cupti_finish([1, 2, 3, 4], [], "{}"))


def plain(ops: Any) -> Any:
    """Ops in which host times tell the order of calls: each has some, parts of a launch the first alone;
    gaps are in the op behind them; launches end with the longest of their parts."""
    kept = []
    gap, inside = 0, False
    for op in ops.copy():
        if op["kind"] == OpKind.HOST_GAP:
            gap += int(op["host_ns"]) + int(op["duration_ns"])
            continue
        op["host_ns"] = 0 if inside else max(int(op["host_ns"]) + gap, 2)
        gap, inside = 0, bool(op["flags"] & OpFlag.GROUP_CONTINUES)
        kept.append(op)
    out = np.array(kept, dtype=ops.dtype)
    first = 0
    for i, op in enumerate(out):
        if not op["flags"] & OpFlag.GROUP_CONTINUES:
            if op["kind"] >= OpKind.ALL_REDUCE:
                out["duration_ns"][first : i + 1] = out["duration_ns"][first : i + 1].max()
            first = i + 1
    return out


def expected(ops: Any) -> Any:
    """What of ``plain`` ops must come back: all but where durations come from, and frees by size."""
    out = ops.copy()
    timed = np.isin(out["kind"], [OpKind.KERNEL, OpKind.COPY, OpKind.SET])
    timed |= (out["kind"] >= OpKind.ALL_REDUCE) & (out["duration_ns"] > 0)
    out["flags"][timed] |= int(Provenance.MEASURED)
    first = 0
    frees = out["kind"] == OpKind.FREE
    for i in range(len(out) + 1):
        if i == len(out) or not frees[i]:
            out["bytes"][first:i] = np.sort(out["bytes"][first:i])[::-1]
            first = i + 1
    return out


def spelled(graph: Graph, ops: Any) -> list[Any]:
    """Ops with names in the place of numbers."""
    rank = int(graph.ranks[0])
    bindings = graph.rank(rank).bindings
    told = []
    for op in ops:
        ref: Any = int(op["ref"])
        if op["kind"] == OpKind.KERNEL:
            of = graph.kernel(ref)
            ref = (of.name, tuple(of.grid), tuple(of.block), of.shared_bytes)
        elif op["kind"] == OpKind.MARK:
            ref = graph.string(ref)
        elif op["kind"] >= OpKind.ALL_REDUCE:
            known = graph.communicator(int(bindings[ref]["communicator"]))
            ref = (known.name, tuple(known.members.tolist()))
        rest = [int(op[field]) for field in op.dtype.names if field not in ("kind", "ref")]
        told.append((OpKind(op["kind"]).name, ref, *rest))
    return told
