"""Chakra execution traces as graphs: against a plain longest path, other writers, and damaged files."""

import gzip
import json
import tarfile

import pytest
from chakra_jobs import Node, attribute, collective, node, write, write_json
from foreign_values import json_values
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.cli.main import main
from prismcore.comm import collective_cost, p2p_cost
from prismcore.errors import DeadlockError, TraceError
from prismcore.graph import Graph, OpKind, Provenance
from prismcore.profiles.cluster import load_cluster
from prismcore.replay import replay
from prismcore.traces.chakra import read_chakra_set
from prismcore.traces.chakra_json import documents_of
from prismcore.traces.chakra_ops import graph_of_chakra

A100 = load_cluster("a100-8x")
ALL_REDUCE, ALL_GATHER, BARRIER = 0, 2, 9


def graph_of(paths):
    return graph_of_chakra(read_chakra_set(paths), A100)


def ranks(folder, *of_ranks, name="trace.{}.et"):
    return [write(folder / name.format(rank), nodes) for rank, nodes in enumerate(of_ranks)]


def comp(id, micros, **more):
    return node(id, "COMP", micros=micros, **{"is_cpu_op": False, **more})


@st.composite
def dags(draw):
    """Nodes of one rank on up to four streams: (id, stream, duration in ns, ids it waits for)."""
    count = draw(st.integers(1, 14))
    ids = draw(st.permutations(range(100, 100 + count)))
    made = []
    for at, id in enumerate(ids):
        deps = draw(st.lists(st.sampled_from(ids[:at]), max_size=3, unique=True)) if at else []
        made.append((id, draw(st.integers(0, 3)), draw(st.integers(0, 5000)), deps))
    return made


@settings(max_examples=60, deadline=None)
@given(dag=dags(), shuffle=st.randoms(use_true_random=False))
def test_a_replay_takes_the_longest_path(tmp_path_factory, dag, shuffle):
    """Streams run one node at a time, in the order in which ids become ready."""
    done, ends, free, left = set(), {}, {}, {id: (s, d, deps) for id, s, d, deps in dag}
    while left:
        id = min(i for i, (_, _, deps) in left.items() if set(deps) <= done)
        stream, duration, deps = left.pop(id)
        begin = max([free.get(stream, 0), *(ends[dep] for dep in deps)])
        ends[id] = free[stream] = begin + duration
        done.add(id)
    nodes = [node(i, "COMP", deps=deps, stream=s, duration_ns=d, is_cpu_op=False) for i, s, d, deps in dag]
    shuffle.shuffle(nodes)
    graph, _ = graph_of(ranks(tmp_path_factory.mktemp("chakra"), nodes))
    assert replay(graph).iteration_time_ns.tolist() == [max(ends.values())]


def job(rank):
    """A kernel, an all-reduce behind it with a kernel beside it, and a kernel behind both."""
    return [
        comp(1, 10 + 5 * rank, name="gemm"),
        collective(2, ALL_REDUCE, 1 << 20, deps=[1], micros=30 - 5 * rank),
        comp(3, 12, deps=[1]),
        comp(4, 7, deps=[2, 3], name="gemm"),
    ]


def test_collectives_lose_their_waiting_and_overlap_what_does_not_wait(tmp_path):
    graph, warnings = graph_of(ranks(tmp_path, job(0), job(1)))
    assert replay(graph).iteration_time_ns.tolist() == [(15 + 25 + 7) * 1000]
    assert any("do not say where 8 durations come from" in text for text in warnings)
    assert replay(graph).provenance["measured"] == 1
    assert {graph.kernel(k).name for k in range(graph.num_kernels)} == {"gemm", "n3"}


