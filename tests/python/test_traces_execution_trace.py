"""PyTorch execution traces as graphs: small ones on paper, torch's own, public ones, damaged ones."""

import gzip
import json
import tarfile

import pytest
from execution_trace_jobs import SCHEMAS, Trace, kineto_beside, read, two_ranks
from foreign_values import json_values
from hypothesis import given, settings
from hypothesis import strategies as st
from measurements import measured

from prismcore.cli.main import main
from prismcore.comm import collective_cost, p2p_cost
from prismcore.cost import KernelShape, kernel_cost
from prismcore.errors import TraceError
from prismcore.graph import Graph, OpKind, Provenance
from prismcore.profiles.cluster import load_cluster
from prismcore.profiles.device import load_device
from prismcore.replay import replay
from prismcore.report.case import case_of
from prismcore.traces.execution_trace_groups import communicators_of, place_ranks
from prismcore.traces.execution_trace_ops import graph_of_execution_traces

A100 = load_cluster("a100-8x")


def graph_of(paths):
    return graph_of_execution_traces(read(paths), A100)


def all_reduce_ns(bytes, members=(0, 1)):
    return collective_cost("all_reduce", bytes, members, cluster=A100).duration_ns


@pytest.mark.parametrize("schema", SCHEMAS)
def test_without_times_communication_is_modelled_and_computation_unknown(tmp_path, schema):
    graph, warnings = graph_of(two_ranks(tmp_path, schema))
    result = replay(graph)
    both = all_reduce_ns(4 << 20) + all_reduce_ns(4 << 10)
    assert result.iteration_time_ns.tolist() == [both]
    assert result.provenance == {"measured": 0, "table": 0, "model": 1, "unknown": 0}
    assert any("4 ops on the device have no duration" in text for text in warnings)
    assert any("4 communication ops" in text and "a100-8x" in text for text in warnings)
    ops = graph.ops(0)
    kernels = ops[ops["kind"] == OpKind.KERNEL]
    assert set((kernels["flags"] & 3).tolist()) == {Provenance.UNKNOWN}
    assert sorted(ops["bytes"][ops["kind"] == OpKind.ALL_REDUCE].tolist()) == [4 << 10, 4 << 20]
    # Nothing overlaps: what follows waits. A device profile costs the products by their dimensions.
    device = load_device("a100")
    product = kernel_cost(
        "aten::mm", KernelShape(m=512, n=2048, k=1024, batch=1, dtype="float16"), device.to_core()
    )
    assert replay(graph, device=device).iteration_time_ns.tolist() == [both + 2 * product.duration_ns]


def test_an_asynchronous_collective_runs_beside_what_does_not_wait_for_it(tmp_path):
    paths = []
    for rank in range(2):
        trace = Trace()
        trace.call("allreduce", 3, 70 + rank, rank, elements=1 << 24, tail=[2])
        trace.product(8192, 8192, 8192)
        trace.wait(3, rank)
        trace.product(64, 64, 64)
        paths.append(trace.write(tmp_path / f"et_rank{rank}.json"))
    graph, _ = graph_of(paths)
    device = load_device("a100")
    large, small = (
        kernel_cost("aten::mm", KernelShape(m=n, n=n, k=n, batch=1, dtype="float16"), device.to_core())
        for n in (8192, 64)
    )
    longest = max(large.duration_ns, all_reduce_ns(4 << 24))
    assert large.duration_ns > 1_000_000
    assert replay(graph, device=device).iteration_time_ns.tolist() == [longest + small.duration_ns]


def test_messages_meet_by_peer_and_order(tmp_path):
    paths = []
    for rank in range(2):
        trace = Trace("1.1.1-chakra.0.0.4")
        trace.groups({"pg_name": "3", "pg_desc": "pp", "ranks": [0, 1], "group_size": 2})
        for number, elements in ((1, 1 << 20), (2, 1 << 10)):
            trace.call("send" if rank == 0 else "recv", number, ["3", "pp"], 1 - rank, elements=elements)
        paths.append(trace.write(tmp_path / f"et_rank{rank}.json"))
    graph, warnings = graph_of(paths)
    expected = sum(p2p_cost(n, same_node=True, cluster=A100).duration_ns for n in (4 << 20, 4 << 10))
    assert replay(graph).iteration_time_ns.tolist() == [expected]
    assert not any("other side" in text for text in warnings)
    alone, warnings = graph_of(paths[:1])
    assert any("2 of 2 sends and receives have no other side, 2 of them" in text for text in warnings)
    assert replay(alone).iteration_time_ns.tolist() == [expected]


