"""Launches, threads and synchronising calls of torch's profiler: what waited for what, and what did not."""

import numpy as np
import pytest
from kineto_events import call, event, imported, launch

from prismcore.graph import OpKind
from prismcore.replay import Perturbation, SlowRank, replay


def end_us(traces, factor=None):
    slow = None if factor is None else Perturbation(slow_ranks=[SlowRank(rank=0, factor=factor)])
    return replay(traces.graph(), perturbation=slow).iteration_end_ns[0, -1] / 1000


def waited(traces, name):
    """Names of device ops that the host waited for in its synchronising calls, by lane."""
    kinds = traces.ops.kind
    lanes = np.flatnonzero((traces.rows.lane == 0) & (traces.waits[:, 1:] >= 0).any(axis=1))
    return [
        sorted(
            getattr(traces.ops.kernels[traces.named[row]], "name")  # noqa: B009
            for row in traces.waits[host, 1:].tolist()
            if row >= 0 and kinds[row] != OpKind.MARK
        )
        for host in lanes.tolist()
    ][name if isinstance(name, int) else 0]


@pytest.mark.parametrize("offset", [0, -3, -40])
def test_a_kernel_that_begins_with_its_call_or_before_waits_for_nobody_else(tmp_path, offset):
    events = [*launch(1, 0, 10, 10), *launch(2, 1000, 1000 + offset, 100, stream=8)]
    traces = imported(tmp_path, {0: events})
    assert end_us(traces) == 1100 + offset
    early = [text for text in traces.warnings if "begin before the call that launched them" in text]
    assert len(early) == len(traces.warnings) == (offset < -1)


def test_a_thread_that_synchronises_delays_no_other(tmp_path):
    events = [
        *launch(1, 0, 10, 590),
        call("cudaStreamSynchronize", 20, 585, tid=2),
        *launch(2, 100, 110, 300, stream=8),
        *launch(3, 500, 510, 490, stream=8),
        *launch(4, 610, 620, 100, tid=2),
    ]
    traces = imported(tmp_path, {0: events})
    assert end_us(traces) == 1000
    assert traces.warnings == []
    assert waited(traces, 0) == ["gemm"]


def test_calls_of_two_threads_at_one_time_delay_each_other_not(tmp_path):
    events = [
        *launch(1, 0, 60, 40, length=50),
        *launch(2, 10, 20, 70, tid=2, stream=8),
        *launch(3, 30, 41, 30, tid=2, stream=9),
    ]
    traces = imported(tmp_path, {0: events})
    starts = traces.rows.start_ns[traces.rows.lane > 0]
    timeline = replay(traces.graph(), timeline_ranks=[0]).timeline
    assert sorted(set(timeline.start_ns.tolist()) & set(starts.tolist())) == [20_000, 41_000, 60_000]
    assert traces.timing.late == 0


def copy(number, ts, begin, dur, *, by, length):
    return [
        call(by, ts, length, correlation=number),
        event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", begin, dur, correlation=number, device=0,
              stream=7, bytes=4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("by", "slow"), [("cudaMemcpy", 350), ("cuMemcpyDtoH_v2", 350), ("cudaMemcpyAsync", 310)]
)
def test_a_blocking_copy_holds_the_host(tmp_path, by, slow):
    """With kernels that take twice as long the next launch, on another stream, is later by as much."""
    length = 5 if by.endswith("Async") else 200
    events = [
        *launch(1, 0, 10, 100),
        *copy(2, 20, 110, 100, by=by, length=length),
        *launch(3, 230, 240, 10, stream=8),
    ]
    traces = imported(tmp_path, {0: events})
    assert end_us(traces) == 250
    found = end_us(traces, 2)
    sync = np.flatnonzero(traces.waits[traces.rows.lane == 0, 1:].max(axis=1) >= 0)
    assert len(sync) == (0 if by.endswith("Async") else 1)
    assert found >= slow


def test_a_stream_is_waited_for_alone(tmp_path):
    events = [
        *launch(1, 0, 10, 290, name="long", stream=7),
        *launch(2, 6, 20, 80, name="short", stream=8),
        *launch(3, 12, 22, 20, name="shorter", stream=9),
        call("cudaStreamSynchronize", 30, 72, correlation=9),
        *launch(4, 110, 310, 10, name="last", stream=7),
    ]
    assert waited(imported(tmp_path, {0: events}), 0) == ["short"]
    told = event("cuda_sync", "Stream Sync", 31, 70, correlation=9, device=0, stream=9)
    assert waited(imported(tmp_path, {0: [*events, told]}), 0) == ["shorter"]
    events[6] = call("cudaDeviceSynchronize", 30, 275, correlation=9)
    assert waited(imported(tmp_path, {0: events}), 0) == ["long", "short", "shorter"]


def test_events_are_waited_for_where_they_were_recorded(tmp_path):
    events = [
        *launch(1, 0, 10, 20, name="first"),
        call("cudaEventRecord", 6, 1, correlation=20),
        *launch(2, 8, 30, 20, name="second"),
        call("cudaEventSynchronize", 14, 100, correlation=21),
        event("cuda_sync", "Event Sync", 15, 98, correlation=21, device=0, stream=-1, wait_on_stream=7,
              wait_on_cuda_event_record_corr_id=20, wait_on_cuda_event_id=3),
        *launch(3, 120, 130, 10),
    ]  # fmt: skip
    assert waited(imported(tmp_path, {0: events}), 0) == ["first"]


def test_streams_wait_as_the_trace_tells(tmp_path):
    """Told waits are taken where times show none, and none is taken from times beside them."""
    events = []
    for n in range(4):
        at = 100 * n
        events += launch(10 * n + 1, at, at + 5, 30, name="made", stream=7)
        events.append(call("cudaEventRecord", at + 6, 1, correlation=10 * n + 2))
        events += launch(10 * n + 3, at + 7, at + 36, 40, name="more", stream=7)
        if n % 2:
            events.append(call("cudaStreamWaitEvent", at + 13, 1, correlation=10 * n + 4))
            events.append(
                event("cuda_sync", "Stream Wait Event", at + 13, 1, correlation=10 * n + 4, device=0,
                      stream=8, wait_on_stream=7, wait_on_cuda_event_record_corr_id=10 * n + 2)
            )  # fmt: skip
        events += launch(10 * n + 5, at + 15, at + 37, 20, name="used", stream=8)
    traces = imported(tmp_path, {0: events})
    names = [kernel.name for kernel in traces.ops.kernels]
    used = np.flatnonzero((traces.rows.lane > 0) & (traces.named == names.index("used")))
    lane = traces.rows.lane[np.flatnonzero((traces.rows.lane > 0) & (traces.named == names.index("made")))[0]]
    on = traces.waits[used, lane]
    assert [names[traces.named[row]] if row >= 0 else None for row in on.tolist()] == [None, "made"] * 2
    assert end_us(traces) == 376
    # Twice as long: the last "used" waits for its "made", which waits for the "more" before.
    bare = imported(tmp_path, {0: [e for e in events if e["cat"] != "cuda_sync"]})
    assert (bare.waits[used, lane] < 0).all()  # "more" overlaps each of them


def test_a_rank_without_gpu_activity_is_left_out(tmp_path):
    traces = imported(tmp_path, {0: launch(1, 0, 10, 10), 1: [event("cpu_op", "aten::add", 0, 5)]})
    assert "rank 1 without GPU activity, left out" in traces.warnings
    assert replay(traces.graph()).ranks.tolist() == [0]
