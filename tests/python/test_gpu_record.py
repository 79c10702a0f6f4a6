"""A rank's record through CUPTI's double: what is enabled, what is lost, what refuses."""

import threading
from pathlib import Path

import pytest
from cupti_double import (
    DEFAULT_STREAM,
    LAUNCH,
    ORIGIN,
    Double,
    api,
    kernel,
    stream_made,
)

from prismcore import _core
from prismcore.errors import CuptiError
from prismcore.graph import MarkKind, OpKind, Provenance
from prismcore.launch.gpu_record import FinishedRecord, GpuRecord, GpuRecordOptions, Peaks

ENTRIES = (
    ("cuptiGetTimestamp", 1),
    ("cuptiActivityRegisterCallbacks", 1),
    ("cuptiSetThreadIdType", 1),
    ("cuptiActivityEnable", 1),
    ("cuptiActivityEnable", 8),
    ("cuptiActivityEnableRuntimeApi", 1),
    ("cuptiActivityEnableRuntimeApi", 40),
    ("cuptiActivityEnableDriverApi", 1),
    ("cuptiActivityGetNumDroppedRecords", 1),
)


@pytest.fixture
def double() -> Double:
    loaded = Double()
    loaded.reset()
    return loaded


def started(double: Double, *, require: bool = True, buffers: int = 4, size: int = 4096) -> GpuRecord:
    return GpuRecord(
        GpuRecordOptions(rank=0, world_size=1, cupti=double.path, require_cupti=require, buffers=buffers,
                         buffer_bytes=size)
    )  # fmt: skip


def launch(double: Double, number: int, *, callback: int = LAUNCH) -> None:
    at = ORIGIN + number * 100
    double.post(api(callback, at, at + 10, number, thread=threading.get_native_id()))
    double.post(kernel(double.name("k"), at + 10, at + 60, number, DEFAULT_STREAM))


def finish(double: Double, record: GpuRecord) -> FinishedRecord:
    double.set_time(ORIGIN + 10**9)
    return record.finish(peaks=Peaks())


def test_a_launch_makes_two_records_and_calls_that_tell_nothing_make_none(double: Double) -> None:
    record = started(double, buffers=64)
    for number in range(1, 101):
        launch(double, number)
        for callback in (17, 10, 317):  # cudaGetDevice, cudaGetLastError, cudaStreamIsCapturing, ...
            double.post(api(callback, 0, 0, number + 1000, thread=1))
    done = finish(double, record)
    assert double.count("delivered") == 200
    assert double.count("ignored") == 300
    assert (done.counts["kernels"], done.warnings) == (100, [])


def test_all_that_was_enabled_is_disabled_again(double: Double) -> None:
    record = started(double)
    assert double.count("enabled") > 180
    assert double.count("system thread ids") == 1
    finish(double, record)
    assert double.count("enabled") == double.count("system thread ids") == 0


@pytest.mark.parametrize(("entry", "number"), ENTRIES)
def test_a_start_that_is_refused_leaves_nothing_enabled(double: Double, entry: str, number: int) -> None:
    double.fail(entry, 39, number)
    with pytest.raises(CuptiError, match=f"{entry}.* answered 39 .*another profiler holds the device"):
        started(double)
    assert double.count("enabled") == 0
    assert not _core.cupti_active()
    done = finish(double, started(double))
    assert done.warnings == []


def test_a_clock_that_fails_while_the_program_runs_is_told(double: Double) -> None:
    record = started(double)
    double.fail("cuptiGetTimestamp", 999, 1)
    record.mark(MarkKind.PHASE, "here")
    done = finish(double, record)
    assert done.counts["untimed_notes"] == 1
    assert "did not tell the time" in done.warnings[0]


@pytest.mark.parametrize(
    "entry",
    ["cuptiActivityFlushAll", "cuptiActivityGetNextRecord", "cuptiActivityGetNumDroppedRecords",
     "cuptiActivityDisable", "cuptiActivityEnableRuntimeApi", "cuptiActivityEnableDriverApi",
     "cuptiSetThreadIdType"],
)  # fmt: skip
def test_an_end_that_fails_gives_what_there_is_and_says_so(double: Double, entry: str) -> None:
    record = started(double)
    launch(double, 1)
    double.fail(entry, 35)
    done = finish(double, record)
    assert f"the record is not whole: CUPTI: {entry}" in done.warnings[0]
    assert "NVreg_RestrictProfilingToAdminUsers=0" in done.warnings[0]
    assert not _core.cupti_active()
    double.reset()
    assert finish(double, started(double)).warnings == []


