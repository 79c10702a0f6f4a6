"""PyTorch execution traces beside Kineto traces of the same run: small ones on paper, and public ones."""

import json

import numpy as np
import pytest
from execution_trace_jobs import Trace, kineto, kineto_beside, read, two_ranks
from measurements import measured

from prismcore.errors import TraceError
from prismcore.graph import OpKind
from prismcore.replay import replay
from prismcore.traces.execution_trace_groups import place_ranks
from prismcore.traces.execution_trace_link import link, matched_calls
from prismcore.traces.kineto import read_kineto_set, stitch_kineto


@pytest.mark.parametrize("index", [1, 17, None])
def test_with_kineto_times_are_measured_and_collectives_named(tmp_path, index):
    paths = two_ranks(tmp_path)
    files = [kineto_beside(tmp_path, rank, index=index, late=5 * rank) for rank in range(2)]
    of = read_kineto_set(files)
    assert link(read(paths), of) == []
    traces = stitch_kineto(of)
    assert traces.ops.communicators == [("group 0", (0, 1))]
    collectives = traces.ops.kind == OpKind.ALL_REDUCE
    assert traces.ops.bytes[collectives].tolist() == [4 << 20, 4 << 10] * 2
    result = replay(traces.graph())
    assert result.iteration_end_ns.tolist() == traces.measured_end_ns.tolist()
    assert result.provenance["measured"] == 1


def test_with_kineto_messages_have_two_sides_and_types(tmp_path):
    """Kineto of torch before 2.3 says of a message no more than that something is sent or received."""
    paths, files = [], []
    for rank, name in enumerate(("send", "recv")):
        trace = Trace("1.1.0-chakra.0.0.4")
        trace.groups({"pg_name": "3", "pg_desc": "pp", "ranks": [0, 1], "group_size": 2})
        events, at = [], 100 + 30 * rank
        for number, elements in ((1, 1 << 20), (2, 1 << 10)):
            trace.call(name, number, ["3", "pp"], 1 - rank, elements=elements)
            args = {"Ev Idx": trace.records - 1 + 5, "Input type": ["TensorList"]}
            events.append(("cpu_op", "record_param_comms", at, at + 40, 500, args))
            mine = {"correlation": number, "device": 0, "stream": 24}
            events.append(("cuda_runtime", "cudaLaunchKernel", at + 5, at + 10, 500, mine))
            events.append(("kernel", "ncclDevKernel_SendRecv", at + 10, 200 * number + 100, 24, mine))
            at += 200
        paths.append(trace.write(tmp_path / f"et_rank{rank}.json"))
        files.append(kineto(tmp_path / f"kineto_rank{rank}.json", rank, events))
    of = read_kineto_set(files)
    assert link(read(paths), of) == []
    traces = stitch_kineto(of)
    assert traces.warnings == []
    graph = traces.graph()
    for rank, kind in enumerate((OpKind.SEND, OpKind.RECV)):
        ops = graph.ops(rank)
        ops = ops[ops["kind"] >= OpKind.ALL_REDUCE]
        assert ops["kind"].tolist() == [kind, kind]
        assert ops["bytes"].tolist() == [4 << 20, 4 << 10]
    assert replay(graph).iteration_end_ns.tolist() == traces.measured_end_ns.tolist()


def test_calls_outside_the_kineto_trace_are_told(tmp_path):
    paths = two_ranks(tmp_path)
    files = [kineto_beside(tmp_path, rank, index=None) for rank in range(2)]
    cut = json.loads(files[1].read_text())
    cut["traceEvents"] = [e for e in cut["traceEvents"] if e["cat"] != "cpu_op" or e["ts"] < 350]
    files[1].write_text(json.dumps(cut))
    assert any(
        "1 of 2 calls of torch.distributed" in text for text in link(read(paths), read_kineto_set(files))
    )


def test_ranks_with_one_of_both_are_told(tmp_path):
    paths = two_ranks(tmp_path)
    files = [kineto_beside(tmp_path, rank) for rank in range(2)]
    warnings = link(read(paths[:1]), read_kineto_set(files))
    assert any("ranks 1 have a Kineto trace and no execution trace" in text for text in warnings)
    warnings = link(read(paths), read_kineto_set(files[:1]))
    assert any("ranks 1 have an execution trace and no Kineto trace" in text for text in warnings)
    with pytest.raises(TraceError, match="no rank has both"):
        link(read(paths[:1]), read_kineto_set(files[1:]))


def test_megatron_linked_with_kineto():
    traces = read(sorted(measured("megatron_tp8").glob("et_*")))
    of = read_kineto_set(sorted(measured("megatron_tp8").glob("kineto_*")))
    assert link(traces, of) == []
    assert {len(matched_calls(t, k)) for t, k in zip(place_ranks(traces), of, strict=True)} == {170}
    stitched = stitch_kineto(of)
    collectives = stitched.ops.kind == OpKind.ALL_REDUCE
    sizes, counts = np.unique(stitched.ops.bytes[collectives], return_counts=True)
    assert dict(zip(sizes.tolist(), counts.tolist(), strict=True)) == {32768: 3 * 8, 64 << 20: 81 * 8}
    assert stitched.ops.communicators == [("group 0", tuple(range(8)))]
    result = replay(stitched.graph())
    assert result.iteration_end_ns.tolist() == stitched.measured_end_ns.tolist()


def test_dlrm_linked_by_thread():
    traces = read([measured("dlrm_8") / "dlrm_pytorch_et.tar.gz"])
    of = read_kineto_set([measured("dlrm_8") / "dlrm_kineto.tar.gz"])
    assert link(traces, of) == []
    stitched = stitch_kineto(of)
    talks = stitched.ops.kind >= OpKind.ALL_REDUCE
    assert set(stitched.meetings.size[talks].tolist()) == {8}
    # The largest of the uneven exchange: 13,312 elements of 4 bytes that one rank sends or receives.
    largest = max(call.bytes for trace in traces for call in trace.calls if call.number == 150)
    assert largest in stitched.ops.bytes[talks].tolist()
    assert replay(stitched.graph()).iteration_time_ns.tolist() == [20_823_000]