def test_profiled_steps_become_iterations(tmp_path):
    paths = []
    for rank in range(2):
        trace = Trace()
        trace.product(8, 8, 8)  # before the first step: left out
        for step in range(rank, 3):
            trace.op(f"ProfilerStep#{step}")
            trace.call("allreduce", step, 70 + rank, rank, elements=1 << (10 + step), tail=[2])
        paths.append(trace.write(tmp_path / f"et_rank{rank}.json"))
    graph, warnings = graph_of(paths)
    assert graph.iterations == 2
    assert replay(graph).iteration_time_ns.tolist() == [all_reduce_ns(4 << 11), all_reduce_ns(4 << 12)]
    assert any("steps 0 are not in all execution traces" in text for text in warnings)


def test_groups_by_address_are_told_apart_by_what_they_did(tmp_path):
    """Each rank: a pair (0-1, 2-3) at other numbers than the world, and a group of its own."""
    paths = []
    for rank in range(4):
        trace = Trace()
        trace.call("allreduce", 9, 1000 * rank + 1, rank, tail=[4])
        trace.call("all_gather", 5 + 10 * (rank // 2), 1000 * rank + 2, rank % 2, tail=[2])
        trace.call("allreduce", 1, 1000 * rank + 3, 0, tail=[1])
        paths.append(trace.write(tmp_path / f"et_rank{rank}.json"))
    warnings = []
    shared = communicators_of(place_ranks(read(paths)), warnings)
    assert {c.members for c in shared.values()} == {(0, 1, 2, 3), (0, 1), (2, 3), (0,), (1,), (2,), (3,)}
    assert warnings == []


def test_groups_that_cannot_be_told_apart_are_told_and_not_guessed(tmp_path):
    paths = []
    for rank in range(4):
        trace = Trace()
        trace.call("allreduce", 9, 1000 * rank, rank % 2, tail=[2])
        paths.append(trace.write(tmp_path / f"et_rank{rank}.json"))
    graph, warnings = graph_of(paths)
    assert any("ranks 0-3 call the same on groups of 2" in text for text in warnings)
    assert replay(graph).iteration_time_ns.tolist() == [all_reduce_ns(4096)]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"name": "all_gather"}, "did different ones, all_reduce and all_gather"),
        ({"elements": 7}, "brought 4,096 and 28 bytes"),
        (None, "ranks 1 lack what others did"),
    ],
)
def test_collectives_that_do_not_fit_are_told_and_do_not_meet(tmp_path, what, said):
    def change(rank, trace):
        if rank == 0 or what is not None:
            how = {"name": "allreduce", "elements": 1024} | ((what or {}) if rank else {})
            trace.call(how["name"], 5, ["0", "default_pg"], rank, elements=how["elements"], tail=[0, 1, 2])

    graph, warnings = graph_of(two_ranks(tmp_path, SCHEMAS[2], change))
    assert any(said in text and "(collectives 5)" in text for text in warnings), warnings
    replay(graph)  # no deadlock, no mismatch


def test_uneven_splits_count_as_the_largest(tmp_path):
    paths = []
    for rank in range(2):
        trace = Trace()
        trace.call("all_to_allv", 1, 70 + rank, rank, elements=100 + 900 * rank, splits=([1], [1]))
        paths.append(trace.write(tmp_path / f"dlrm_eg_{rank}.json"))
    graph, _ = graph_of(paths)
    expected = collective_cost("all_to_all", 4000, (0, 1), cluster=A100).duration_ns
    assert replay(graph).iteration_time_ns.tolist() == [expected]


def test_orphans_and_wrong_parents_are_kept_and_told(tmp_path):
    """As chakra#190: collectives under a parent that is not there must not be lost."""

    def change(rank, trace):
        for node in trace.nodes:
            if node["name"] == "record_param_comms":
                node["parent"] = 9999 if rank else node["id"]

    graph, warnings = graph_of(two_ranks(tmp_path, change=change))
    assert any("4 nodes name a parent that begins after them" in text for text in warnings)
    assert any("the parents of 4 nodes are not in it" in text for text in warnings)
    assert replay(graph).iteration_time_ns.tolist() == [all_reduce_ns(4 << 20) + all_reduce_ns(4 << 10)]


def test_missing_ranks_are_told(tmp_path):
    graph, warnings = graph_of(two_ranks(tmp_path, SCHEMAS[3])[1:])
    assert "rank 0 (of 2) has no trace" in warnings
    assert (graph.world_size, list(graph.ranks)) == (2, [1])
    replay(graph)


