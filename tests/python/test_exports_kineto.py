"""Traces of torch's profiler: what events say, and the way back through ``prism import kineto``."""

import gzip
import json

import jobs
import numpy as np
import pytest

from prismcore.exports.kineto import write_kineto
from prismcore.graph import DataType, GraphBuilder, Reduction
from prismcore.profiles.cluster import cluster_text
from prismcore.replay import replay
from prismcore.traces.kineto import read_kineto_set, stitch_kineto


def written(graph, folder):
    size = write_kineto(folder, graph, graph.ranks.tolist())
    traces = {
        int(p.name[4:].split("_")[0]): json.loads(gzip.decompress(p.read_bytes())) for p in folder.iterdir()
    }
    events = {r: [e for e in t["traceEvents"] if e["ph"] == "X"] for r, t in traces.items()}
    assert size.events == sum(map(len, events.values()))
    return traces, events


def ns(event):
    begin = round(event["ts"] * 1000)
    return begin, begin + round(event["dur"] * 1000)


def data_parallel(ranks=4, *, tensor=False):
    """Uneven ranks; gradients on a stream of their own, as one all-reduce and one trio of all-gathers."""
    builder = GraphBuilder(world_size=ranks)
    world = builder.communicator("data parallel", range(ranks))
    pairs = [builder.communicator(f"tensor {p}", [2 * p, 2 * p + 1]) for p in range(ranks // 2)]
    for r in range(ranks):
        rank = builder.rank(r)
        for step in range(3):
            for layer in range(2):
                rank.kernel(f"backward_{layer}", duration_ns=9_000 + 700 * r * step, host_ns=2_500)
                if tensor:
                    rank.all_gather(pairs[r // 2], bytes=4096, duration_ns=800, host_ns=1_000)
                rank.wait(rank.record(stream=0), stream=1)
                with rank.group():
                    for _ in range(2):
                        rank.all_reduce(
                            world,
                            bytes=1 << 20,
                            duration_ns=4_000,
                            stream=1,
                            host_ns=1_500,
                            dtype=DataType.BFLOAT16,
                            reduction=Reduction.AVG,
                        )
            rank.wait(rank.record(stream=1), stream=0)
            rank.kernel("optimizer", duration_ns=5_000, host_ns=2_000)
            rank.sync(host_ns=1_000)
            rank.copy(bytes=64, duration_ns=300, host_ns=500)
            rank.mark_iteration()
    return builder.finish()


@pytest.mark.parametrize("tensor", [False, True])
def test_the_way_back_takes_the_same_time(tmp_path, tensor):
    graph = data_parallel(tensor=tensor)
    write_kineto(tmp_path, graph, graph.ranks.tolist())
    found = stitch_kineto(read_kineto_set(sorted(tmp_path.iterdir())))
    assert found.warnings == []
    back = found.graph()
    assert back.iterations == graph.iterations
    assert replay(back).iteration_time_ns.tolist() == replay(graph).iteration_time_ns.tolist()
    assert {back.communicator(c).size for c in range(back.num_communicators)} == ({4, 2} if tensor else {4})


def test_the_way_back_of_a_pipeline(tmp_path):
    graph = jobs.pipeline()
    write_kineto(tmp_path, graph, graph.ranks.tolist())
    found = stitch_kineto(read_kineto_set(sorted(tmp_path.iterdir())))
    assert found.warnings == []
    back = found.graph()
    assert replay(back).iteration_time_ns.tolist() == replay(graph).iteration_time_ns.tolist()
    kinds = [{k: n for k, n in g.statistics(1).by_kind.items() if k.is_communication} for g in (graph, back)]
    assert kinds[0] == kinds[1]


def test_grouped_messages_are_one_kernel(tmp_path):
    _, events = written(jobs.ring(), tmp_path)
    for of_rank in events.values():
        (launch,) = [e for e in of_rank if "SendRecv" in e["name"]]
        said = {key: launch["args"].get(key) for key in ("Collective name", "In msg nelems", "Src Rank")}
        assert said == {"Collective name": "coalesced", "In msg nelems": 2 << 22, "Src Rank": None}


def test_events_are_the_intervals_of_the_replay(tmp_path):
    graph = jobs.pipeline()
    result = replay(graph, timeline_ranks=[1])
    traces, events = written(graph, tmp_path)
    timeline = result.timeline
    device = timeline.stream != 65535
    expected = sorted(
        zip(
            np.where(timeline.stream == 0, timeline.start_ns, timeline.arrive_ns)[device].tolist(),
            timeline.end_ns[device].tolist(),
            timeline.stream[device].tolist(),
            strict=True,
        )
    )
    shown = [e for e in events[1] if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert sorted((*ns(e), e["args"]["stream"]) for e in shown) == expected
    calls = {e["args"]["correlation"]: e for e in events[1] if e["cat"] == "cuda_runtime"}
    for e in shown:
        call = calls[e["args"]["correlation"]]
        assert "Synchronize" not in call["name"]
        assert ns(call)[1] <= ns(e)[0]
    steps = [ns(e) for e in events[1] if e["name"].startswith("ProfilerStep#")]
    assert [s[1] for s in steps] == result.iteration_end_ns[1].tolist()  # the host waits at the end of each
    info = traces[1]["distributedInfo"]
    assert (info["rank"], info["world_size"]) == (1, 3)
    assert info["pg_config"][1]["ranks"] == [0, 1, 2]
    reduce = next(e for e in shown if "AllReduce" in e["name"])
    assert reduce["name"] == "ncclDevKernel_AllReduce_Sum_f32"
    said = {key: reduce["args"][key] for key in ("Collective name", "In msg nelems", "Group size", "dtype")}
    assert said == {
        "Collective name": "allreduce",
        "In msg nelems": 1 << 20,
        "Group size": 3,
        "dtype": "Float",
    }
    assert reduce["args"]["Process Group Ranks"] == "[0, 1, 2]"
    messages = [e["args"] for e in shown if "SendRecv" in e["name"]]
    ends = {(m["Collective name"], m["Src Rank"], m["Dst Rank"]) for m in messages}
    assert ends == {("recv", 0, 1), ("send", 1, 2)}


def test_long_groups_are_told_by_their_stride(tmp_path):
    builder = GraphBuilder(world_size=128)
    odd = builder.communicator("odd", range(1, 128, 2))
    some = builder.communicator("some", [9, 3, 5])
    rank = builder.rank(9)
    rank.all_gather(odd, bytes=64 * 64, duration_ns=10, host_ns=10)
    rank.broadcast(some, root=3, bytes=4, duration_ns=10, host_ns=10)
    rank = builder.rank(9)
    for r in (*range(1, 128, 2),):
        if r != 9:
            builder.rank(r).all_gather(odd, bytes=64 * 64, duration_ns=10, host_ns=10)
        if r in (3, 5):
            builder.rank(r).broadcast(some, root=3, bytes=4, duration_ns=10, host_ns=10)
    graph = builder.finish()
    write_kineto(tmp_path, graph, [9])
    (path,) = tmp_path.iterdir()
    trace = json.loads(gzip.decompress(path.read_bytes()))
    gather, send = (e["args"] for e in trace["traceEvents"] if e.get("cat") == "kernel")
    assert (gather["Global rank start"], gather["Global rank stride"], gather["Group size"]) == (1, 2, 64)
    assert gather["Process Group Ranks"].endswith("59, ..., 127]")
    assert (gather["In msg nelems"], gather["Out msg nelems"]) == (16, 1024)
    assert send["Process Group Ranks"] == "[9, 3, 5]"


def test_sends_that_did_not_wait_are_told(tmp_path):
    """A small message is gone before its receiver comes; an import lets it wait."""
    builder = GraphBuilder(world_size=2)
    line = builder.communicator("line", range(2))
    sender, receiver = builder.rank(0), builder.rank(1)
    for rank in (sender, receiver):
        for _ in range(8):  # these tell that the clocks are one
            rank.all_reduce(line, bytes=1 << 20, duration_ns=5_000, host_ns=1_000)
    sender.send(line, to=1, bytes=1 << 10, duration_ns=5_000, host_ns=1_000)
    sender.sync()
    sender.kernel("next", duration_ns=5_000, host_ns=1_000)
    receiver.kernel("long", duration_ns=900_000, host_ns=1_000)
    receiver.recv(line, source=0, bytes=1 << 10, duration_ns=5_000, host_ns=1_000)
    for rank in (sender, receiver):
        rank.sync()
        rank.mark_iteration()
    graph = builder.finish({"cluster": cluster_text("h100-8x")})
    write_kineto(tmp_path, graph, [0, 1])
    found = stitch_kineto(read_kineto_set(sorted(tmp_path.iterdir())))
    (said,) = [text for text in found.warnings if "sends" in text]
    assert said.startswith("1 sends ended before their receive began")