@pytest.mark.parametrize("how", ["concatenated", "list", "workload_graph", "gzip"])
def test_json_says_the_same_as_protobuf(tmp_path, how):
    expected, _ = graph_of(ranks(tmp_path, job(0), job(1)))
    paths = []
    for rank in range(2):
        path = tmp_path / f"trace.{rank}.json"
        if how == "concatenated":
            write_json(path, job(rank))
        elif how == "workload_graph":  # as the feeder reads it: flat, numbers for types, runtime
            nodes = [
                {"Id": n.id, "Name": n.name, "NodeType": n.type, "data_deps": list(n.data_deps),
                 "runtime": n.duration_micros, "is_cpu_op": False}
                | ({"comm_type": 0, "comm_size": 1 << 20} if n.type == 7 else {})
                for n in job(rank)
            ]  # fmt: skip
            path.write_text(json.dumps({"workload_graph": nodes}))
        else:
            text = json.dumps(
                [json_format.MessageToDict(n, preserving_proto_field_name=True) for n in job(rank)]
            )
            path.write_text(text)
            if how == "gzip":
                path = path.with_suffix(".json.gz")
                path.write_bytes(gzip.compress(text.encode()))
        paths.append(path)
    graph, _ = graph_of(paths)
    assert graph.digest() == expected.digest()


def test_a_first_record_of_123_bytes_is_no_json(tmp_path):
    (path,) = ranks(tmp_path, [comp(1, 1, name="x" * 100)])
    body = path.read_bytes()[8:]  # without the metadata
    made = Node(id=1, type=4, duration_micros=1, name="")
    attribute(made, "is_cpu_op", False)
    made.name = "x" * (123 - made.ByteSize() - 2)
    assert made.ByteSize() == 123
    path.write_bytes(b"\x7b" + made.SerializeToString() + body)
    assert path.read_bytes()[:1] == b"{"
    assert read_chakra_set([path])[0].nodes[0].name == made.name


def test_without_durations_communication_is_modelled(tmp_path):
    first = comp(1, 0, num_ops=1 << 30)
    nodes = [first, collective(2, ALL_REDUCE, 1 << 20, deps=[1]), collective(3, BARRIER, 0, deps=[2])]
    graph, warnings = graph_of(ranks(tmp_path, nodes, nodes))
    costs = [collective_cost("all_reduce", n, (0, 1), cluster=A100).duration_ns for n in (1 << 20, 0)]
    assert replay(graph).iteration_time_ns.tolist() == [sum(costs)]
    assert any("2 computations have no duration" in text for text in warnings)
    assert any("4 communication ops have no duration" in text and "a100-8x" in text for text in warnings)
    kernels = graph.ops(0)[graph.ops(0)["kind"] == OpKind.KERNEL]
    assert (kernels["flags"] & 3).tolist() == [Provenance.UNKNOWN]


def test_an_archive_is_read_as_a_folder_is_and_others_are_left_out(tmp_path):
    nodes = [collective(1, ALL_GATHER, 4096, pg_name="1", micros=10)]
    files = ranks(tmp_path, nodes, nodes, name="job-1.2.3_rank{}.et")
    (tmp_path / "comm_groups.json").write_text(json.dumps({"1": [0, 1]}))
    (tmp_path / "et_rank0.json").write_text('{"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id": 1}]}')
    (tmp_path / "settings.json").write_text('{"layers": 4}')
    with tarfile.open(tmp_path / "job.tar", "w") as archive:
        for path in [*files, *sorted(tmp_path.glob("*.json"))]:
            archive.add(path, f"job/{path.name}")
    for source in (tmp_path, tmp_path / "job.tar"):
        traces = read_chakra_set([source])
        assert [(trace.rank, trace.groups) for trace in traces] == [(0, {"1": (0, 1)}), (1, {"1": (0, 1)})]
        assert sum("et_rank0.json, settings.json in the" in text for text in traces[0].warnings) == 1
    unnamed = files[0].rename(tmp_path / "et_1.1.0-chakra.0.0.4.et")
    assert read_chakra_set([unnamed])[0].warnings == [f"{unnamed}: its rank is not told, and taken as 0"]