def on_the_cpu(rank, trace):
    trace.groups({"pg_name": "0", "group_size": 2, "backend_config": "cpu:gloo"})
    trace.nodes = [node for node in trace.nodes if node["name"] != "record_param_comms"]
    for node in trace.nodes:
        for tensor in node["inputs"]:
            if isinstance(tensor, list):
                tensor[5] = "cpu"


def test_a_job_on_the_cpu_is_refused_with_the_reason(tmp_path):
    paths = two_ranks(tmp_path)
    graph_of(paths)
    paths = two_ranks(tmp_path, change=on_the_cpu)
    with pytest.raises(TraceError, match=r"tensors are on cpu, and their process groups .* cpu:gloo"):
        graph_of(paths)


def test_a_folder_of_both_gives_each_reader_its_own(tmp_path, capsys):
    two_ranks(tmp_path)
    for rank in range(2):
        kineto_beside(tmp_path, rank)
    (tmp_path / "settings.json").write_text('{"layers": 4}')
    folder, out = str(tmp_path), tmp_path / "job.prism"
    command = ["import", "pytorch-et", folder, "--kineto", folder, "-o", str(out), "--json"]
    assert main(command) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["ranks"], report["provenance"]["measured"]) == (2, 1)
    left_out = [text for text in report["warnings"] if "in the folder are no" in text]
    assert sorted(text.partition(" in the folder")[0] for text in left_out) == [
        "et_rank0.json, et_rank1.json, settings.json",
        "kineto_rank0.json, kineto_rank1.json, settings.json",
    ]
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        for path in sorted(tmp_path.glob("*.json")):
            archive.add(path, f"../up/{path.name}")
    command[2] = command[4] = str(tmp_path / "all.tar")
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["ranks"] == 2
    command[2] = str(out.rename(tmp_path / "old.prism"))
    assert main(command) == 1
    assert "old.prism: a graph of prismcore found" in capsys.readouterr().err
    command[2] = str(tmp_path / "kineto_rank0.json")
    assert main(command) == 1
    assert "prism import kineto takes it" in capsys.readouterr().err


