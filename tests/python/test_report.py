import dataclasses
import json
from pathlib import Path

import jobs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from prismcore.cli.export_ranks import lowest_of_classes
from prismcore.graph import Graph, GraphBuilder, OpKind, Provenance, RankOrigin
from prismcore.profiles.cluster import cluster_text, load_cluster
from prismcore.profiles.device import load_device
from prismcore.replay import replay
from prismcore.report import units
from prismcore.report.accuracy import uncompared
from prismcore.report.json import dumps, plain
from prismcore.report.launches import launches
from prismcore.report.replay import PARTS, class_table, sum_note
from prismcore.report.summary import summarize, summarize_rank
from prismcore.report.table import fields_table, rows_table
from prismcore.report.warnings import (
    collection_warnings,
    graph_warnings,
    iteration_warnings,
)
from prismcore.report.words import kernel_label


def text(renderable):
    console = Console(width=200, no_color=True, file=None)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


# Units.


def test_worked_values():
    assert units.format_ns(999) == "999 ns"
    assert units.format_ns(1_234_567) == "1.235 ms"
    assert units.format_ns(-2_000_000_000) == "-2.000 s"
    assert units.format_bytes(1023) == "1023 B"
    assert units.format_bytes(3 << 29) == "1.50 GiB"
    assert units.format_share(0.1234) == "12.34 %"
    assert units.format_share(0.0) == "0.00 %"
    assert units.format_share(1e-9) == "< 0.01 %"
    assert units.plural(1, "rank") == "1 rank"
    assert units.plural(8192, "rank") == "8,192 ranks"
    assert [units.format_wall(s) for s in (12.34, 0.0351, 1e-5)] == ["12.3 s", "35 ms", "under 1 ms"]


@given(st.floats(0, 1, exclude_min=True))
def test_a_share_that_is_not_zero_never_reads_as_zero(share):
    assert units.format_share(share) != "0.00 %"


@given(st.integers(0, 2**63 - 1))
def test_times_keep_their_size(ns):
    number, unit = units.format_ns(ns).split()
    scale = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert abs(float(number) * scale - ns) <= 0.0005 * scale + ns * 1e-12


# JSON.


@dataclasses.dataclass(kw_only=True, slots=True)
class Probe:
    count: int
    path: Path
    values: tuple[int, ...]
    inner: dict[int, float]


def test_dataclasses_become_json():
    probe = Probe(count=2**63 - 1, path=Path("a/b"), values=(1, 2), inner={3: 0.5})
    assert json.loads(dumps(probe)) == {
        "count": 2**63 - 1,
        "path": "a/b",
        "values": [1, 2],
        "inner": {"3": 0.5},
    }


def test_numpy_and_enums_become_plain():
    assert plain({"a": np.int64(3), "b": np.arange(2), "c": OpKind.KERNEL}) == {
        "a": 3,
        "b": [0, 1],
        "c": "KERNEL",
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_lacks_are_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        dumps({"x": value})


def test_objects_without_a_json_form_are_refused():
    with pytest.raises(TypeError, match="object has no JSON form"):
        dumps({"x": object()})


# Tables.


def test_tables_show_every_cell_in_the_unit_of_the_head():
    rows = [(0, 2048, 200 << 20, "a[b]"), (10, 0, 512, "[red]c")]  # markup of foreign names stays text
    shown = text(rows_table("title", ("rank", "peak_bytes", "sent_bytes", "name"), rows)).splitlines()
    assert [line.split() for line in shown] == [
        ["title"],
        ["rank", "peak", "sent", "name"],
        ["B", "MiB"],
        ["\u2500" * len(shown[3].strip())],
        ["0", "2,048", "200.00", "a[b]"],
        ["10", "0", "0.00", "[red]c"],
    ]
    assert "time  1.500 us" in text(fields_table("title", {"time_ns": 1500}))


@given(st.integers(0, 2**63 - 1), st.sampled_from(["x_ns", "x_bytes"]))
def test_a_column_of_one_unit_keeps_digits(largest, name):
    scale, unit = units.column_scale(name, largest)
    assert unit
    assert scale == 1 or largest / scale >= 10


def test_a_table_without_rows():
    assert text(rows_table("title", ("rank", "peak_bytes"), [])).split() == [
        *("title", "rank", "peak", "B"),
        "\u2500" * 10,
    ]


# Names of kernels.


@pytest.mark.parametrize(
    ("name", "label"),
    [
        (jobs.ADD, "vectorized_elementwise_kernel<CUDAFunctor_add>"),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_13BUnaryFunctorIfffNS0_15binary_internal"
            "10MulFunctorIfEEEESt5arrayIPcLm2EELb0EEEviT0_T1_",
            "vectorized_elementwise_kernel<MulFunctor>",
        ),
        (
            "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIffffEEjfLi4ELi4EEEEEvT1_",
            "reduce_kernel<MeanOps>",
        ),
        ("_ZN2at6native24vectorized_gather_kernelILi16ElEEvPcS2_PT0_illllb", "vectorized_gather_kernel"),
        ("nvjet_tst_128x256", "nvjet_tst_128x256"),
        ("_Z99999999999999999999x", "_Z99999999999999999999x"),
        ("", ""),
    ],
)
def test_kernels_are_called_by_what_they_apply(name, label):
    assert kernel_label(name) == label