def test_groups_by_comm_groups_json_and_messages_by_tag(tmp_path):
    def of(rank):
        pair = "1" if rank < 2 else "2"
        nodes = [collective(1, ALL_GATHER, 4096, pg_name=pair, micros=10 * (rank // 2 + 1))]
        if rank == 0:
            nodes += [
                node(2, "COMM_SEND", deps=[1], comm_src=0, comm_dst=3, comm_tag=tag, comm_size=1 << size)
                for tag, size in ((5, 20), (6, 10))
            ]
            nodes[-1].id = 3
        if rank == 3:
            nodes += [
                node(2 + at, "COMM_RECV", deps=[1], comm_src=0, comm_dst=3, comm_tag=tag, comm_size=1 << size)
                for at, (tag, size) in enumerate(((5, 20), (6, 10)))
            ]
        return nodes

    (tmp_path / "comm_groups.json").write_text(json.dumps({"1": [0, 1], "2": [2, 3]}))
    graph, warnings = graph_of(
        [*ranks(tmp_path, *(of(rank) for rank in range(4))), tmp_path / "comm_groups.json"]
    )
    assert not any("other side" in text or "lack" in text for text in warnings)
    costs = [p2p_cost(1 << n, same_node=True, cluster=A100).duration_ns for n in (20, 10)]
    assert replay(graph).iteration_time_ns.tolist() == [20_000 + sum(costs)]
    shared = sorted(graph.communicator(c).members.tolist() for c in range(graph.num_communicators))
    assert shared == [[0, 1], [0, 1, 2, 3], [2, 3]]


def test_messages_that_wait_for_each_other_are_named_by_the_replay(tmp_path):
    """As astra-sim#158: no result without a reason."""

    def of(rank):
        there, back = {"comm_src": 1 - rank, "comm_dst": rank}, {"comm_src": rank, "comm_dst": 1 - rank}
        return [
            node(1, "COMM_RECV", comm_size=8, micros=1, **there),
            node(2, "COMM_SEND", deps=[1], comm_size=8, micros=1, **back),
        ]

    graph, _ = graph_of(ranks(tmp_path, of(0), of(1)))
    with pytest.raises(DeadlockError, match=r"rank [01]") as caught:
        replay(graph)
    assert "recv" in str(caught.value)


def test_collectives_and_messages_of_one_group_share_its_communicator(tmp_path):
    """What meets nobody is on a communicator of the rank alone; two of these are one."""
    nodes = [
        collective(1, ALL_REDUCE, 64, micros=7),
        node(2, "COMM_SEND", comm_src=0, comm_dst=5, comm_size=8, micros=3),
    ]
    write(tmp_path / "trace.0.et", nodes, world_size=6)
    graph, _ = graph_of([tmp_path / "trace.0.et"])
    assert len(graph.rank(0).bindings) == graph.num_communicators == 1
    assert replay(graph).iteration_time_ns.tolist() == [7000]


def test_start_times_order_a_stream(tmp_path):
    nodes = [comp(1, 5, start=200), comp(2, 7, start=100), collective(3, ALL_REDUCE, 8, deps=[2], micros=1)]
    graph, _ = graph_of(ranks(tmp_path, nodes))
    ops = graph.ops(0)
    assert ops["duration_ns"][ops["kind"] == OpKind.KERNEL].tolist() == [7000, 5000]


def test_nodes_that_do_nothing_are_waited_through_and_control_counts_without_data(tmp_path):
    nodes = [
        comp(1, 5),
        node(2, "METADATA", ctrl=[1]),
        node(3, "INVALID", ctrl=[2]),
        node(4, "MEM_LOAD", ctrl=[3], micros=9, tensor_size=4096, is_cpu_op=False),
    ]
    graph, _ = graph_of(ranks(tmp_path, nodes))
    assert replay(graph).iteration_time_ns.tolist() == [14_000]
    ops = graph.ops(0)
    assert ops["bytes"][ops["kind"] == OpKind.COPY].tolist() == [4096]
    nodes[3].data_deps.append(1)  # now control dependencies are containment
    nodes.append(comp(5, 100, ctrl=[4]))
    graph, _ = graph_of(ranks(tmp_path, nodes))
    assert replay(graph).iteration_time_ns.tolist() == [105_000]


@pytest.mark.parametrize("length", [1, 2, 5, 5_000])
def test_circles_are_named_and_do_not_overflow(tmp_path, length):
    """As chakra#161: dependencies in a circle, of any length."""
    nodes = [comp(i, 1, deps=[(i + 1) % length + 0]) for i in range(length)] + [comp(length, 1)]
    with pytest.raises(TraceError, match=r"rank 0: nodes wait for each other in a circle: \d+ \(n\d+\)"):
        graph_of(ranks(tmp_path, nodes))


def test_a_long_chain_is_no_circle(tmp_path):
    nodes = [comp(i, 1, deps=[i - 1] if i else []) for i in range(5_000)]
    graph, _ = graph_of(ranks(tmp_path, nodes))
    assert replay(graph).iteration_time_ns.tolist() == [5_000_000]


def test_orphans_are_kept_and_told(tmp_path):
    nodes = [comp(1, 5, deps=[77, 78]), collective(2, ALL_REDUCE, 8, deps=[99], micros=3)]
    graph, warnings = graph_of(ranks(tmp_path, nodes))
    assert any("3 dependencies on nodes that are not in the trace" in text for text in warnings)
    assert int((graph.ops(0)["kind"] == OpKind.ALL_REDUCE).sum()) == 1


def test_missing_ranks_and_collectives_that_differ_are_told(tmp_path):
    (tmp_path / "comm_groups.json").write_text(json.dumps({"1": [0, 1, 2]}))
    of = [
        [collective(1, kind, size, pg_name="1", micros=4) for kind, size in ((0, 8), (kind, 8), (0, size))]
        for kind, size in ((ALL_REDUCE, 64), (ALL_GATHER, 128))
    ]
    for nodes in of:
        for id, one in enumerate(nodes):
            one.id = id
    graph, warnings = graph_of(ranks(tmp_path, *of))
    said = "\n".join(warnings)
    assert "rank 2 (of 3) has no trace" in said
    assert "different ones, all_reduce and all_gather (collectives 1)" in said
    assert "brought 64 and 128 bytes (collectives 2)" in said
    replay(graph)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (collective(5, 77, 8), "comm_type 77 found, expected 0 to 9"),
        (node(5, "COMM_COLL", comm_size=8), "comm_type None found"),
        (collective(5, 0, "many"), "attribute comm_size 'many' found, expected a whole number"),
        (collective(5, 0, -8), "attribute comm_size '-8' found"),
        (node(5, "COMM_SEND", comm_src=1, comm_dst=0, comm_size=8), "a message from 1 to 0 found on rank 0"),
        (node(5, "COMM_SEND", comm_src=0, comm_dst=9, comm_size=8), "rank 9 found, expected 0 to 0"),
        (node(5, "COMP", duration_ns=-4), "duration_ns -4 found"),
        (comp(1, 3), "two nodes with id 1 found"),
    ],
)
def test_what_cannot_be_is_named(tmp_path, bad, said):
    with pytest.raises(TraceError, match=r"trace\.0\.et") as caught:
        graph_of(ranks(tmp_path, [comp(1, 3), bad]))
    assert said in str(caught.value)


def test_integers_of_any_type_are_read(tmp_path):
    """astra-sim#224: writers disagree about int64 and uint64."""
    made = Node(id=1, name="a", type=7)
    attribute(made, "comm_type", 2, "int32_val")
    attribute(made, "comm_size", 1 << 40, "uint64_val")
    attribute(made, "is_cpu_op", False)
    attribute(made, "a", 3, "sint64_val")
    attribute(made, "b", -3, "sint32_val")
    attribute(made, "c", 1.5, "float_val")
    attribute(made, "d", 9, "fixed64_val")
    attribute(made, "e", -9, "sfixed32_val")
    attribute(made, "f", [True, False])
    attribute(made, "g", [1, 2**40])
    attribute(made, "h", ["x", "y"], "string_list")
    (path,) = ranks(tmp_path, [made])
    (found,) = read_chakra_set([path])[0].nodes
    assert found.attributes == {
        "comm_type": 2, "comm_size": 1 << 40, "is_cpu_op": False, "a": 3, "b": -3, "c": 1.5, "d": 9, "e": -9,
        "f": [1, 0], "g": [1, 2**40], "h": ["x", "y"],
    }  # fmt: skip
    graph, _ = graph_of([path])
    assert graph.ops(0)["bytes"].max() == 1 << 40


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no nodes found"),
        (b"\x07\x0a\x050.0.4", "no work found"),
        (b"\x05\x0a", "a record of 5 bytes at byte 1 is cut off"),
        (b"\xff" * 11, "a number of more than ten bytes"),
        (b"\x02\x0b\x01", "wire type 3 found"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x01", "is cut off"),
        (b'{"nodes": []}', "no nodes found"),
        (b'{"nodes": [3]}', "'3' found, expected nodes"),
        (b'{"nodes": [', "no JSON"),
        (b'[{"id": "x", "type": "COMP_NODE"}]', "id of node 'None' 'x' found"),
        (b"\x1f\x8bnonsense", "cannot be read"),
    ],
)
def test_damaged_files_are_told_in_one_line(tmp_path, capsys, content, said):
    path = tmp_path / "trace.0.et"
    path.write_bytes(content)
    assert main(["import", "chakra", str(path), "-o", str(tmp_path / "job.prism")]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_damage_anywhere_gives_a_graph_or_a_trace_error(tmp_path_factory, data):
    paths = ranks(tmp_path_factory.mktemp("chakra"), job(0), job(1))
    content = bytearray(paths[0].read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    paths[0].write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        graph, _ = graph_of(paths)
    except TraceError:
        return
    replay(graph)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_wrong_types_in_json_give_a_graph_or_a_trace_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("chakra")
    (other,) = ranks(folder, job(0), name="trace.1.et")
    nodes = [json_format.MessageToDict(n, preserving_proto_field_name=True) for n in job(1)]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from([n for n in nodes if n]))
        if place.get("attr") and data.draw(st.booleans()) and isinstance(place["attr"], list):
            place = data.draw(st.sampled_from(place["attr"]))
        if isinstance(place, dict) and place:
            place[data.draw(st.sampled_from(sorted(place)))] = data.draw(json_values)
    path = folder / "trace.0.json"
    path.write_text(json.dumps(nodes))
    try:
        graph, _ = graph_of([path, other])
    except TraceError:
        return
    replay(graph)


def test_command_line(tmp_path, capsys):
    ranks(tmp_path, job(0), job(1))
    out = tmp_path / "job.prism"
    assert main(["import", "chakra", str(tmp_path), "-o", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ranks"], found["world_size"], found["iterations"]) == (2, 2, 1)
    assert Graph.open(out).metadata["imported_from"] == "chakra"
    unnamed = [tmp_path / "a", tmp_path / "b"]
    for path in unnamed:
        path.write_bytes((tmp_path / "trace.0.et").read_bytes())
    with pytest.raises(TraceError, match="its rank is not told by its name"):
        read_chakra_set(unnamed)
    with pytest.raises(TraceError, match="rank 0 found, which"):
        read_chakra_set([tmp_path / "trace.0.et"] * 2)


def test_json_that_is_cut_is_called_so_however_it_is_laid_out():
    nodes = [{"id": n, "name": "n", "type": 4, "duration_micros": 5} for n in range(3)]
    for document in (nodes, {"workload_graph": nodes}):
        for indent in (None, 1, "\t"):
            text = json.dumps(document, indent=indent)
            assert len(documents_of(text.encode())[1]) == 3
            with pytest.raises(TraceError, match="no JSON"):
                documents_of(text[:-3].encode())
    assert documents_of(b"{\n\x050.0.4" + b"x" * 116) is None  # a message of 123 bytes
    assert len(documents_of("\n".join(map(json.dumps, nodes)).encode())[1]) == 3
