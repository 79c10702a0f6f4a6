"""Exported replays say that they are none of a run, and what comes back keeps that."""

import gzip
import json
import pickle

import jobs
import pytest
from calibrate_jobs import A100, ADD, Job

from prismcore.calibrate import calibrate
from prismcore.calibrate.from_graph import samples_of_graph
from prismcore.calibrate.from_traces import samples_of_traces
from prismcore.errors import TraceError
from prismcore.exports.chakra import write_chakra
from prismcore.exports.flight_recorder import write_flight_recorder
from prismcore.exports.kineto import write_kineto
from prismcore.graph import GraphBuilder, OpFlag, OpKind, Provenance
from prismcore.graph.origin import MARK, PROVENANCE, export_mark, from_mark
from prismcore.profiles.cluster import load_cluster
from prismcore.profiles.device import load_device
from prismcore.replay import replay
from prismcore.report.expected_error import expected_error
from prismcore.report.summary import summarize
from prismcore.traces.chakra import read_chakra_set
from prismcore.traces.chakra_ops import graph_of_chakra
from prismcore.traces.flight_recorder import read_flight_records
from prismcore.traces.flight_recorder_ops import graph_of_flight_records
from prismcore.traces.kineto import read_kineto_set, stitch_kineto

MAPPED = {"device": "virtual:h100", "command": ["train.py"], "warmup_iterations": 1}


def job(sources, metadata=MAPPED, iterations=3):
    """Two ranks; kernels, copies and all-reduces of an iteration take their provenance from ``sources``."""
    builder = GraphBuilder(world_size=2)
    world = builder.communicator("world:0", range(2))
    for r in range(2):
        rank = builder.rank(r)
        for i in range(iterations):
            for number, source in enumerate(sources):
                rank.kernel(f"kernel_{number}", duration_ns=3_000, host_ns=9_000 * (3 - i), provenance=source)
                rank.copy(bytes=64 << number, duration_ns=700, host_ns=500, provenance=source)
                rank.all_reduce(
                    world, bytes=1 << 20 + number, duration_ns=5_000, host_ns=500, provenance=source
                )
            rank.sync()
            rank.mark_iteration()
    return builder.finish(metadata)


def through_kineto(graph, folder, damage=None):
    folder.mkdir()
    write_kineto(folder, graph, graph.ranks.tolist())
    if damage is not None:
        for path in folder.iterdir():
            trace = json.loads(gzip.decompress(path.read_bytes()))
            damage(trace)
            path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    return read_kineto_set(sorted(folder.iterdir()))


def through_the_flight_recorder(graph, folder):
    folder.mkdir()
    write_flight_recorder(folder, graph, graph.ranks.tolist())
    return graph_of_flight_records(read_flight_records(sorted(folder.iterdir())), load_cluster("h100-8x"))[0]


def sources_of(graph, *kinds):
    """Provenance of the ops of these kinds, in order, of each rank."""
    found = []
    for rank in graph.ranks.tolist():
        ops = [op for op in graph.ops(rank) if op["kind"] in kinds]
        found.append([Provenance(int(op["flags"]) & 3) for op in ops])
    return found


@pytest.mark.parametrize("sources", [[Provenance.MODEL], list(Provenance)], ids=["model", "each"])
def test_provenance_comes_back_op_by_op(tmp_path, sources):
    graph = job(sources)
    kinds = (OpKind.KERNEL, OpKind.COPY, OpKind.ALL_REDUCE)
    back = stitch_kineto(through_kineto(graph, tmp_path / "kineto")).graph()
    assert sources_of(back, *kinds) == sources_of(graph, *kinds)
    assert replay(back).provenance == replay(graph).provenance
    calls = through_the_flight_recorder(graph, tmp_path / "calls")
    assert sources_of(calls, OpKind.ALL_REDUCE) == sources_of(graph, OpKind.ALL_REDUCE)