def test_an_old_cupti_is_refused(double: Double, tmp_path: Path) -> None:
    double.library.double_set_version(120800)
    other = tmp_path / "libcupti.so.13"
    other.symlink_to(double.path)  # another path: it is looked at anew
    with pytest.raises(CuptiError, match=r"found version 12\.8, expected 13\.0 or newer"):
        GpuRecord(GpuRecordOptions(rank=0, world_size=1, cupti=other, require_cupti=True))


def test_without_cupti_communication_is_recorded_and_the_rest_told(double: Double, tmp_path: Path) -> None:
    missing = tmp_path / "none.so"
    with pytest.raises(CuptiError, match="cannot be loaded"):
        GpuRecord(GpuRecordOptions(rank=0, world_size=2, cupti=missing, require_cupti=True))
    record = GpuRecord(GpuRecordOptions(rank=0, world_size=2, cupti=missing))
    slot = _core.cupti_add_communicator("pair", 2, 0)
    _core.cupti_set_members(slot, [0, 1])
    op = one_op(OpKind.ALL_REDUCE, ref=slot, bytes=64, duration_ns=7)
    begin = _core.cupti_now()
    assert _core.cupti_communicate(begin, 0, 0, op) == 0
    assert _core.cupti_communicate(_core.cupti_now(), 0, 0, op) == 1
    after = _core.cupti_now()
    _core.cupti_reached(1, after + 1000, after + 5000)
    record.mark(MarkKind.ITERATION)
    done = record.finish(peaks=Peaks())
    assert "only communication: CUPTI: " in done.warnings[0]
    first, second, mark = done.graph.ops(0)
    assert [OpKind(op["kind"]) for op in (first, second, mark)] == [
        OpKind.ALL_REDUCE,
        OpKind.ALL_REDUCE,
        OpKind.MARK,
    ]
    assert (first["duration_ns"], first["flags"]) == (7, 0)
    assert second["duration_ns"] >= 4000
    assert second["flags"] == Provenance.MEASURED


def one_op(kind: OpKind, **fields: int):
    import numpy as np

    from prismcore.graph import OP_DTYPE

    op = np.zeros(1, dtype=OP_DTYPE)
    op["kind"] = kind
    for name, value in fields.items():
        op[name] = value
    return op.view(np.uint8)


def test_records_that_find_no_buffer_are_counted(double: Double) -> None:
    record = started(double, buffers=1)
    for number in range(1, 101):
        launch(double, number)
    done = finish(double, record)
    dropped, kernels = done.counts["dropped_records"], done.counts["kernels"]
    assert dropped > 0
    assert double.count("delivered") + dropped == 200
    assert kernels <= double.count("delivered")
    assert any("dropped by CUPTI" in line for line in done.warnings)


def test_what_is_damaged_unknown_or_not_timed_is_told(double: Double) -> None:
    record = started(double)
    double.post(stream_made(DEFAULT_STREAM, 3))
    launch(double, 1)
    double.post((5000).to_bytes(4, "little") + bytes(60))  # of a kind that CUPTI may have one day
    double.post(kernel(double.name("k"), 0, 0, 1, DEFAULT_STREAM))
    double.post(kernel(double.name("orphan"), ORIGIN + 500, ORIGIN + 600, 77, DEFAULT_STREAM))
    double.post(api(LAUNCH, ORIGIN + 700, ORIGIN + 710, 78, thread=1))  # its kernel does not come
    double.post(api(LAUNCH, ORIGIN + 800, ORIGIN + 810, 79, thread=1, result=1))  # failed
    double.deliver()
    launch(double, 9)
    double.post(api(LAUNCH, 0, 0, 1, thread=1), whole=False)
    done = finish(double, record)
    names = ("unknown_records", "untimed", "orphans", "lost_work", "failed_calls", "damaged_buffers")
    assert {name: done.counts[name] for name in names} == dict.fromkeys(names, 1)
    assert len(done.warnings) == 4
    times = [(int(op["host_ns"]), int(op["duration_ns"])) for op in done.graph.ops(0)]
    assert times == [(110, 0), (0, 50), (390, 100), (410, 50)]


def test_what_follows_the_end_is_not_recorded(double: Double) -> None:
    record = started(double)
    launch(double, 1)
    double.set_time(ORIGIN + 300)
    done = record.finish(peaks=Peaks(), synchronise=lambda: launch(double, 9))
    assert done.counts["kernels"] == 1


def test_two_recordings_at_once_are_refused(double: Double) -> None:
    record = started(double)
    with pytest.raises(CuptiError, match="under way"):
        started(double)
    record.abandon()
    assert double.count("enabled") == 0