def test_command_line(tmp_path, capsys):
    two_ranks(tmp_path)
    with tarfile.open(tmp_path / "all.tar.gz", "w:gz") as archive:
        for rank in range(2):
            archive.add(tmp_path / f"et_rank{rank}.json", f"et/et_rank{rank}.json")
    out = tmp_path / "job.prism"
    command = ["import", "pytorch-et", str(tmp_path / "all.tar.gz"), "-o", str(out), "--json"]
    assert main([*command, "--cluster", "a100-8x"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ranks"], found["provenance"]["model"]) == (2, 1)
    graph = Graph.open(out)
    assert graph.metadata["imported_from"] == "pytorch-et"
    slower = all_reduce_ns(4 << 20) + all_reduce_ns(4 << 10)
    assert replay(graph).iteration_time_ns.tolist() == [slower]
    assert main(command) == 0  # h100-8x
    assert replay(Graph.open(out)).iteration_time_ns[0] != slower
    capsys.readouterr()
    files = [str(kineto_beside(tmp_path, rank)) for rank in range(2)]
    assert main([*command, "--kineto", *files]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"]["measured"] == 1
    assert str(case_of(Graph.open(out))) == "import of kineto (own steps)"  # what its error is known of
    assert main([*command, "--kineto", *files, "--cluster", "a100-8x"]) == 2


def valid(tmp_path):
    return json.loads(two_ranks(tmp_path)[0].read_text())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no JSON"),
        (b"[]", "no list of nodes"),
        (b'{"nodes": []}', "schema 'none' found"),
        (b'{"schema": "1.0.1", "nodes": []}', "none of its 0 nodes"),
        (b'{"schema": "1.0.1", "nodes": [3, {"id": -1, "name": "x"}]}', "none of its 2 nodes"),
        (b'{"schema": "2.0.0", "nodes": [{}]}', "schema '2.0.0' found"),
        (b'{"schema": "1.0.1", "nodes": [{"id": 3, "name": "x"', "no JSON"),
        (b'{"schema": "1.0.1", "nodes": [{"id": 3, "name": "x"}]}', "neither work on a device"),
        (b"[" * 100_000, "no JSON"),
        (gzip.compress(b'{"schema": "1.0.1", "nodes": []}')[:-9], "cannot be read"),
        (b"\x1f\x8bnonsense", "cannot be read"),
    ],
)
def test_damaged_files_are_told_in_one_line(tmp_path, capsys, content, said):
    path = tmp_path / "et_rank0.json"
    path.write_bytes(content)
    assert main(["import", "pytorch-et", str(path), "-o", str(tmp_path / "job.prism")]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert str(path) in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    "change",
    [{"ranks": [0, 2**24]}, {"ranks": [0, 1 << 40]}, {"group_size": 2**24 + 1}, {"group_size": 2**62}],
)
def test_groups_that_no_world_can_have_are_not_taken(tmp_path, change):
    told = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [], "group_size": 2, "group_count": 1} | change
    paths = []
    for rank in range(2):
        trace = Trace("1.1.0")
        trace.groups(told)
        trace.call("allreduce", 1, ["0", "default_pg"], rank, tail=[0, 1, 2])
        paths.append(trace.write(tmp_path / f"et_rank{rank}.json"))
    graph, _ = graph_of(paths)
    assert (graph.world_size, graph.communicator(0).members.tolist()) == (2, [0, 1])
    replay(graph)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_wrong_types_anywhere_give_a_graph_or_a_trace_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("et")
    paths = two_ranks(folder, data.draw(st.sampled_from(SCHEMAS)))
    document = json.loads(paths[0].read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        node = data.draw(st.sampled_from(document["nodes"]))
        if isinstance(node, dict):
            place = node
            while isinstance(place, (dict, list)) and place and data.draw(st.booleans()):
                keys = list(place) if isinstance(place, dict) else range(len(place))
                key = data.draw(st.sampled_from(list(keys)))
                if isinstance(place[key], (dict, list)) and place[key]:
                    place = place[key]
            keys = list(place) if isinstance(place, dict) else range(len(place))
            place[data.draw(st.sampled_from(list(keys)))] = data.draw(json_values)
    paths[0].write_text(json.dumps(document))
    try:
        graph, _ = graph_of(paths)
    except TraceError:
        return
    replay(graph)


def test_two_traces_of_one_rank_and_ranks_that_are_not_told(tmp_path):
    path = two_ranks(tmp_path)[0]
    with pytest.raises(TraceError, match="rank 0 found, which"):
        place_ranks(read([path, path]))
    unnamed = [tmp_path / "a.json", tmp_path / "b.json"]
    for copy in unnamed:
        copy.write_bytes(path.read_bytes())
    with pytest.raises(TraceError, match="its rank is told neither"):
        place_ranks(read(unnamed))
    (alone,) = place_ranks(read(unnamed[:1]))
    assert (alone.rank, alone.warnings) == (0, [f"{unnamed[0]}: its rank is not told, and taken as 0"])


@pytest.mark.torch
def test_torchs_own_observer(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "et_rank0.json"
    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(path))
    observer.start()
    with torch.profiler.record_function("ProfilerStep#4"):
        ones = torch.ones(32, 64)
        ones @ ones.T
    observer.stop()
    observer.unregister_callback()
    (trace,) = read([path])
    assert trace.schema.startswith("1.1")
    assert trace.warnings == []  # the root is its own parent
    with pytest.raises(TraceError, match="expected those of a job on GPUs: all their tensors are on cpu"):
        graph_of([path])
    path.write_text(path.read_text().replace('"cpu"', '"cuda:0"'))  # as it would stand there
    graph, warnings = graph_of([path])
    ops = graph.ops(0)
    kernels = {graph.kernel(int(k)) for k in ops["ref"][ops["kind"] == OpKind.KERNEL]}
    gemm = next(k.gemm for k in kernels if k.name == "aten::mm")
    assert (gemm.m, gemm.n, gemm.k, gemm.batch) == (32, 32, 64, 1)
    assert not {"aten::t", "aten::matmul", "aten::transpose"} & {k.name for k in kernels}
    assert any("no duration" in text for text in warnings)


def test_fixtures_of_all_schemas():
    folder = measured("fixtures")
    found = {}
    for path in sorted(folder.glob("et_*.json.gz")):
        graph, warnings = graph_of([path])
        ops = graph.ops(int(graph.ranks[0]))
        talks = int((ops["kind"] >= OpKind.ALL_REDUCE).sum())
        found[path.name[3:8]] = (list(graph.ranks), graph.world_size, graph.iterations, talks)
        replay(graph)
        assert warnings
    assert found == {"1.0.2": ([0], 2, 1, 10), "1.1.0": ([1], 2, 3, 21), "1.1.1": ([0], 1, 2, 0)}
