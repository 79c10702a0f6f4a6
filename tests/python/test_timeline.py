"""The Perfetto trace of a replay, read back with the schema that Perfetto ships."""

import io
from collections import defaultdict

import jobs
import numpy as np
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

from prismcore.errors import GraphError
from prismcore.graph import OP_DTYPE, GraphBuilder
from prismcore.replay import memory_curve, replay
from prismcore.report.timeline import write_timeline


class Reader:
    """Slices and counters of a trace; fails where slices of a track do not nest."""

    def __init__(self, data):
        self.slices = []  # (process, thread, begin, end, category, name, arguments)
        self.counters = defaultdict(list)
        self.flows = defaultdict(list)  # id -> slices (process, thread, begin, name), in order of time
        self.order = {}  # (process, thread) -> where it is shown
        processes, tracks, open_slices = {}, {}, defaultdict(list)
        interned = defaultdict(dict)
        events = []
        for packet in schema.Trace.FromString(data).packet:
            for table in ("event_names", "event_categories", "debug_annotation_names"):
                for entry in getattr(packet.interned_data, table):
                    interned[table][entry.iid] = entry.name
            for entry in packet.interned_data.debug_annotation_string_values:
                interned["strings"][entry.iid] = entry.str.decode()
            if packet.HasField("track_descriptor"):
                track = packet.track_descriptor
                if track.HasField("process"):
                    processes[track.process.pid] = track.process.process_name
                    tracks[track.uuid] = (track.process.process_name, None)
                    self.order[tracks[track.uuid]] = track.process.legacy_sort_index
                elif track.HasField("thread"):
                    tracks[track.uuid] = (processes[track.thread.pid], track.thread.thread_name)
                    self.order[tracks[track.uuid]] = track.thread.legacy_sort_index
                else:
                    tracks[track.uuid] = (tracks[track.parent_uuid][0], track.name)
            elif packet.HasField("track_event"):
                events.append(packet)
        # A reader sorts by time and keeps the order of equal times.
        for packet in sorted(events, key=lambda p: p.timestamp):
            event = packet.track_event
            where = tracks[event.track_uuid]
            if event.type == schema.TrackEvent.TYPE_COUNTER:
                self.counters[where].append((packet.timestamp, event.counter_value))
            elif event.type == schema.TrackEvent.TYPE_SLICE_BEGIN:
                arguments = {
                    interned["debug_annotation_names"][a.name_iid]: interned["strings"][a.string_value_iid]
                    if a.HasField("string_value_iid")
                    else a.int_value
                    for a in event.debug_annotations
                }
                category = interned["event_categories"][event.category_iids[0]]
                name = interned["event_names"][event.name_iid]
                open_slices[where].append((packet.timestamp, category, name, arguments))
                for flow in event.flow_ids:
                    self.flows[flow].append((*where, packet.timestamp, name))
            else:
                begin, *said = open_slices[where].pop()
                self.slices.append((*where, begin, packet.timestamp, *said))
        assert not any(open_slices.values())

    def named(self, name, process=None):
        """Slices of this name, or of this communication op."""
        return [s for s in self.slices if name in (s[5], s[6].get("op")) and process in (None, s[0])]


def read(graph, ranks, **options):
    result = replay(graph, timeline_ranks=ranks)
    out = io.BytesIO()
    size = write_timeline(out, graph, result, **options)
    return result, size, Reader(out.getvalue())


def test_slices_are_the_intervals_of_the_replay():
    graph = jobs.pipeline()
    result, size, trace = read(graph, [0, 1, 2], iteration=1)
    ends = result.iteration_end_ns
    assert size.slices == len(trace.slices)
    for rank in range(3):
        process = f"rank {rank} (class {graph.rank(rank).rank_class})"
        kernels = [s for s in trace.slices if s[0] == process and s[4] == "kernel"]
        begin, end = ends[rank][0], ends[rank][1]
        assert len(kernels) == 8
        assert all(begin <= s[2] <= s[3] <= end for s in kernels)
        copies = trace.named("copy device to host", process)
        reduce = trace.named("all_reduce", process)
        # One stream computes and nothing else runs beside it: the unions are sums.
        split = dict(zip(("compute", "communication"), result.splits[rank][1], strict=False))
        assert sum(s[3] - s[2] for s in kernels + copies) == split["compute"]
        assert (
            sum(s[3] - s[2] for s in trace.slices if s[0] == process and s[4] == "communication")
            == (split["communication"])
        )
        assert [s[3] - s[2] for s in reduce] == [500_000]
    assert len({(s[2], s[3]) for s in trace.named("all_reduce")}) == 1  # the same on all ranks


