"""What comes back through ``prism import`` of what ``prism export`` wrote."""

import tempfile
from collections import defaultdict
from pathlib import Path

import jobs
import numpy as np
import pytest
from hypothesis import given, settings
from replay_programs import programs

from prismcore.exports.chakra import write_chakra
from prismcore.exports.flight_recorder import write_flight_recorder
from prismcore.graph import CopyDirection, DataType, GraphBuilder, OpKind, Provenance, Reduction
from prismcore.profiles.cluster import cluster_text, load_cluster
from prismcore.replay import recorded_eager_bytes, replay
from prismcore.traces.chakra import read_chakra_set
from prismcore.traces.chakra_ops import graph_of_chakra
from prismcore.traces.flight_recorder import read_flight_records
from prismcore.traces.flight_recorder_ops import graph_of_flight_records

WORK = [
    k
    for k in OpKind
    if k.is_communication or k in (OpKind.KERNEL, OpKind.COPY, OpKind.SET, OpKind.HOST_CALLBACK)
]


def talk(graph):
    """By rank: kinds, sizes and types of its collectives by members of their group, and of its messages by
    their ends, in order."""
    found = {}
    for rank in graph.ranks.tolist():
        series = found.setdefault(rank, defaultdict(list))
        bindings = graph.rank(rank).bindings.tolist()
        for op in graph.ops(rank):
            kind = OpKind(int(op["kind"]))
            if not kind.is_communication:
                continue
            id, position = bindings[int(op["ref"])]
            members = graph.communicator(id).members.tolist()
            if kind in (OpKind.SEND, OpKind.RECV):
                ends = (rank, members[(position + int(op["peer"])) % len(members)])
                key = (kind, ends)
            else:
                key = tuple(members)
            series[key].append((kind, int(op["bytes"]), int(op["dtype"])))
    return found


def through_the_flight_recorder(graph):
    with tempfile.TemporaryDirectory() as folder:
        write_flight_recorder(Path(folder), graph, graph.ranks.tolist())
        records = read_flight_records(sorted(Path(folder).iterdir()))
        entries = [entry for record in records for entry in record.entries]
        span = max(e.completed_ns for e in entries) - min(e.created_ns for e in entries)
        back, _ = graph_of_flight_records(records, load_cluster("h100-8x"))
    return back, span


@pytest.mark.parametrize("graph", [jobs.pipeline(), jobs.ring()], ids=["pipeline", "ring"])
def test_communication_comes_back_from_the_flight_recorder(graph):
    back, span = through_the_flight_recorder(graph)
    assert talk(back) == talk(graph)
    assert replay(back).iteration_time_ns.tolist() == [span]


@settings(max_examples=40, deadline=None)
@given(programs(max_ranks=3, max_actions=20))
def test_so_does_that_of_any_program(made):
    graph = made.build()
    if any(talk(graph).values()):
        back, _ = through_the_flight_recorder(graph)
        assert talk(back) == {rank: series for rank, series in talk(graph).items() if rank in back.ranks}


def through_chakra(graph):
    with tempfile.TemporaryDirectory() as folder:
        write_chakra(Path(folder), graph, graph.ranks.tolist())
        return graph_of_chakra(read_chakra_set(sorted(Path(folder).iterdir())), load_cluster("h100-8x"))


def check_chakra(graph):
    """All times, and all communication with its types, roots, reductions, tags and streams."""
    back, warnings = through_chakra(graph)
    assert replay(back).iteration_end_ns.tolist() == replay(graph).iteration_end_ns.tolist()
    assert back.communication_digest() == graph.communication_digest()
    assert warnings == []
    return back


@pytest.mark.parametrize("graph", [jobs.pipeline(), jobs.ring()], ids=["pipeline", "ring"])
def test_times_and_communication_come_back_from_chakra(graph):
    check_chakra(graph)


@settings(max_examples=40, deadline=None)
@given(programs(max_ranks=3, max_actions=25))
def test_so_do_those_of_any_program(made):
    does_something(made.build(), check_chakra)


@settings(max_examples=30, deadline=None)
@given(programs(max_ranks=3, max_actions=25, asynchronous=True))
def test_and_of_hosts_that_run_ahead(made):
    does_something(made.build(), check_chakra)


def does_something(graph, check):
    """Not with a graph that takes no time and holds no work: an import refuses it."""
    for rank in graph.ranks.tolist():
        ops = graph.ops(rank)
        gaps = ops["duration_ns"][ops["kind"] == OpKind.HOST_GAP]
        if np.isin(ops["kind"], WORK).any() or ops["host_ns"].any() or gaps.any():
            check(graph)
            return


def test_what_chakra_carries_of_each_op():
    builder = GraphBuilder(world_size=3)
    line = builder.communicator("line:1", [2, 0])
    world = builder.communicator("world", range(3))
    for r in range(3):
        rank = builder.rank(r)
        rank.kernel(
            "gemm", duration_ns=1_499, host_ns=700, provenance=Provenance.TABLE, dtype=DataType.FLOAT16
        )
        rank.fill(bytes=64, duration_ns=3, stream=2)
        rank.host_callback(17, stream=1)
        rank.reduce_scatter(
            world, bytes=1 << 33, duration_ns=5, stream=3, dtype=DataType.BFLOAT16, reduction=Reduction.AVG
        )
        if r == 2:
            rank.send(line, to=0, bytes=64, tag=2**32 - 2, duration_ns=10, stream=1)
        if r == 0:
            rank.recv(line, source=2, bytes=64, tag=2**32 - 2, duration_ns=10, stream=1)
        rank.broadcast(world, root=2, bytes=8, duration_ns=5, blocking=True)
        rank.copy(bytes=4096, duration_ns=300, direction=CopyDirection.DEVICE_TO_HOST, blocking=True)
        rank.mark_iteration()
    graph = builder.finish()
    back = check_chakra(graph)
    for rank in range(3):
        ours, theirs = (g.ops(rank)[np.isin(g.ops(rank)["kind"], WORK)] for g in (graph, back))
        for field in ("kind", "flags", "dtype", "detail", "stream", "peer", "tag", "duration_ns", "bytes"):
            assert theirs[field].tolist() == ours[field].tolist(), field
    kernel = back.kernel(0)
    assert (kernel.name, kernel.dtype) == ("gemm", DataType.FLOAT16)
    names = {back.communicator(c).name for c in range(back.num_communicators)}
    assert names == {"line:1", "world"}


def test_what_a_replay_looks_at_comes_back_from_chakra():
    """Messages that do not wait for their receiver, and the iteration that counts in no median."""
    builder = GraphBuilder(world_size=2)
    pair = builder.communicator("pair", range(2))
    for r in range(2):
        rank = builder.rank(r)
        for _ in range(2):
            rank.kernel("work", duration_ns=700 * (1 + 4 * r))
            if r == 0:
                rank.send(pair, to=1, bytes=8, duration_ns=50)
            else:
                rank.recv(pair, source=0, bytes=8, duration_ns=50)
            rank.mark_iteration()
    text = cluster_text("h100-8x")
    graph = builder.finish({"cluster": text, "warmup_iterations": 1, "command": ["x.py"]})
    assert recorded_eager_bytes(graph) > 8
    back, _ = through_chakra(graph)
    assert set(back.metadata) == {"cluster", "imported_from", "notes", "warmup_iterations"}
    first, second = replay(graph), replay(back)
    assert second.iteration_end_ns.tolist() == first.iteration_end_ns.tolist()
    assert second.split == first.split
    assert replay(graph, eager_bytes=0).iteration_end_ns.tolist() != first.iteration_end_ns.tolist()
