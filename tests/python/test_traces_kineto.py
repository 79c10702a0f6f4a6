"""Traces of torch's profiler as graphs: against jobs on paper, real traces, and files that are damaged."""

import gzip
import json
import tarfile

import kineto_jobs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from measurements import measured

from prismcore.cli.main import main
from prismcore.errors import TraceError
from prismcore.graph import Graph, OpKind
from prismcore.replay import Perturbation, SlowRank, replay
from prismcore.traces.kineto import read_kineto_set, stitch_kineto
from prismcore.traces.kineto_file import read_kineto
from prismcore.traces.kineto_ops import collective_kind

times = st.integers(min_value=1, max_value=400).map(lambda n: n * 1000 + n % 7)


@st.composite
def jobs(draw):
    """Ranks that all-reduce behind some layers; every kernel behind one waits for it."""
    ranks, steps, layers = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    reduces = [[draw(st.none() | times) for _ in range(layers)] for _ in range(steps)]
    syncs = [[draw(st.booleans()) for _ in range(layers)] for _ in range(steps)]
    return [
        kineto_jobs.Rank(
            late=draw(times) if rank else 0,
            steps=[
                [
                    kineto_jobs.Layer(
                        gap=draw(times), call=draw(times) // 50, kernel=draw(times),
                        reduce=reduces[step][layer], sync=syncs[step][layer],
                    )
                    for layer in range(layers)
                ]
                for step in range(steps)
            ],
        )
        for rank in range(ranks)
    ]  # fmt: skip


def imported(folder, ranks, **how):
    return stitch_kineto(read_kineto_set(kineto_jobs.write(folder, ranks, **how)))


@settings(max_examples=40, deadline=None)
@given(ranks=jobs())
def test_a_replay_ends_steps_and_collectives_where_they_were_measured(tmp_path_factory, ranks):
    kineto_jobs.run(ranks)
    traces = imported(tmp_path_factory.mktemp("job"), ranks, clock_ns=1_706_850_122_846_038_000)
    graph = traces.graph()
    result = replay(graph, timeline_ranks=graph.ranks)
    assert result.iteration_end_ns.tolist() == [rank.marks for rank in ranks]
    assert traces.measured_end_ns.tolist() == [rank.marks for rank in ranks]
    timeline = result.timeline
    for number, rank in enumerate(ranks):
        measured = sorted(
            (e["ts"], e["ts"] + e["dur"]) for e in rank.events if e["cat"] == "kernel" and "nccl" in e["name"]
        )
        chosen = (timeline.rank == number) & (timeline.start_ns < timeline.end_ns)
        found = set(zip(timeline.arrive_ns[chosen].tolist(), timeline.end_ns[chosen].tolist(), strict=True))
        assert set(measured) <= found


@settings(max_examples=25, deadline=None)
@given(ranks=jobs(), factor=st.integers(2, 5))
def test_a_rank_with_slower_kernels_is_what_the_job_would_be(tmp_path_factory, ranks, factor):
    """Waiting is found anew, not replayed as it was measured."""
    for rank in ranks:  # every kernel is followed by an all-reduce: nothing else shows who waits for it
        for step in rank.steps:
            for layer, first in zip(step, ranks[0].steps[0], strict=True):
                layer.reduce, layer.sync = first.reduce or 5000, False
    kineto_jobs.run(ranks)
    graph = imported(tmp_path_factory.mktemp("job"), ranks).graph()
    slow = len(ranks) - 1
    result = replay(graph, perturbation=Perturbation(slow_ranks=[SlowRank(rank=slow, factor=factor)]))
    kineto_jobs.run(ranks, factors=[factor if rank == slow else 1 for rank in range(len(ranks))])
    assert result.iteration_end_ns.tolist() == [rank.marks for rank in ranks]


def job_of(count=3, layers=6):
    return [
        kineto_jobs.Rank(
            late=1000 * rank,
            steps=[
                [
                    kineto_jobs.Layer(gap=3000 + 500 * rank, call=500, kernel=20_000 + 1000 * i, reduce=9000)
                    for i in range(layers)
                ]
            ] * 2,
        )
        for rank in range(count)
    ]  # fmt: skip


def test_clocks_that_differ_become_one(tmp_path):
    ranks = job_of()
    kineto_jobs.run(ranks)
    traces = imported(tmp_path, ranks, offsets=[0, 3_000_000_000, -7_000_000])
    assert any("clocks of ranks 1-2" in text for text in traces.warnings)
    ends = replay(traces.graph()).iteration_end_ns
    marks = np.array([rank.marks for rank in ranks])
    assert (np.diff(ends, axis=1) == np.diff(marks, axis=1)).all()


def test_missing_ranks_are_told_and_left_out(tmp_path):
    ranks = job_of(4)
    kineto_jobs.run(ranks)
    paths = kineto_jobs.write(tmp_path, ranks)
    traces = stitch_kineto(read_kineto_set([paths[0], paths[3]]))
    assert any("ranks 1-2 (of 4) have no trace" in text for text in traces.warnings)
    graph = traces.graph()
    assert (graph.world_size, list(graph.ranks)) == (4, [0, 3])
    assert replay(graph).iteration_end_ns.tolist() == [ranks[0].marks, ranks[3].marks]