def test_what_slices_say():
    _, _, trace = read(jobs.pipeline(), [0, 1])
    (reduce,) = trace.named("all_reduce", "rank 0 (class 0)")
    assert reduce[1] == "stream 2: default_pg:0"
    assert reduce[5] == "all_reduce 4.00 MiB, default_pg:0"
    assert reduce[6] == {
        "op": "all_reduce",
        "communicator": "default_pg:0",
        "ranks": 3,
        "bytes": 4 << 20,
        "dtype": "float32",
        "reduction": "sum",
        "provenance": "model",
        "call site": "train.py:77",
    }
    gemm = trace.named("nvjet 1024x4096x512")[0]
    assert gemm[6] == {
        "kernel": "nvjet",
        "m": 1024,
        "n": 4096,
        "k": 512,
        "batch": 1,
        "dtype": "bfloat16",
        "provenance": "model",
    }
    add = trace.named("vectorized_elementwise_kernel<CUDAFunctor_add>")[0]
    assert add[6]["kernel"] == jobs.ADD
    assert (add[6]["grid"], add[6]["provenance"]) == ("10x2x1", "unknown")
    send = trace.named("send", "rank 0 (class 0)")[0]
    assert (send[6]["peer"], send[6]["call site"]) == (1, "pipe.py:10")
    assert (send[1], send[5]) == ("stream 1: PIPELINE_MODEL_PARALLEL_GROUP:1", "send 1.00 MiB to rank 1")
    recv = trace.named("recv", "rank 1 (class 1)")[0]
    assert (recv[5], recv[6]["peer"]) == ("recv 1.00 MiB from rank 0", 0)
    assert {s[1] for s in trace.slices if s[4] == "kernel"} == {"stream 0"}
    host = [s for s in trace.slices if s[1] == "host"]
    assert {s[4] for s in host} == {"host"}
    assert {"launch", "allocate", "device_sync"} <= {s[5] for s in host}


def test_many_parts_of_a_launch_are_counted():
    builder = GraphBuilder(world_size=4)
    world = builder.communicator("world", range(4))
    for r in range(4):
        rank = builder.rank(r)
        with rank.group():
            for peer in range(4):
                if peer != r:
                    rank.send(world, to=peer, bytes=1 << 10, duration_ns=10)
                    rank.recv(world, source=peer, bytes=1 << 10, duration_ns=10)
    _, _, trace = read(builder.finish(), [2])
    (launch,) = [s for s in trace.slices if s[4] == "communication"]
    assert launch[5] == "3 send + 3 recv, 6.00 KiB"
    assert launch[6]["part 5"].startswith("recv 1.00 KiB from rank 3, 1024 B, ")


def test_a_stream_of_several_communicators_and_one_that_also_computes():
    builder = GraphBuilder(world_size=2)
    pair, other = builder.communicator("a", [0, 1]), builder.communicator("b", [1, 0])
    for r in range(2):
        rank = builder.rank(r)
        rank.all_reduce(pair, bytes=4, duration_ns=10, stream=0)
        rank.kernel("k", duration_ns=10, stream=0)
        rank.all_reduce(pair, bytes=4, duration_ns=10, stream=1)
        rank.all_reduce(other, bytes=4, duration_ns=10, stream=1)
    _, _, trace = read(builder.finish(), [0])
    assert {s[1] for s in trace.slices} - {"host"} == {"stream 0", "stream 1: communication"}


def test_ranks_and_streams_are_in_order_with_the_host_first():
    _, _, trace = read(jobs.pipeline(stages=12, micro_batches=1, iterations=1), [2, 10, 0])
    shown = sorted(trace.order, key=trace.order.get)
    assert [p.split()[1] for p, thread in shown if thread is None] == ["0", "2", "10"]
    threads = [thread for p, thread in shown if p.startswith("rank 10") and thread is not None]
    assert [t.partition(":")[0] for t in threads] == ["host", "stream 0", "stream 1", "stream 2"]


