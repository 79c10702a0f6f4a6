"""Memory snapshots: every event over again, and as torch's own memory_viz reads them."""

import importlib.util
import io
import pickle
import sys
from pathlib import Path

import jobs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.errors import GraphError
from prismcore.exports.memory_snapshot import write_memory_snapshot
from prismcore.graph import GraphBuilder, MemoryPeaks
from prismcore.replay import memory_curve, replay


def snapshot_of(graph, rank=0):
    out = io.BytesIO()
    size = write_memory_snapshot(out, graph, rank)
    return size, pickle.loads(out.getvalue())


def memory_viz():
    """torch's own module, without the rest of torch."""
    if "memory_viz" not in sys.modules:
        found = importlib.util.find_spec("torch")
        path = Path(found.origin).parent / "cuda" / "_memory_viz.py"
        spec = importlib.util.spec_from_file_location("memory_viz", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules["memory_viz"] = module
    return sys.modules["memory_viz"]


def check(snapshot):
    """Runs the events: nothing overlaps, all lies in segments, what is left are the blocks. Both peaks."""
    live, segments, peak, most = {}, {}, 0, 0
    requested = None
    for event in snapshot["device_traces"][0]:
        address, size = event["addr"], event["size"]
        if event["action"] == "segment_alloc":
            assert all(address + size <= a or a + s <= address for a, s in segments.items())
            segments[address] = size
        elif event["action"] == "segment_free":
            assert segments.pop(address) == size
            assert all(a + s <= address or address + size <= a for a, s in live.items())
        elif event["action"] == "alloc":
            assert all(address + size <= a or a + s <= address for a, s in live.items())
            assert any(a <= address and address + size <= a + s for a, s in segments.items())
            live[address] = size
        elif event["action"] == "free_requested":
            requested = address
        else:
            assert event["action"] == "free_completed"
            assert requested == address
            assert live.pop(address) == size
        peak, most = max(peak, sum(live.values())), max(most, sum(segments.values()))
    times = [event["time_us"] for event in snapshot["device_traces"][0]]
    assert times == sorted(times)
    blocks = {}
    for segment in snapshot["segments"]:
        assert segments.pop(segment["address"]) == segment["total_size"]
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]
            if block["state"] == "active_allocated":
                blocks[block["address"]] = block["size"]
        assert at == segment["address"] + segment["total_size"]
    assert segments == {}
    assert blocks == live
    return peak, most


actions = st.lists(
    st.one_of(
        st.tuples(st.just("allocate"), st.sampled_from([512, 4096, 1 << 20, 3 << 20, 40 << 20])),
        st.tuples(st.just("reserve"), st.sampled_from([2 << 20, 20 << 20, 64 << 20])),
        st.tuples(st.sampled_from(["free", "release"]), st.integers(0, 9)),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(actions)
def test_any_program_keeps_its_peak_to_the_byte(todo):
    builder = GraphBuilder(world_size=1)
    rank = builder.rank(0)
    held = {"allocate": [], "reserve": []}
    for what, value in todo:
        if what in held:
            getattr(rank, what)(value, host_ns=3)
            held[what].append(value)
        else:
            of = held["allocate" if what == "free" else "reserve"]
            if of:
                getattr(rank, what)(of.pop(value % len(of)), host_ns=1)
    graph = builder.finish()
    if not any(what == "allocate" for what, _ in todo):
        with pytest.raises(GraphError, match="rank 0 allocates nothing"):
            snapshot_of(graph)
        return
    size, snapshot = snapshot_of(graph)
    peak, most = check(snapshot)
    curve = memory_curve(graph, 0)
    assert peak == size.peak_allocated_bytes == curve.peak_bytes
    assert most == size.peak_reserved_bytes
    live = sum(s["allocated_size"] for s in snapshot["segments"])
    assert live == (curve.live_bytes[-1] if len(curve.live_bytes) else 0)


def training():
    builder = GraphBuilder(world_size=1)
    rank = builder.rank(0)
    rank.peaks = MemoryPeaks(allocated_bytes=(15 << 20) + 512)
    solo = builder.communicator("solo", [0])
    rank.reserve(20 << 20)
    rank.reserve(2 << 20)
    rank.allocate(8 << 20, host_ns=2_000)  # weights
    for _ in range(2):
        for size in (3 << 20, 512, 4 << 20):
            rank.allocate(size, host_ns=1_500)
            rank.kernel("work", duration_ns=9_000, host_ns=500)
        for size in (4 << 20, 512, 3 << 20):
            rank.free(size, host_ns=1_000)
        rank.all_reduce(
            solo, bytes=8 << 20, duration_ns=1_000, call_site="train.py:8 step < train.py:20 main"
        )
        rank.sync()
        rank.mark_iteration()
    return builder.finish()


def test_times_frames_and_iterations():
    graph = training()
    size, snapshot = snapshot_of(graph)
    assert size.warnings == []
    assert check(snapshot) == ((15 << 20) + 512, 22 << 20)
    events = snapshot["device_traces"][0]
    allocated = [e for e in events if e["action"] == "alloc"]
    assert [e["time_us"] for e in allocated[:3]] == [2, 3, 5]  # 2,000, 3,500 and 5,500 ns
    assert [f["line"] for f in allocated[1]["frames"]] == [8, 8, 20]
    assert allocated[1]["frames"][0]["name"] == "before all_reduce on solo"
    ends = replay(graph).iteration_end_ns[0] // 1000
    assert [a["time_us"] for a in snapshot["external_annotations"]] == ends.tolist()
    (weights,) = [b for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    assert weights["size"] == 8 << 20


def test_what_does_not_fit_is_told():
    size, snapshot = snapshot_of(jobs.pipeline(), 1)
    check(snapshot)
    assert [w.split(";")[0].split(",")[0] for w in size.warnings] == [
        "the graph holds no segments",
        "the peak of the events is 4",
    ]
    builder = GraphBuilder(world_size=1)
    rank = builder.rank(0)
    rank.reserve(2 << 20)
    rank.allocate(3 << 20)
    rank.allocate(5 << 20)
    rank.free(4 << 20)  # no block is that large
    size, snapshot = snapshot_of(builder.finish())
    peak, _ = check(snapshot)
    assert peak == 8 << 20
    assert sum(s["allocated_size"] for s in snapshot["segments"]) == 4 << 20
    assert "found no room" in size.warnings[0]
    assert "fit no block" in size.warnings[1]


@pytest.mark.torch
def test_torch_s_own_reader():
    viz = memory_viz()
    _, snapshot = snapshot_of(training())
    lines = viz.memory(snapshot, format_flamegraph=str)
    assert f"stream_0;active_allocated;step;main {8 << 20}" not in lines  # innermost last
    total = sum(int(line.rsplit(" ", 1)[1]) for line in lines.splitlines())
    assert total == 22 << 20
    assert "active_allocated" in viz.segments(snapshot, format_flamegraph=str)
    assert "total_allocated: 8.0MiB" in viz.segsum(snapshot)
    told = viz.trace(snapshot)
    assert told.count("cudaMalloc") == 2
    assert told.count("free completed") == 6
    for plot in (viz.trace_plot, viz.segment_plot):
        assert "snapshot.pickle" in plot(snapshot)
    left = viz.filter_alloc_free_pairs(snapshot)["device_traces"][0]
    assert [e["action"] for e in left].count("alloc") == 1
