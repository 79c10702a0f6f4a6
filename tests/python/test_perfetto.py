"""Traces are read back with the schema that Perfetto itself ships (perfetto_trace_pb2)."""

import errno
import io

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

from prismcore.report.perfetto import PerfettoWriter


def tiny_trace():
    out = io.BytesIO()
    writer = PerfettoWriter(out)
    process = writer.process(1, "rank 0")
    stream = writer.thread(1, 7, "stream 0", 3)
    memory = writer.counter_bytes(process, "allocated")
    writer.begin(stream, 1_000, writer.label("kernel", "gemm", {"m": 128, "from": "model", "site": ""}))
    writer.end(stream, 3_000)
    writer.begin(stream, 3_000, writer.label("kernel", "gemm", {"m": -1, "from": "model"}), [9])
    writer.end(stream, 4_000)
    writer.count(memory, 1_500, 1 << 40)
    return out.getvalue()


def test_golden_bytes():
    assert tiny_trace().hex(" ") == GOLDEN


def test_schema_reads_it_back():
    trace = schema.Trace.FromString(tiny_trace())
    assert {p.trusted_packet_sequence_id for p in trace.packet} == {1}
    assert trace.packet[0].sequence_flags == 3
    assert [p.sequence_flags for p in trace.packet if p.HasField("track_event")] == [2] * 5
    tracks = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
    assert (tracks[0].process.pid, tracks[0].process.process_name) == (1, "rank 0")
    assert (tracks[1].thread.pid, tracks[1].thread.tid, tracks[1].thread.thread_name) == (1, 7, "stream 0")
    assert (tracks[2].parent_uuid, tracks[2].name) == (tracks[0].uuid, "allocated")
    assert (tracks[0].process.legacy_sort_index, tracks[1].thread.legacy_sort_index) == (1, 3)
    assert tracks[2].counter.unit == schema.CounterDescriptor.UNIT_SIZE_BYTES
    assert len({t.uuid for t in tracks}) == 3

    events = [p for p in trace.packet if p.HasField("track_event")]
    kinds = schema.TrackEvent
    assert [(e.timestamp, e.track_event.type) for e in events] == [
        (1_000, kinds.TYPE_SLICE_BEGIN),
        (3_000, kinds.TYPE_SLICE_END),
        (3_000, kinds.TYPE_SLICE_BEGIN),
        (4_000, kinds.TYPE_SLICE_END),
        (1_500, kinds.TYPE_COUNTER),
    ]
    assert [list(e.track_event.flow_ids) for e in events] == [[], [], [9], [], []]
    assert events[4].track_event.counter_value == 1 << 40
    assert events[2].track_event.debug_annotations[0].int_value == -1


def test_a_name_is_stored_once():
    trace = schema.Trace.FromString(tiny_trace())
    names = [n.name for p in trace.packet for n in p.interned_data.event_names]
    texts = [n.str for p in trace.packet for n in p.interned_data.debug_annotation_string_values]
    keys = [n.name for p in trace.packet for n in p.interned_data.debug_annotation_names]
    assert (names, texts, keys) == (["gemm"], [b"model"], ["m", "from"])  # an empty text is left out


def test_same_calls_same_bytes():
    assert tiny_trace() == tiny_trace()


def test_a_field_that_cannot_be_is_refused():
    writer = PerfettoWriter(io.BytesIO())
    with pytest.raises(ValueError, match="unsigned"):
        writer.end(1, -5)


# One packet an entry: sequence start; process; thread; counter; slice with all its new names;
# its end; the same names by number, -1 in two's complement and flow 9; end; counter value 2**40.
GOLDEN = " ".join(
    (
        "0a 04 68 03 50 01",
        "0a 15 e2 03 10 08 01 1a 0c 08 01 18 01 32 06 72 61 6e 6b 20 30 50 01",
        "0a 19 e2 03 14 08 02 22 10 08 01 10 07 18 03 2a 08 73 74 72 65 61 6d 20 30 50 01",
        "0a 18 e2 03 13 08 03 28 01 12 09 61 6c 6c 6f 63 61 74 65 64 42 02 18 03 50 01",
        "0a 54 40 e8 07 68 02 62 33 0a 0a 08 01 12 06 6b 65 72 6e 65 6c 12 08 08 01 12 04 67 65 6d 6d 1a "
        "05 08 01 12 01 6d 1a 08 08 02 12 04 66 72 6f 6d ea 01 09 08 01 12 05 6d 6f 64 65 6c 5a 16 48 01 "
        "58 02 18 01 50 01 22 05 08 01 20 80 01 22 05 08 02 88 01 01 50 01",
        "0a 0d 40 b8 17 68 02 5a 04 48 02 58 02 50 01",
        "0a 31 40 b8 17 68 02 5a 28 48 01 58 02 18 01 50 01 22 0d 08 01 20 ff ff ff ff ff ff ff ff ff 01 "
        "22 05 08 02 88 01 01 f9 02 09 00 00 00 00 00 00 00 50 01",
        "0a 0d 40 a0 1f 68 02 5a 04 48 02 58 02 50 01",
        "0a 15 40 dc 0b 68 02 5a 0c 48 04 58 03 f0 01 80 80 80 80 80 20 50 01",
    )
)


def test_a_full_disk_is_an_error_that_names_the_file_and_leaves_none(tmp_path):
    from prismcore.cli.written import whole_file
    from prismcore.errors import PrismError

    full = OSError(errno.ENOSPC, "No space left on device")  # of write(2): names no file
    with (
        pytest.raises(PrismError, match=r"out\.pftrace: cannot be written: No space left on device"),
        whole_file(tmp_path / "out.pftrace"),
    ):
        raise full
    assert not list(tmp_path.iterdir())
