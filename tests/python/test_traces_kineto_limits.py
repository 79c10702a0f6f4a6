"""Traces of torch's profiler with values that no job has: a typed error in one line, or work that follows
the size of the file."""

import json
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prismcore.errors import PrismError, TraceError
from prismcore.graph import OpKind
from prismcore.replay import replay
from prismcore.traces.kineto import read_kineto_set, stitch_kineto

NCCL = "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def event(category, name, ts, dur, *, tid=1, pid=1, **args):
    return {
        "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args,
    }  # fmt: skip


def launch(number, ts, name="gemm", *, stream=7, tid=1, **args):
    """A call and its kernel."""
    return [
        event("cuda_runtime", "cudaLaunchKernel", ts, 5, correlation=number, tid=tid),
        event("kernel", name, ts + 10, 20, correlation=number, device=0, stream=stream, **args),
    ]


def imported(path, events, **info):
    file = path / "rank0_trace.json"
    file.write_text(json.dumps({"distributedInfo": {"rank": 0, **info}, "traceEvents": events}))
    return stitch_kineto(read_kineto_set([file]))


def test_numbers_and_names_of_any_size(tmp_path):
    first, second = launch(2**63 + 5, 0), launch(3, 100)
    first[0] |= {"pid": "Spans", "tid": "thread 3 (main)"}
    first[1] |= {"pid": 2**70, "tid": [1, 2]}
    traces = imported(tmp_path, first + second)
    assert traces.warnings == [
        "rank 0: 1 device ops without the call that launched them; they are placed by their own begin"
    ]
    assert replay(traces.graph()).iteration_time_ns.tolist() == [130_000]


def test_worlds(tmp_path):
    with pytest.raises(TraceError, match=r"world size 1,000,000,000 found, expected ranks from 0 to"):
        imported(tmp_path, launch(1, 0), world_size=10**9)
    traces = imported(tmp_path, launch(1, 0), world_size=2**24)
    assert traces.warnings == [
        "ranks 1-16777215 (of 16,777,216) have no trace; transfers of the others may hold waiting for the "
        "missing"
    ]
    assert replay(traces.graph()).ranks.tolist() == [0]


def test_memory_follows_the_ranks_that_are_held_and_not_the_highest(tmp_path):
    program = """
import sys
from prismcore.cli.main import main

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))

assert main(["import", "kineto", "rank0.json", "-o", "near.prism", "--json"]) == 0
before = peak()
assert main(["import", "kineto", "rank16777215.json", "-o", "far.prism", "--json"]) == 0
assert main(["replay", "far.prism", "--json"]) == 0
print(peak() - before, file=sys.stderr)
"""
    for rank in (0, 2**24 - 1):
        told = {"distributedInfo": {"rank": rank, "world_size": 2**24}, "traceEvents": launch(1, 0)}
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(told))
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stderr) < 32 * 1024, f"{int(done.stderr):,} KiB more for one rank"


@pytest.mark.parametrize(
    ("members", "absent"),
    [
        ({"Group size": 2**21, "Global rank start": 0, "Global rank stride": 8}, "8,16,24,"),
        ({"Group size": 4, "Global rank start": 0, "Global rank stride": 1}, "1-3 (of 4)"),
        ({"Process Group Ranks": list(range(200_000))}, "1-199999 (of 200,000)"),
        ({"Process Group Ranks": [5, 0, 9, 8]}, "5,8-9 (of 4)"),
    ],
)
def test_members_of_communicators(tmp_path, members, absent):
    events = [
        e for n in range(20) for e in launch(n, 100 * n, NCCL, **{"Process Group Name": "1", **members})
    ]
    traces = imported(tmp_path, events)
    assert f"communicator 1: ranks {absent}" in traces.warnings[-1]
    assert len(traces.warnings[-1]) < 250
    assert traces.ops.communicators == [("1", (0,))]
    replay(traces.graph())


def test_communicators_that_cannot_be(tmp_path):
    for size, start, stride in ((10**9, 0, 1), (2, 2**62, 1), (2, 0, 2**62)):
        members = {"Group size": size, "Global rank start": start, "Global rank stride": stride}
        with pytest.raises(TraceError, match=r"a communicator of .* ranks from .* expected ranks up to"):
            imported(tmp_path, launch(1, 0, NCCL, **members))
    members = {"Group size": -3, "Global rank start": -1, "Global rank stride": 0}
    assert imported(tmp_path, launch(1, 0, NCCL, **members)).ops.communicators == [("stream 7", (0,))]