def test_members_that_did_not_do_the_same_are_told(tmp_path):
    ranks = job_of(2)
    kineto_jobs.run(ranks)
    for number, rank in enumerate(ranks):
        for event in rank.events:
            if "nccl" in event["name"]:
                event["args"] |= {"Process Group Name": "7", "Group size": 2, "Process Group Ranks": "[0, 1]"}
                if number == 1 and event["ts"] > 100_000:
                    event["name"] = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)"
    traces = imported(tmp_path, ranks)
    assert any(text.startswith("communicator 7: its members did not do the same") for text in traces.warnings)
    assert replay(traces.graph()).iteration_time_ns.min() > 0


def test_a_step_that_a_trace_lacks_is_left_out(tmp_path):
    ranks = job_of(2)
    kineto_jobs.run(ranks)
    ranks[1].events = [e for e in ranks[1].events if e["name"] != "ProfilerStep#3"]
    traces = imported(tmp_path, ranks)
    assert traces.steps == [2]
    assert any("steps 3 are not in all traces" in text for text in traces.warnings)


def test_a_graph_launch_brings_all_its_kernels_and_orphans_stay(tmp_path):
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": 10, "dur": 5, "tid": 1,
            "args": {"correlation": 4}}  # fmt: skip
    kernels = [
        {"ph": "X", "cat": "kernel", "name": "k", "ts": 20 + 10 * i, "dur": 8, "tid": 7,
         "args": {"correlation": 4, "device": 0, "stream": 7}} for i in range(3)
    ]  # fmt: skip
    orphan = {"ph": "X", "cat": "Kernel", "name": "lost", "ts": 60, "dur": 5, "args": {"stream": 7}}
    driver = {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernelEx", "ts": 70, "dur": 2,
              "args": {"correlation": 5}}  # fmt: skip
    last = {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "ts": 80,
        "dur": 2,
        "args": {"correlation": 5, "stream": 7},
    }
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([call, *kernels, orphan, driver, last]))
    traces = stitch_kineto(read_kineto_set([path]))
    assert any("1 device ops without the call" in text for text in traces.warnings)
    graph = traces.graph()
    assert int((graph.ops(0)["kind"] == OpKind.KERNEL).sum()) == 5
    assert replay(graph).iteration_time_ns.tolist() == [72_000]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", OpKind.ALL_REDUCE),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", OpKind.ALL_REDUCE),
        ("ncclDevKernel_AllReduce_Sum_f16_TREE_LL(ncclDevKernelArgsStorage<4096ul>)", OpKind.ALL_REDUCE),
        ("ncclKernel_ReduceScatter_RING_SIMPLE_Sum_float(ncclDevComm*)", OpKind.REDUCE_SCATTER),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", OpKind.ALL_GATHER),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*)", OpKind.BROADCAST),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevComm*)", OpKind.REDUCE),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)", OpKind.ALL_TO_ALL),
        ("ncclDevKernel_Generic_4(ncclDevComm*)", OpKind.KERNEL),
        ("void at::native::reduce_kernel<512, 1>", None),
        ("gemm_nccl_like", None),
    ],
)
def test_names_of_nccl_kernels(name, kind):
    assert collective_kind(name) == kind


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ('{"traceEvents": [', "cut off"),
        ('{"traceEvents": []}', "no kernels, copies or steps"),
        ('{"a": 1}', "no traceEvents"),
        (
            '[{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 1, "dur": 5}]',
            "GPU activity",
        ),
        ('[{"ph": "X", "name": "a", "ts": 9e15, "dur": 9e15}]', "beyond 2^63"),
        ('{"distributedInfo": {"rank": 99999999999}, "traceEvents": []}', "rank 99,999,999,999"),
        ('{"distributedInfo": {"rank": 5, "world_size": 2}, "traceEvents": []}', "rank 5 of world size 2"),
    ],
)
def test_files_that_cannot_be_are_one_line(tmp_path, text, said):
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=said.replace("^", r"\^")) as error:
        stitch_kineto(read_kineto_set([path]))
    assert "\n" not in str(error.value)
    assert "trace.json" in str(error.value)


def test_ranks_are_told_apart(tmp_path):
    ranks = job_of(2)
    kineto_jobs.run(ranks)
    first, second = kineto_jobs.write(tmp_path, ranks)
    with pytest.raises(TraceError, match=r"rank 0 found, which .* is as well"):
        read_kineto_set([first, first])
    bare = json.loads(second.read_text())["traceEvents"]
    for name, rank in (("worker12_step_3.json", 12), ("kineto_rank_5.json.gz", 5)):
        path = tmp_path / name
        opener = gzip.open if name.endswith("gz") else open
        with opener(path, "wt") as file:
            json.dump(bare, file)
        assert read_kineto(path).rank == rank
    unnamed = tmp_path / "b.json"
    unnamed.write_text(json.dumps(bare))
    with pytest.raises(TraceError, match="the rank is not told"):
        read_kineto_set([first, unnamed])