@given(st.text(max_size=80))
def test_any_name_has_a_label(name):
    assert kernel_label(f"_Z{name}") is not None
    assert (kernel_label(name) == "") == (name == "")


# Summaries.


def test_summary_counts_by_hand():
    graph = jobs.pipeline(stages=4, micro_batches=2, iterations=2)
    summary = summarize(graph)
    expanded = [graph.ops(r) for r in range(4)]
    assert summary.ops == sum(map(len, expanded))
    assert (summary.world_size, summary.classes, summary.communicators) == (4, 3, 2)
    assert (summary.ranks_run, summary.ranks_checked, summary.ranks_inferred) == (4, 0, 0)
    assert (summary.iterations, summary.device) == (2, "virtual:h100")
    assert summary.digest != summary.communication_digest
    device = {
        p: sum(
            int(o["duration_ns"])
            for ops in expanded
            for o in ops
            if (o["kind"] in (1, 2, 3) or o["kind"] >= 32) and o["flags"] & 3 == p
        )
        for p in Provenance
    }
    whole = sum(device.values())
    assert summary.provenance == {p.name.lower(): device[p] / whole for p in Provenance}
    assert summary.provenance["unknown"] > 0


def test_rank_summary_by_hand():
    graph = jobs.pipeline(stages=3, micro_batches=2, iterations=2)
    middle = summarize_rank(graph, 1)
    assert middle.collectives == 2
    assert middle.bytes_sent == 2 * (2 * (1 << 20) + (4 << 20))
    assert middle.to_json() == {
        "class": graph.rank(1).rank_class,
        "inferred": False,
        "ops": len(graph.ops(1)),
        "collectives": 2,
        "bytes_sent": middle.bytes_sent,
        "peak_requested_bytes": 100,
        "peak_allocated_bytes": 512,
        "peak_reserved_bytes": 2048,
        "peak_device_bytes": 4096,
    }