def test_many_communicators(tmp_path):
    count = 20_000
    members = {"Group size": 2, "Global rank start": 0, "Global rank stride": 1}
    events = [
        e for n in range(count) for e in launch(n, 100 * n, NCCL, **{"Process Group Name": str(n), **members})
    ]
    traces = imported(tmp_path, events)
    assert len(traces.ops.communicators) == count
    assert traces.warnings[-1] == f"{count - 10:,} more of what communicators lack, or do not agree on"
    assert len(traces.warnings) == 11
    graph = traces.graph()
    assert (graph.ops(0)["kind"] == OpKind.ALL_REDUCE).sum() == count
    assert replay(graph).iteration_time_ns.tolist() == [1000 * (100 * (count - 1) + 30)]


def test_many_threads(tmp_path):
    events = []
    for n in range(10_000):
        events += launch(n, 100 * n, NCCL, tid=f"t{n}")
        events.append(event("cpu_op", "record_param_comms", 100 * n - 1, 8, tid=f"t{n}"))
        events.append(event("cuda_runtime", "cudaStreamWaitEvent", 100 * n + 6, 1, tid=f"t{n}"))
    traces = imported(tmp_path, events)
    assert traces.warnings == []
    assert len(traces.rows.rank) == 20_001


def test_many_streams(tmp_path):
    events = [e for n in range(513) for e in launch(n, 100 * n, stream=n)]
    with pytest.raises(TraceError, match=r"device ops on 513 streams found, expected at most 512"):
        imported(tmp_path, events)


def test_steps_and_times_that_cannot_be(tmp_path):
    step = event("user_annotation", f"ProfilerStep#{'9' * 5000}", 0, 1000)
    assert imported(tmp_path, [step, *launch(1, 0)]).steps == [0]
    with pytest.raises(TraceError, match="expected ranks on clocks of one time") as error:
        imported(tmp_path, [*launch(1, -9 * 10**15), *launch(2, 9 * 10**15)])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "dims",
    [[[10**16, 10**16]], [[-5]], [[1e400]], ["x"], {}, [[None]], 3, [[]], [[[[[[2, 3]]]]]],
     json.loads("[" * 900 + "]" * 900)],
)  # fmt: skip
def test_sizes_that_cannot_be_are_not_known(tmp_path, dims):
    record = event("cpu_op", "record_param_comms", -1, 8, **{"Input Dims": dims, "Input type": dims})
    traces = imported(tmp_path, [record, *launch(1, 0, NCCL)])
    assert int(traces.ops.bytes.max()) in (0, 2, 12)  # half, as the kernel is called
    replay(traces.graph())


ODD = st.sampled_from(
    [0, 1, -1, 7, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, 0.5, 1e300, "", "7", "x", None, True, [], {}, [3]]
)
ARGUMENTS = ("correlation", "device", "stream", "bytes", "Group size", "Global rank start",
             "Global rank stride", "Process Group Name", "Process Group Ranks", "In msg nelems", "dtype",
             "Seq")  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.data())
def test_any_value_anywhere_is_an_error_or_a_graph(tmp_path, data):
    events = []
    for n in range(data.draw(st.integers(1, 4))):
        events += launch(n, 100 * n, data.draw(st.sampled_from(["gemm", NCCL])))
        for one in events[-2:]:
            for key in data.draw(st.lists(st.sampled_from(ARGUMENTS), max_size=3)):
                one["args"][key] = data.draw(ODD)
            for key in data.draw(
                st.lists(st.sampled_from(["ts", "dur", "pid", "tid", "name", "cat"]), max_size=1)
            ):
                one[key] = data.draw(ODD)
    assert "\n" not in told(tmp_path, events, data.draw(ODD))


def told(path, events, world_size):
    """The error of an import and replay; "" where it works."""
    try:
        replay(imported(path, events, world_size=world_size).graph())
    except PrismError as error:
        return str(error)
    return ""
