"""Chakra execution traces, read back with the protobuf package and run by an evaluation of their own."""

import io
import json
import tempfile
from pathlib import Path

import chakra_reader
import jobs
import pytest
from hypothesis import given, settings
from replay_programs import programs

from prismcore.errors import GraphError
from prismcore.exports.chakra import write_chakra, write_chakra_rank
from prismcore.graph import CopyDirection, DataType, Gemm, GraphBuilder, Reduction
from prismcore.replay import replay


def exported(graph, folder):
    write_chakra(folder, graph, graph.ranks.tolist())
    return folder


@settings(max_examples=60, deadline=None)
@given(programs(max_ranks=3, max_actions=25))
def test_a_simulator_that_obeys_the_dependencies_takes_what_the_replay_takes(made):
    check_times(made.build())


@settings(max_examples=40, deadline=None)
@given(programs(max_ranks=3, max_actions=25, asynchronous=True))
def test_the_same_where_hosts_run_ahead_of_their_devices(made):
    check_times(made.build())


def check_times(graph):
    ends = replay(graph).iteration_end_ns
    with tempfile.TemporaryDirectory() as name:
        assert chakra_reader.run(exported(graph, Path(name))) == dict(enumerate(ends.tolist()))


@pytest.mark.parametrize("graph", [jobs.pipeline(), jobs.ring()], ids=["pipeline", "ring"])
def test_jobs_take_what_the_replay_takes(tmp_path, graph):
    ends = replay(graph).iteration_end_ns
    assert chakra_reader.run(exported(graph, tmp_path)) == dict(enumerate(ends.tolist()))


def sample():
    builder = GraphBuilder(world_size=4)
    line = builder.communicator("line:1", [2, 0, 3])
    world = builder.communicator("world", range(4))
    for r in range(4):
        rank = builder.rank(r)
        rank.kernel("gemm", duration_ns=1_499, host_ns=700, gemm=Gemm(m=2, n=3, k=5, batch=7))
        rank.wait(rank.record(stream=0), stream=3)
        rank.reduce_scatter(
            world,
            bytes=1 << 33,
            duration_ns=1_500,
            stream=3,
            dtype=DataType.BFLOAT16,
            reduction=Reduction.AVG,
            call_site="train.py:7 step",
        )
        if r == 2:
            rank.send(line, to=3, bytes=64, tag=2**32 - 2, duration_ns=10, stream=1)
        if r == 3:
            rank.recv(line, source=2, bytes=64, tag=2**32 - 2, duration_ns=10, stream=1)
        if r in (0, 2, 3):
            rank.broadcast(line, root=3, bytes=8, duration_ns=5, blocking=True)
        rank.copy(bytes=4096, duration_ns=300, direction=CopyDirection.DEVICE_TO_HOST)
        rank.mark_iteration()
    return builder.finish({"warmup_iterations": 1})


def test_what_nodes_say(tmp_path):
    meta, nodes = chakra_reader.read(exported(sample(), tmp_path) / "chakra.2.et")
    assert meta.version == "0.0.4"
    about = chakra_reader.said(meta)
    assert (about["rank"], about["world_size"], about["iterations"]) == (2, 4, 1)
    assert json.loads(about["metadata"]) == {"warmup_iterations": 1}
    assert [n.id for n in nodes] == list(range(1, len(nodes) + 1))
    host, gemm, reduce, send, broadcast, copy, mark = nodes
    kinds = chakra_reader.CLASSES["Node"].DESCRIPTOR.fields_by_name["type"].enum_type.values_by_name
    types = [kinds[name].number for name in ("COMP_NODE", "COMM_COLL_NODE", "COMM_SEND_NODE")]
    comp, collective, message = types
    assert [n.type for n in nodes] == [comp, comp, collective, message, collective, comp, comp]
    assert [n.duration_micros for n in nodes] == [1, 1, 2, 0, 0, 0, 0]
    assert chakra_reader.said(host) == {"is_cpu_op": True, "op": "host_gap", "duration_ns": 700}
    assert chakra_reader.said(gemm) == {
        "is_cpu_op": False,
        "op": "kernel",
        "duration_ns": 1_499,
        "num_ops": 2 * 2 * 3 * 5 * 7,
        "stream": 0,
        "provenance": "model",
    }
    assert chakra_reader.said(reduce) == {
        "is_cpu_op": False,
        "op": "reduce_scatter",
        "duration_ns": 1_500,
        "comm_size": 1 << 33,
        "comm_priority": 0,
        "pg_name": "2",
        "comm_type": 7,
        "communicator": "world",
        "dtype": "bfloat16",
        "reduction": "avg",
        "stream": 3,
        "provenance": "model",
        "members": [0, 1, 2, 3],
        "call_site": "train.py:7 step",
    }
    said = chakra_reader.said(send)
    assert (said["comm_src"], said["comm_dst"], said["pg_name"]) == (2, 3, "1")
    assert said["comm_tag"] % 2**32 == 2**32 - 2
    assert said["members"] == [2, 0, 3]
    said = chakra_reader.said(broadcast)
    assert (said["root"], said["blocking"], said["comm_type"]) == (3, True, 5)
    assert "members" not in said  # said before
    assert chakra_reader.said(copy)["direction"] == "device_to_host"
    assert chakra_reader.said(copy)["tensor_size"] == 4096
    assert chakra_reader.said(mark)["mark"] == "iteration"
    assert (list(gemm.ctrl_deps), list(gemm.data_deps)) == ([1], [1])
    assert list(reduce.data_deps) == [1, 2]
    assert list(send.data_deps) == [1]
    assert list(broadcast.data_deps) == [1, 2]
    assert list(copy.data_deps) == [1, 5]  # the host waited for the broadcast


def test_attributes_have_the_types_that_feeders_read(tmp_path):
    _, nodes = chakra_reader.read(exported(sample(), tmp_path) / "chakra.2.et")
    types = {}
    for node in nodes:
        types |= chakra_reader.types_of(node)
    expected = {
        "is_cpu_op": "bool_val",
        "num_ops": "int64_val",
        "tensor_size": "uint64_val",
        "comm_type": "int64_val",
        "comm_size": "int64_val",
        "comm_priority": "int32_val",
        "comm_src": "int32_val",
        "comm_dst": "int32_val",
        "comm_tag": "int32_val",
        "pg_name": "string_val",
    }
    assert {name: types[name] for name in expected} == expected
    groups = json.loads((tmp_path / "comm_groups.json").read_text())
    assert groups == {"1": [2, 0, 3], "2": [0, 1, 2, 3]}
    assert all(int(name) > 0 for name in groups)  # to ASTRA-sim 0 is the whole world


def test_control_dependencies_are_data_dependencies_too(tmp_path):
    exported(jobs.pipeline(), tmp_path)
    for path in tmp_path.glob("*.et"):
        for node in chakra_reader.read(path)[1]:
            assert set(node.ctrl_deps) <= set(node.data_deps)
            assert all(dep < node.id for dep in node.data_deps)


def test_the_same_graph_gives_the_same_bytes_and_a_rank_needs_no_other():
    graph = jobs.pipeline()
    outs = [io.BytesIO(), io.BytesIO()]
    for out in outs:
        write_chakra_rank(out, graph, 1)
    assert outs[0].getvalue() == outs[1].getvalue()
    with pytest.raises(GraphError, match="rank 9"):
        write_chakra_rank(io.BytesIO(), graph, 9)