def test_the_command(tmp_path, capsys):
    ranks = job_of(2)
    kineto_jobs.run(ranks)
    kineto_jobs.write(tmp_path, ranks)
    assert main(["import", "kineto", str(tmp_path), "-o", str(tmp_path / "job.prism"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["ranks"], report["iterations"], report["provenance"]["measured"]) == (2, 2, 1.0)
    graph = Graph.open(tmp_path / "job.prism")
    measured = graph.metadata["measured_iteration_time_ns"]
    assert replay(graph).iteration_time_ns.tolist() == measured
    assert main(["check", str(tmp_path / "job.prism")]) == 0
    (tmp_path / "empty").mkdir()
    assert main(["import", "kineto", str(tmp_path / "empty"), "-o", str(tmp_path / "x.prism")]) == 1
    assert "no *.json" in capsys.readouterr().err


def test_a_folder_may_hold_other_files(tmp_path, capsys):
    ranks = job_of(2)
    kineto_jobs.run(ranks)
    kineto_jobs.write(tmp_path, ranks)
    (tmp_path / "et_rank0.json").write_text('{"schema": "1.0.1", "nodes": []}')
    args = ["import", "kineto", str(tmp_path), "-o", str(tmp_path / "job.prism"), "--json"]
    assert main(args) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ranks"] == 2
    assert any("et_rank0.json in the folder are no traces" in text for text in report["warnings"])
    args[2:3] = [str(tmp_path / "et_rank0.json")]  # asked for by name
    assert main(args) == 1
    assert "et_rank0.json: a PyTorch execution trace found" in capsys.readouterr().err
    for path in tmp_path.glob("rank*"):
        path.unlink()
    assert main(["import", "kineto", str(tmp_path), "-o", str(tmp_path / "x.prism")]) == 1
    assert "et_rank0.json: a PyTorch execution trace found" in capsys.readouterr().err


def test_an_archive_is_read_as_a_folder_is(tmp_path):
    ranks = job_of(2)
    kineto_jobs.run(ranks)
    files = kineto_jobs.write(tmp_path, ranks)
    with tarfile.open(tmp_path / "job.tgz", "w:gz") as archive:
        for path in files:
            archive.add(path, f"traces/{path.name}")
            archive.add(path, f"traces/._{path.name}")
    whole = stitch_kineto(read_kineto_set(files)).graph()
    assert stitch_kineto(read_kineto_set([tmp_path / "job.tgz"])).graph().digest() == whole.digest()
    cut = tmp_path / "cut.tgz"
    cut.write_bytes((tmp_path / "job.tgz").read_bytes()[:-300])
    with pytest.raises(TraceError, match=r"cut\.tgz: cannot be read"):
        read_kineto_set([cut])
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        files[0].write_text(files[0].read_text()[:-9])
        archive.add(files[0], "rank0.json")
    with pytest.raises(TraceError, match=r"bad\.tar: rank0\.json: "):
        read_kineto_set([tmp_path / "bad.tar"])


def test_a_trace_without_a_gpu_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "rank0.json"
    info = {"distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 1}, "deviceProperties": []}
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 0, "tid": 1, "ts": 1, "dur": 2}
    path.write_text(json.dumps({**info, "traceEvents": [event]}))
    with pytest.raises(TraceError, match=r"saw no GPU .*, and the job's backend was gloo"):
        stitch_kineto(read_kineto_set([path]))


def test_megatron_tp8_replays_as_measured():
    traces = stitch_kineto(read_kineto_set(sorted(measured("megatron_tp8").glob("kineto_*"))))
    assert traces.warnings == []
    assert sorted(np.unique(traces.meetings.size, return_counts=True)[1].tolist())[0] == 8 * 84
    graph = traces.graph()
    result = replay(graph)
    np.testing.assert_allclose(result.iteration_end_ns, traces.measured_end_ns, rtol=1e-3)
    all_reduces = graph.ops(0)[graph.ops(0)["kind"] == OpKind.ALL_REDUCE]
    assert len(all_reduces) == 84
    assert int(np.median(all_reduces["bytes"])) == 64 << 20
    assert 45e6 < all_reduces["duration_ns"].sum() < 52e6  # README of the data: 50.1 ms of transfer


def test_dlrm_replays_as_measured(tmp_path):
    with tarfile.open(measured("dlrm_8") / "dlrm_kineto.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    traces = stitch_kineto(read_kineto_set(sorted((tmp_path / "dlrm_kineto").glob("worker*.json"))))
    result = replay(traces.graph())
    np.testing.assert_allclose(result.iteration_end_ns, traces.measured_end_ns, rtol=1e-2)
    assert int((traces.meetings.size == 8).sum()) == 8 * 8


def test_new_metadata_names_communicators():
    traces = stitch_kineto(read_kineto_set([measured("fixtures") / "hta_nccl_data.json.gz"]))
    assert traces.ops.communicators == [("0", (0,))]
    assert any("rank 1 (of 2) has no trace, left out" in text for text in traces.warnings)
    result = replay(traces.graph())
    assert [round(ns / 1e6, 1) for ns in result.iteration_time_ns.tolist()] == [222.4, 219.8, 225.0]
