"""What CUPTI tells of a program, joined: the ops that the virtual GPU records of the same program."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from cupti_double import Double, Rank, expected, spelled
from hypothesis import given, settings
from hypothesis import strategies as st
from vgpu_program import run_program

from prismcore import Graph, GraphBuilder, _core
from prismcore.graph import OP_DTYPE, CopyDirection, DataType, Kernel, OpFlag, OpKind

TRAINING = """
import torch.nn.functional as F
side = torch.cuda.Stream()
w = torch.randn(512, 512, device="cuda", requires_grad=True)
optimizer = torch.optim.AdamW([w], lr=1e-3)
pinned = torch.zeros(64, pin_memory=True)
for step in range(3):
    x = torch.ones(64, 512).cuda()
    with torch.cuda.stream(side):
        side.wait_stream(torch.cuda.current_stream())
        y = torch.zeros(1 << 20, device="cuda")
        done = side.record_event()
    loss = F.gelu(x @ w).softmax(-1).square().mean()
    loss.backward()
    torch.cuda.current_stream().wait_event(done)
    optimizer.step()
    optimizer.zero_grad()
    pinned.copy_(w[0, :64].detach(), non_blocking=True)
    done.query()
    loss.item()
    done.synchronize()
    side.synchronize()
    del x, y
    _core.vgpu_mark("iteration", f"step {step}")
torch.cuda.synchronize()
torch.cuda.empty_cache()
graph = finish()
graph.save(PATH)
answer["ops"] = int(graph.num_ops)
"""


@pytest.fixture
def double() -> Double:
    loaded = Double()
    loaded.reset()
    return loaded


@pytest.mark.torch
def test_a_torch_program_gives_the_ops_that_the_virtual_gpu_records(double: Double, tmp_path: Path) -> None:
    path = tmp_path / "rank.prism"
    assert run_program(TRAINING.replace("PATH", repr(str(path))))["ops"] > 100
    graph = Graph.open(path)
    rank = Rank(double, graph, 0, random.Random(1))
    kinds = {int(kind) for kind in rank.ops["kind"]}
    assert {OpKind.COPY, OpKind.ALLOCATE, OpKind.EVENT_WAIT, OpKind.RELEASE, OpKind.QUERY} <= kinds
    rank.run()
    found = rank.record()
    assert spelled(found, found.ops(0)) == spelled(graph, expected(rank.ops))
    assert found.iterations == graph.iterations == 3
    counts = json.loads(_core.cupti_report())
    assert counts["kernels"] == int((graph.ops(0)["kind"] == OpKind.KERNEL).sum())
    lost = ("orphans", "lost_work", "untimed", "untold_syncs", "dropped_records", "gap_ns", "early_ns")
    assert {name: counts[name] for name in lost} == dict.fromkeys(lost, 0)


KERNELS = [
    Kernel(name="_Z4gemmPf", grid=(4, 2, 1), block=(128, 1, 1), shared_bytes=1024),
    Kernel(name="norm"),
]
COLLECTIVES = (OpKind.ALL_REDUCE, OpKind.ALL_GATHER, OpKind.BROADCAST, OpKind.SEND)


@st.composite
def programs(draw: st.DrawFn) -> Graph:
    """One rank of any ops but host callbacks and graphs, whose events were recorded, streams by first use."""
    builder = GraphBuilder(4)
    kernels = [builder.kernel(kernel) for kernel in KERNELS]
    labels = [builder.string(text) for text in ("one", "two")]
    bindings = [(builder.communicator("all", [0, 1, 2, 3]), 2), (builder.communicator("pair", [2, 3]), 0)]
    recorded: dict[int, int] = {}
    streams = 1
    ops = []

    def op(kind: OpKind, **fields: int) -> None:
        row = np.zeros(1, dtype=OP_DTYPE)
        row["kind"], row["dtype"] = kind, DataType.NONE
        row["host_ns"] = draw(st.sampled_from([0, 3, 1000, 2**31]))
        for name, value in fields.items():
            row[name] = value
        ops.append(row)

    for _ in range(draw(st.integers(1, 30))):
        stream = draw(st.integers(0, streams))
        time = draw(st.sampled_from([0, 1, 2000, 10**6]))
        size = draw(st.integers(1, 5))
        what = draw(st.integers(0, 12))
        known = sorted(recorded)
        if what <= 4 or (what == 7 and known):
            streams = max(streams, min(stream + 1, 6))
        if what <= 1:
            op(OpKind.KERNEL, ref=draw(st.sampled_from(kernels)), stream=stream, duration_ns=time)
        elif what == 2:
            direction = draw(st.sampled_from(CopyDirection))
            waits = direction == CopyDirection.HOST_TO_HOST or (
                direction != CopyDirection.DEVICE_TO_DEVICE and draw(st.booleans())
            )
            op(OpKind.COPY, detail=direction, stream=stream, duration_ns=time, bytes=size,
               flags=int(OpFlag.BLOCKING) * waits)  # fmt: skip
        elif what == 3:
            op(OpKind.SET, stream=stream, duration_ns=time, bytes=size)
        elif what == 4:
            recorded[stream] = recorded.get(stream, 0) + 1
            op(OpKind.EVENT_RECORD, stream=stream)
        elif what == 5 and known:
            of = draw(st.sampled_from(known))
            distance = draw(st.integers(1, recorded[of]))
            kind = draw(st.sampled_from([OpKind.EVENT_SYNC, OpKind.QUERY]))
            op(kind, event_stream=of, peer=distance)
        elif what == 6:
            kind = draw(st.sampled_from([OpKind.STREAM_SYNC, OpKind.QUERY]))
            op(kind, stream=draw(st.integers(0, streams - 1)))
        elif what == 7 and known:
            of = draw(st.sampled_from(known))
            op(OpKind.EVENT_WAIT, stream=stream, event_stream=of, peer=draw(st.integers(1, recorded[of])))
        elif what == 8:
            op(OpKind.DEVICE_SYNC)
        elif what == 9:
            kinds = [OpKind.ALLOCATE, OpKind.FREE, OpKind.FREE, OpKind.RESERVE, OpKind.RELEASE]
            op(draw(st.sampled_from(kinds)), bytes=size)
        elif what == 10:
            op(OpKind.MARK, ref=draw(st.sampled_from(labels)))
        elif what == 11:
            streams = max(streams, min(stream + 1, 6))
            parts = draw(st.integers(1, 3))
            for part in range(parts):
                flags = 0 if part + 1 == parts else OpFlag.GROUP_CONTINUES
                op(draw(st.sampled_from(COLLECTIVES)), ref=draw(st.integers(0, 1)), stream=stream, bytes=size,
                   duration_ns=time, flags=int(flags), peer=0)  # fmt: skip
        else:
            op(OpKind.HOST_GAP, duration_ns=time, host_ns=1)
    if ops:
        builder.set_rank(2, np.concatenate(ops), bindings)
    return builder.finish()


@settings(max_examples=40)
@given(programs(), st.integers(0, 100), st.booleans())
def test_random_programs_come_back(graph: Graph, seed: int, small: bool) -> None:
    if not graph.has_rank(2):
        return
    double = Double()
    double.reset()
    rank = Rank(double, graph, 2, random.Random(seed))
    rank.run()
    found = rank.record(gaps_as_callbacks=small)
    assert spelled(found, found.ops(2)) == spelled(graph, expected(rank.ops))