def test_an_arrow_leads_from_each_launch_to_what_it_launched():
    graph = jobs.pipeline()
    _, _, trace = read(graph, [0, 1])
    kernels = [s for s in trace.slices if s[4] == "kernel"]
    reached = set()
    for ends in trace.flows.values():
        (process, thread, begin, name), (same, stream, start, what) = ends
        assert (process, thread) == (same, "host")
        assert stream.startswith("stream ")
        assert begin <= start
        if name.startswith("launch"):
            assert name in ("launch", f"launch {what.split()[0]}")
        reached.add((same, stream, start))
    assert {(s[0], s[1], s[2]) for s in kernels} <= reached
    waits = {s[5] for s in trace.slices if s[5].endswith(": waits")}
    assert waits == {"copy: waits"}


def test_waiting_ends_where_the_transfer_starts():
    graph = jobs.pipeline()
    result, _, trace = read(graph, [0, 1, 2], iteration=0)
    waits = trace.named("waiting for other ranks")
    assert waits
    transfers = {(s[0], s[1], s[2]) for s in trace.slices if s[4] == "communication"}
    assert all((s[0], s[1], s[3]) in transfers for s in waits)
    # The last stage waits for its first message from the start on; nothing overlaps it there.
    first = min(s[2] for s in waits if s[0].startswith("rank 2"))
    assert first < result.iteration_end_ns[0][0]


def test_memory_counter_is_the_curve():
    graph = jobs.pipeline(iterations=2)
    for iteration in (0, 1):
        _, size, trace = read(graph, [1], iteration=iteration)
        ((_, values),) = trace.counters.items()
        assert size.counter_values == len(values) == 8
        curve = memory_curve(graph, 1)
        window = curve.live_bytes.reshape(2, 8)[iteration]
        assert [v for _, v in values] == window.tolist()
        assert max(v for _, v in values) == curve.peak_bytes
        assert [t for t, _ in values] == sorted(t for t, _ in values)
        # Each allocation is 500 ns of host time; it counts from the end of that slice.
        ends = {s[3] for s in trace.named("allocate")}
        assert {t for t, _ in values[:4]} <= ends


def test_a_grouped_launch_is_one_slice():
    _, _, trace = read(jobs.ring(), range(4))
    groups = [s for s in trace.slices if s[4] == "communication"]
    assert len(groups) == 4
    for s in groups:
        rank = int(s[0].split()[1])
        after, before = (rank + 1) % 4, (rank - 1) % 4
        assert s[5] == f"send 16.00 MiB to rank {after} + recv 16.00 MiB from rank {before}"
        assert s[6]["parts"] == 2
        assert s[6]["bytes"] == 2 << 24
        assert f"rank {(rank + 1) % 4}" in s[6]["part 0"]
        assert f"rank {(rank - 1) % 4}" in s[6]["part 1"]


def test_same_graph_same_bytes_and_only_the_ranks_asked_for():
    graph = jobs.pipeline()
    outs = []
    for threads in (1, 2):
        result = replay(graph, timeline_ranks=[2], threads=threads)
        out = io.BytesIO()
        write_timeline(out, graph, result)
        outs.append(out.getvalue())
    assert outs[0] == outs[1]
    assert {s[0] for s in Reader(outs[0]).slices} == {"rank 2 (class 2)"}


def test_the_last_iteration_is_the_default():
    graph = jobs.pipeline()
    result, size, trace = read(graph, [0])
    assert size.iteration == 2
    assert min(s[2] for s in trace.slices) >= result.iteration_end_ns[0][1]


@pytest.mark.parametrize("iteration", [3, -1])
def test_an_iteration_that_is_not_there(iteration):
    graph = jobs.pipeline()
    with pytest.raises(GraphError, match=r"iteration -?\d found, expected one of the 3"):
        write_timeline(io.BytesIO(), graph, replay(graph, timeline_ranks=[0]), iteration=iteration)


def test_a_replay_without_timeline():
    graph = jobs.pipeline()
    with pytest.raises(GraphError, match="timeline_ranks"):
        write_timeline(io.BytesIO(), graph, replay(graph))


def test_a_rank_that_does_nothing():
    builder = GraphBuilder(world_size=1)
    builder.set_rank(0, np.empty(0, dtype=OP_DTYPE))
    graph = builder.finish()
    _, size, trace = read(graph, [0])
    assert (size.slices, trace.slices) == (0, [])