def test_ranks_that_differ_in_call_sites_alone_are_one_class_everywhere():
    """Two ranks in six do other work; every rank has its own call site, or all have the same."""

    def job(own):
        builder = GraphBuilder(world_size=6)
        world = builder.communicator("world", range(6))
        for r in range(6):
            rank = builder.rank(r)
            rank.kernel(jobs.ADD, duration_ns=100 + r // 4, provenance=Provenance.UNKNOWN)
            rank.wait(rank.record(stream=0), stream=1)
            site = f"train.py:{10 + r * own}"
            rank.all_reduce(world, bytes=8, duration_ns=5, call_site=site, stream=1)
            rank.sync(stream=1)
            rank.mark_iteration()
        return builder.finish()

    graph, shared = job(own=True), job(own=False)
    assert (graph.num_programs, shared.num_programs) == (6, 2)
    assert graph.rank_classes == [0, 4]
    assert [graph.rank(r).rank_class for r in range(6)] == [0, 0, 0, 0, 4, 4]
    summary = summarize(graph)
    assert summary.classes == 2
    assert dataclasses.replace(summary, file_bytes=0) == dataclasses.replace(summarize(shared), file_bytes=0)
    assert [summarize_rank(graph, r).rank_class for r in (3, 5)] == [0, 4]
    assert lowest_of_classes(graph) == lowest_of_classes(shared) == [0, 4]
    assert launches(graph).unknown == launches(shared).unknown
    assert launches(graph).unknown.total() == 6
    result = replay(graph)
    assert result.to_json() == {**replay(shared).to_json(), "wall_time_s": result.to_json()["wall_time_s"]}
    rows = [line.split()[:3] for line in text(class_table(graph, result, 8)).splitlines()]
    assert rows[-2:] == [["4", "2", "4"], ["0", "4", "0"]]  # class, ranks, the rank that waits least


def test_inferred_and_checked_ranks_are_counted():
    one = jobs.pipeline(stages=4)
    builder = jobs.GraphBuilder(world_size=4)
    line = builder.communicator("PIPELINE_MODEL_PARALLEL_GROUP:1", range(4))
    world = builder.communicator("default_pg:0", range(4))
    parts = jobs.single_ranks(one)
    builder.merge(parts[0])
    builder.merge(parts[1], RankOrigin.CHECKED)
    builder.merge(parts[3])
    builder.infer(2, 1, [(line, 2), (world, 2)])
    summary = summarize(builder.finish())
    assert (summary.ranks_run, summary.ranks_checked, summary.ranks_inferred) == (3, 1, 1)
    assert summary.device is None
    assert summary.spread is None


def test_unknown_kernels_are_counted_and_named():
    graph = jobs.pipeline(stages=3, micro_batches=4, iterations=3)
    assert launches(graph).unknown == {"vectorized_elementwise_kernel": 3 * 4 * 3}
    (warning,) = graph_warnings(graph)
    assert "36 kernel launches" in warning
    assert "vectorized_elementwise_kernel (36)" in warning


def test_warnings_of_the_collection_are_passed_on():
    graph = jobs.ring()
    assert graph_warnings(graph) == []
    noted = Graph.from_bytes(graph.to_bytes())
    metadata = {"unimplemented": {"cudaFoo": 3}, "notes": ["something odd"], "partial": True}
    noted = jobs.with_metadata(noted, metadata)
    assert graph_warnings(noted) == [
        "calls that the virtual GPU does not implement: cudaFoo (3)",
        "the graph is partial: it holds 4 of 4 ranks",
        "something odd",
    ]


# What no measurement backs.


def two_nodes(provenance=Provenance.MODEL, **metadata):
    """Two ranks on two nodes of h100-8x (0 and 8), and two on one (0 and 1)."""
    builder = GraphBuilder(world_size=16)
    pairs = [builder.communicator("far:0", [0, 8]), builder.communicator("near:1", [0, 1])]
    for r, mine in ((0, pairs), (8, pairs[:1]), (1, pairs[1:])):
        rank = builder.rank(r)
        rank.kernel("gemm", duration_ns=1000, provenance=provenance)
        for pair in mine:
            rank.all_reduce(pair, bytes=4, duration_ns=10, provenance=provenance)
    return builder.finish(metadata)


def test_models_without_comparison_are_named():
    text = cluster_text("h100-8x")
    assert uncompared(two_nodes(device="virtual:h100", cluster=text)) == [
        "kernels of virtual:h100",
        "communication between nodes of h100-8x",
    ]
    assert uncompared(two_nodes(device="a100", cluster=text)) == ["communication between nodes of h100-8x"]
    assert uncompared(two_nodes(device="gone.toml")) == ["kernels of gone.toml"]  # it cannot say so any more


def test_a_replay_on_other_profiles_names_those():
    graph = two_nodes(device="virtual:a100")
    assert uncompared(graph) == []
    assert uncompared(graph, device=load_device("b200")) == [f"kernels of {load_device('b200').name}"]
    cluster = load_cluster("a100-8x")
    assert uncompared(graph, cluster=cluster) == ["communication between nodes of a100-8x"]
    cluster.one_node.compared_with = None
    assert uncompared(graph, cluster=cluster) == [
        "communication on a node of a100-8x",
        "communication between nodes of a100-8x",
    ]


def test_measured_and_synthetic_graphs_need_no_comparison():
    assert uncompared(two_nodes(Provenance.MEASURED, device="virtual:h100")) == []
    assert uncompared(two_nodes()) == []


@pytest.mark.parametrize("late", [0, 1_000_000])
def test_the_sum_of_parts_is_explained_where_it_is_not_the_iteration_time(late):
    """Rank 1 ends its first iteration `late` ns early and starts the second there."""
    builder = GraphBuilder(world_size=2)
    world = builder.communicator("world", range(2))
    for r in range(2):
        rank = builder.rank(r)
        rank.kernel("k", duration_ns=5_000_000 - r * late)
        rank.sync()
        rank.mark_iteration()
        rank.all_reduce(world, bytes=4, duration_ns=1_000_000)
        rank.sync()
        rank.mark_iteration()
    result = replay(builder.finish({"warmup_iterations": 1}))
    assert result.iteration_time_ns.tolist() == [5_000_000, 1_000_000]
    whole = sum(getattr(result.split, key) for key, _ in PARTS)
    assert whole == 1_000_000 + late / 2
    note = sum_note(result)
    assert bool(note) == bool(late)
    if late:
        assert "mean 1.500 ms" in note
        assert "median 1.000 ms" in note


@pytest.mark.parametrize(
    ("host_ns", "told"),
    [
        ([90_000, 0, 0], None),  # the first is set-up
        ([90_000, 300_000, 0], "iteration 2 takes 1.300 ms, iteration 3 1.000 ms"),
        ([90_000, 300_000, 0, 0], None),  # the median is of the two that are alike
        ([90_000, 0, 900_000, 200_000, 0, 400_000], "iteration 3 takes 1.900 ms, iteration 2 1.000 ms"),
        ([90_000, 40_000, 0], None),  # 4 %
        ([0, 300_000], None),
    ],
)
def test_iterations_that_differ_are_named(host_ns, told):
    builder = GraphBuilder(2)
    world = builder.communicator("world", range(2))
    for r in range(2):
        rank = builder.rank(r)
        for ns in host_ns:
            rank.host_gap(ns)
            rank.kernel("k", duration_ns=900_000)
            rank.all_reduce(world, bytes=8, duration_ns=100_000)
            rank.sync()
            rank.mark_iteration()
    graph = builder.finish({"warmup_iterations": 1})
    found = collection_warnings(graph)
    assert found == iteration_warnings(replay(graph))
    if told is None:
        assert found == []
        return
    (warning,) = found
    assert told in warning
    assert "above all in waiting for the host" in warning
    assert "--iterations N" in warning


def test_ranks_that_cannot_run_together_are_a_warning_of_the_collection():
    (warning,) = collection_warnings(jobs.mismatch())
    assert warning.startswith("the ranks of this graph cannot run together")
    assert "with different sizes: rank 0 op 0" in warning
    (warning,) = collection_warnings(jobs.deadlock())
    assert "deadlock: 2 of 2 ranks cannot go on" in warning
    partial = jobs.with_metadata(jobs.mismatch(), {"partial": True})
    assert collection_warnings(partial) == []


def test_exact_times_are_what_the_command_line_takes():
    from prismcore.cli.parsing import time_ns
    from prismcore.units import format_exact_ns

    for ns, told in ((0, "0ns"), (7, "7ns"), (1_500_000, "1500us"), (100 * 10**9, "100s")):
        assert format_exact_ns(ns) == told
        assert time_ns(told) == ns


def talk_alone():
    builder = GraphBuilder(world_size=1)
    rank = builder.rank(0)
    rank.all_reduce(builder.communicator("default_pg:0", [0]), bytes=8, duration_ns=5)
    rank.mark_iteration()
    return builder.finish()


def untimed(kernel_ns=0, talk_ns=0):
    """Two kernels of which one has no duration where ``kernel_ns`` is above 0, else both; an all-reduce."""
    builder = GraphBuilder(world_size=2)
    world = builder.communicator("default_pg:0", range(2))
    for number in range(2):
        rank = builder.rank(number)
        rank.kernel("first", duration_ns=kernel_ns, provenance=Provenance.MEASURED if kernel_ns else UNKNOWN)
        rank.kernel("second", duration_ns=0, provenance=UNKNOWN)
        rank.all_reduce(world, bytes=8, duration_ns=talk_ns, provenance=Provenance.MODEL)
        rank.mark_iteration()
    metadata = {"imported_from": "pytorch-et", "modelled_communication": 2, "modelled_by": "h100-8x"}
    return jobs.with_metadata(builder.finish(), metadata)


UNKNOWN = Provenance.UNKNOWN


def test_launches_without_a_duration_are_told_beside_times_and_shares():
    none, some = launches(untimed(talk_ns=5)), launches(untimed(kernel_ns=7, talk_ns=5))
    assert (none.count, none.untimed, some.untimed) == (4, 4, 2)
    assert none.time_words(5, "5 ns") == (
        "5 ns: communication alone, none of 4 launches on the device has a duration"
    )
    assert none.time_words(0, "0 ns") == "not known: none of 4 launches on the device has a duration"
    assert some.time_words(12, "12 ns") == "12 ns: 2 of 4 launches on the device have no duration"
    assert some.provenance_words(imported=True) == "; 2 of 4 launches on the device have no duration"
    whole = launches(jobs.pipeline())
    assert whole.untimed == 0
    assert whole.time_words(0, "0 ns") == "0 ns"
    assert launches(talk_alone()).provenance_words(imported=True) == "; the traces hold no kernels"


def test_what_to_do_about_launches_without_a_duration_follows_from_the_profile_given():
    graph = untimed(talk_ns=5)
    first, second = graph_warnings(graph)
    assert first.startswith("4 of 4 launches on the device have no duration in the traces and count as 0")
    assert "--profile" in first
    assert "--kineto" in first
    assert "timing table" not in first
    assert "2 communication ops" in second
    assert "h100-8x" in second
    a100 = load_device("a100")
    (told,) = graph_warnings(graph, device=a100, cluster=load_cluster("a100-8x"))
    assert told.startswith("4 of 4 kernel launches are not known to this profile")
    assert launches(graph, a100).untimed == 0
    assert "4 of 4" in launches(graph, a100).provenance_words(imported=True)
    (nothing,) = graph_warnings(talk_alone(), device=a100)
    assert "--profile" in nothing
    assert "changes nothing" in nothing