def test_a_launch_of_several_is_as_sure_as_the_least_of_them(tmp_path):
    builder = GraphBuilder(world_size=2)
    world = builder.communicator("world:0", range(2))
    for r in range(2):
        rank = builder.rank(r)
        with rank.group():
            for source in (Provenance.MEASURED, Provenance.MODEL):
                rank.all_reduce(world, bytes=1 << 20, duration_ns=5_000, host_ns=500, provenance=source)
    back = stitch_kineto(through_kineto(builder.finish(), tmp_path / "kineto")).graph()
    assert sources_of(back, OpKind.ALL_REDUCE) == [[Provenance.MODEL]] * 2


def test_device_and_set_up_come_back_and_with_them_the_median(tmp_path):
    graph = job([Provenance.MODEL])
    back = stitch_kineto(through_kineto(graph, tmp_path / "kineto")).graph()
    assert back.metadata["device"] == summarize(back).device == "virtual:h100"
    assert back.metadata["exported_from"] == "collect"
    assert "measured_iteration_time_ns" not in back.metadata
    assert replay(back).first_counted == replay(graph).first_counted == 1
    assert replay(back).iteration_time_ns.tolist() == replay(graph).iteration_time_ns.tolist()
    assert expected_error(back).basis == "no measurement of kernels of virtual:h100"

    def later(trace):
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e["name"] != "ProfilerStep#0"]

    cut = stitch_kineto(through_kineto(graph, tmp_path / "cut", later)).graph()
    assert cut.iterations == 2
    assert replay(cut).first_counted == 0  # the set-up is not in it


def test_no_band_of_measured_jobs_for_an_export(tmp_path):
    """Neither for one of an import, nor for one of a run by way of two exports."""
    measured = job([Provenance.MEASURED], {"imported_from": "kineto"})
    assert expected_error(measured).points > 0
    straggler = job([Provenance.MEASURED], {"imported_from": "straggler"})
    back = stitch_kineto(through_kineto(straggler, tmp_path / "kineto")).graph()
    assert replay(back).provenance["measured"] == 1
    said = "the traces are of a replay (exported, from straggler), not of a run"
    assert (expected_error(back).points, expected_error(back).basis) == (0, said)
    again = stitch_kineto(through_kineto(back, tmp_path / "again")).graph()
    assert expected_error(again).basis == said


def drop_mark(trace):
    del trace[MARK]


def drop_sources(trace):
    for event in trace["traceEvents"]:
        event["args"].pop(PROVENANCE, None)


def garble(trace):
    trace[MARK] = {"exported_from": ["x"], "device": 7, "warmup_iterations": -1}
    for event in trace["traceEvents"]:
        if PROVENANCE in event["args"]:
            event["args"][PROVENANCE] = "certain"


@pytest.mark.parametrize(
    ("damage", "source"),
    [
        (drop_mark, Provenance.MODEL),
        (drop_sources, Provenance.UNKNOWN),
        (garble, Provenance.UNKNOWN),
    ],
)
def test_half_a_mark_is_one(tmp_path, damage, source):
    back = stitch_kineto(through_kineto(job([Provenance.MODEL]), tmp_path / "kineto", damage)).graph()
    assert {found for of_rank in sources_of(back, OpKind.KERNEL) for found in of_rank} == {source}
    assert "exported_from" in back.metadata
    assert expected_error(back).points == 0


def test_what_was_not_measured_is_not_learned_from(tmp_path):
    graph = job([Provenance.MODEL, Provenance.TABLE])
    traces = through_kineto(graph, tmp_path / "kineto")
    calls = through_the_flight_recorder(graph, tmp_path / "calls")
    exported = r"none of its durations was measured, they are a replay's \(prism export\)"
    with pytest.raises(TraceError, match=exported):
        samples_of_traces(traces)
    for back in (stitch_kineto(traces).graph(), calls):
        with pytest.raises(TraceError, match=f"^job.prism: {exported}; expected traces of a run"):
            samples_of_graph(back, "job.prism")
    with pytest.raises(TraceError, match="they are of models"):
        samples_of_graph(graph, "job.prism")


