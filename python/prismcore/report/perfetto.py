"""Writes Perfetto's native trace format: TrackEvent packets, names interned once a file.

Field numbers are those of Perfetto's public schema: ``protos/perfetto/trace/trace_packet.proto``,
``track_event/track_event.proto``, ``track_descriptor.proto``, ``process_descriptor.proto``,
``thread_descriptor.proto``, ``counter_descriptor.proto``, ``debug_annotation.proto`` and
``interned_data/interned_data.proto``. The output opens in https://ui.perfetto.dev and in
``trace_processor``; the same calls give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import BinaryIO

from prismcore.report.protobuf import fixed64, message, sint, text, uint

Argument = int | str
"""Value of a slice's argument; empty texts are left out."""

_TRACE_PACKET = 1

_PACKET_TIMESTAMP = 8
_PACKET_SEQUENCE_ID = 10
_PACKET_TRACK_EVENT = 11
_PACKET_INTERNED_DATA = 12
_PACKET_SEQUENCE_FLAGS = 13
_PACKET_TRACK_DESCRIPTOR = 60
_STATE_CLEARED, _NEEDS_STATE = 1, 2

_TRACK_UUID, _TRACK_NAME, _TRACK_PROCESS, _TRACK_THREAD, _TRACK_PARENT, _TRACK_COUNTER = 1, 2, 3, 4, 5, 8
_PROCESS_PID, _PROCESS_ORDER, _PROCESS_NAME = 1, 3, 6
_THREAD_PID, _THREAD_TID, _THREAD_ORDER, _THREAD_NAME = 1, 2, 3, 5
_COUNTER_UNIT, _UNIT_BYTES = 3, 3

_EVENT_CATEGORY_IIDS, _EVENT_ANNOTATIONS, _EVENT_TYPE, _EVENT_NAME_IID = 3, 4, 9, 10
_EVENT_TRACK, _EVENT_COUNTER_VALUE, _EVENT_FLOWS = 11, 30, 47
_SLICE_BEGIN, _SLICE_END, _COUNTER = 1, 2, 4

_ANNOTATION_NAME_IID, _ANNOTATION_INT, _ANNOTATION_STRING_IID = 1, 4, 17

_INTERNED_CATEGORIES, _INTERNED_NAMES, _INTERNED_ANNOTATIONS, _INTERNED_STRINGS = 1, 2, 3, 29
_IID, _TEXT = 1, 2

_SEQUENCE = uint(_PACKET_SEQUENCE_ID, 1)


class PerfettoWriter:
    """Streams packets into `out`. Slices of a track must nest and come in the order of their starts."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._interned: dict[int, dict[str, int]] = {
            table: {}
            for table in (_INTERNED_CATEGORIES, _INTERNED_NAMES, _INTERNED_ANNOTATIONS, _INTERNED_STRINGS)
        }
        self._new = bytearray()  # interned data that the next packet must carry
        self._tracks = 0
        self._packet(uint(_PACKET_SEQUENCE_FLAGS, _STATE_CLEARED | _NEEDS_STATE))

    def process(self, pid: int, name: str) -> int:
        """A new process, shown in the order of pids; returns its track. `pid` is at least 1: Perfetto
        reserves 0."""
        body = uint(_PROCESS_PID, pid) + sint(_PROCESS_ORDER, pid) + text(_PROCESS_NAME, name)
        return self._track(message(_TRACK_PROCESS, body))

    def thread(self, pid: int, tid: int, name: str, order: int) -> int:
        """A thread of process `pid`, shown in `order`; returns its track. `tid` is unique in the file."""
        body = uint(_THREAD_PID, pid) + uint(_THREAD_TID, tid) + sint(_THREAD_ORDER, order)
        return self._track(message(_TRACK_THREAD, body + text(_THREAD_NAME, name)))

    def counter_bytes(self, process: int, name: str) -> int:
        """A counter of bytes below the track of a process; returns its track."""
        counter = message(_TRACK_COUNTER, uint(_COUNTER_UNIT, _UNIT_BYTES))
        return self._track(uint(_TRACK_PARENT, process) + text(_TRACK_NAME, name) + counter)

    def label(self, category: str, name: str, arguments: Mapping[str, Argument]) -> bytes:
        """What a slice says, to be given to :meth:`begin` as often as it occurs."""
        parts = [
            uint(_EVENT_CATEGORY_IIDS, self._intern(_INTERNED_CATEGORIES, category)),
            uint(_EVENT_NAME_IID, self._intern(_INTERNED_NAMES, name)),
        ]
        for key, value in arguments.items():
            if value == "":
                continue
            annotation = uint(_ANNOTATION_NAME_IID, self._intern(_INTERNED_ANNOTATIONS, key))
            if isinstance(value, int):
                annotation += sint(_ANNOTATION_INT, value)
            else:
                annotation += uint(_ANNOTATION_STRING_IID, self._intern(_INTERNED_STRINGS, value))
            parts.append(message(_EVENT_ANNOTATIONS, annotation))
        return b"".join(parts)

    def begin(self, track: int, time_ns: int, label: bytes, flows: Iterable[int] = ()) -> None:
        """Opens a slice. Arrows lead through the slices that name one flow, in order of time."""
        body = uint(_EVENT_TYPE, _SLICE_BEGIN) + uint(_EVENT_TRACK, track) + label
        self._event(time_ns, body + b"".join(fixed64(_EVENT_FLOWS, flow) for flow in flows))

    def end(self, track: int, time_ns: int) -> None:
        """Closes the slice of `track` that was opened last."""
        self._event(time_ns, uint(_EVENT_TYPE, _SLICE_END) + uint(_EVENT_TRACK, track))

    def count(self, track: int, time_ns: int, value: int) -> None:
        """The value of a counter from `time_ns` on."""
        body = uint(_EVENT_TYPE, _COUNTER) + uint(_EVENT_TRACK, track) + sint(_EVENT_COUNTER_VALUE, value)
        self._event(time_ns, body)

    def _track(self, body: bytes) -> int:
        self._tracks += 1
        descriptor = uint(_TRACK_UUID, self._tracks) + body
        self._packet(message(_PACKET_TRACK_DESCRIPTOR, descriptor))
        return self._tracks

    def _event(self, time_ns: int, event: bytes) -> None:
        interned = message(_PACKET_INTERNED_DATA, bytes(self._new)) if self._new else b""
        self._new.clear()
        self._packet(
            uint(_PACKET_TIMESTAMP, time_ns)
            + uint(_PACKET_SEQUENCE_FLAGS, _NEEDS_STATE)
            + interned
            + message(_PACKET_TRACK_EVENT, event)
        )

    def _packet(self, body: bytes) -> None:
        self._out.write(message(_TRACE_PACKET, body + _SEQUENCE))

    def _intern(self, table: int, value: str) -> int:
        known = self._interned[table]
        iid = known.get(value)
        if iid is None:
            iid = known[value] = len(known) + 1
            self._new += message(table, uint(_IID, iid) + text(_TEXT, value))
        return iid