def test_what_was_measured_is_also_behind_an_export(tmp_path):
    graph = job([Provenance.MODEL, Provenance.MEASURED])
    traces = through_kineto(graph, tmp_path / "kineto")
    samples = samples_of_traces(traces)
    assert {kernel.name: len(of) for kernel, of in samples.kernels.items()} == {"kernel_1": 6}
    assert [key.bytes for key in samples.copies] == [128]
    assert [key.bytes for key in samples.collectives] == [2 << 20]
    assert not samples.host
    assert samples.warnings == [
        "18 durations that were not measured are left out",
        "the traces are of a replay (prism export), not of a run: host figures stay the base's",
    ]
    of_graph = samples_of_graph(stitch_kineto(traces).graph(), "job.prism")
    assert {kernel.name: len(of) for kernel, of in of_graph.kernels.items()} == {"kernel_1": 6}


def traced(folder, device=A100):
    made = Job(device=load_device("a100"), cluster=load_cluster("a100-8x"), late_ns=[0, 0])
    for _ in range(3):
        made.kernel(ADD, 40_000)
        made.synchronise()
    return read_kineto_set(sorted(made.write(folder, device=device).glob("*.json")))


def test_a_graph_knows_the_device_of_its_traces(tmp_path):
    traces = traced(tmp_path / "traces")
    graph = stitch_kineto(traces).graph()
    assert summarize(graph).device == A100["name"]
    assert "device" not in graph.metadata  # it is no profile's name
    assert replay(graph).provenance["measured"] == 1
    assert expected_error(graph).points > 0
    samples = samples_of_graph(graph, "job.prism")
    assert samples.device == samples_of_traces(traces).device
    assert calibrate(samples).base == "a100"

    back = stitch_kineto(through_kineto(graph, tmp_path / "back")).graph()
    assert back.metadata["traced_device"] == graph.metadata["traced_device"]
    (tmp_path / "chakra").mkdir()
    write_chakra(tmp_path / "chakra", graph, [0, 1])
    nodes = read_chakra_set(sorted((tmp_path / "chakra").glob("*.et")))
    assert summarize(graph_of_chakra(nodes, load_cluster("a100-8x"))[0]).device == A100["name"]


def test_a_device_that_is_named_alone_or_not_the_same(tmp_path):
    named = stitch_kineto(traced(tmp_path / "named", {"id": 0, "name": "Radeon"})).graph()
    assert summarize(named).device == "Radeon"
    assert samples_of_graph(named, "job.prism").device is None
    both = stitch_kineto(traced(tmp_path / "both", [A100, {**A100, "name": "NVIDIA H100"}]))
    differ = "devices that differ (NVIDIA A100-SXM4-80GB, NVIDIA H100); the graph keeps none of them"
    assert both.warnings[-1] == f"the traces are of {differ}"
    assert summarize(both.graph()).device is None


def test_marks_of_files_are_taken_with_care():
    assert from_mark(export_mark(jobs.pipeline())) == {
        "exported_from": "collect",
        "device": "virtual:h100",
        "warmup_iterations": 1,
    }
    assert from_mark(None) == from_mark("prismcore") == {}
    assert from_mark({"device": "a\nb", "warmup_iterations": True}) == {"exported_from": "graph"}
    assert from_mark({"device": "d" * 5000, "warmup_iterations": 2**40}) == {"exported_from": "graph"}


def test_entries_of_a_dump_say_it_themselves(tmp_path):
    write_flight_recorder(tmp_path, job([Provenance.TABLE]), [0, 1])
    for path in tmp_path.iterdir():
        dump = pickle.loads(path.read_bytes())
        del dump[MARK]
        path.write_bytes(pickle.dumps(dump, protocol=2))
    back, _ = graph_of_flight_records(
        read_flight_records(sorted(tmp_path.iterdir())), load_cluster("h100-8x")
    )
    assert replay(back).provenance["table"] == 1
    assert "exported_from" in back.metadata
    assert not any(int(op["flags"]) & OpFlag.GROUP_CONTINUES for op in back.ops(0))
