"""Synthetic graphs for the replay benchmarks, built from whole arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from prismcore.comm import collective_cost
from prismcore.graph import (
    OP_DTYPE,
    DataType,
    Graph,
    GraphBuilder,
    Kernel,
    MarkKind,
    OpFlag,
    OpKind,
    Provenance,
)


def barrier_rounds(ranks: int, *, rounds: int = 100, seed: int = 1) -> Graph:
    """Every rank: ``rounds`` times (its own compute of 95 to 105 us, all-reduce of 1 MiB over all)."""
    builder = GraphBuilder(ranks)
    world = builder.communicator("world", np.arange(ranks, dtype=np.uint32))
    random = np.random.default_rng(seed)
    ops = np.zeros(2 * rounds, dtype=OP_DTYPE)
    compute, reduce = ops[0::2], ops[1::2]
    compute["kind"] = OpKind.KERNEL
    compute["ref"] = builder.kernel(Kernel(name="compute"))
    compute["flags"] = reduce["flags"] = Provenance.MODEL
    reduce["kind"] = OpKind.ALL_REDUCE
    reduce["bytes"] = 1 << 20
    reduce["dtype"] = DataType.FLOAT32
    reduce["duration_ns"] = collective_cost(
        "all_reduce", 1 << 20, range(ranks), cluster="h100-8x", dtype="float32"
    ).duration_ns
    for r in range(ranks):
        compute["duration_ns"] = random.integers(95_000, 105_001, rounds)
        builder.set_rank(r, ops, [(world, r)])
    return builder.finish()


def ring_rounds(ranks: int, *, rounds: int = 200, seed: int = 1) -> Graph:
    """Every rank: ``rounds`` times (compute of 100 to 105 us; send 1 KiB to the next rank and receive
    from the previous, both before the next compute)."""
    builder = GraphBuilder(ranks)
    world = builder.communicator("ring", np.arange(ranks, dtype=np.uint32))
    random = np.random.default_rng(seed)
    ops = np.zeros(3 * rounds, dtype=OP_DTYPE)
    compute, send, receive = ops[0::3], ops[1::3], ops[2::3]
    compute["kind"] = OpKind.KERNEL
    compute["ref"] = builder.kernel(Kernel(name="compute"))
    ops["flags"] = Provenance.MODEL
    for part, kind, peer in ((send, OpKind.SEND, 1), (receive, OpKind.RECV, ranks - 1)):
        part["kind"] = kind
        part["peer"] = peer
        part["bytes"] = 1024
        part["dtype"] = DataType.UINT8
        part["duration_ns"] = 2_000
    send["flags"] = Provenance.MODEL | OpFlag.GROUP_CONTINUES
    for r in range(ranks):
        compute["duration_ns"] = random.integers(100_000, 105_001, rounds)
        builder.set_rank(r, ops, [(world, r)])
    return builder.finish()


def training_job(
    ranks: int,
    *,
    tensor: int = 8,
    stages: int = 8,
    layers: int = 4,
    micro_batches: int = 16,
    iterations: int = 2,
    slower: int = 1,
) -> Graph:
    """The shape of a Megatron job: tensor parallel collectives on the compute stream, grouped pipeline
    messages and gradient reduction on their own streams, one-forward-one-backward, about 20 ops for
    each communication op; device times are `slower` times as long. Ranks are numbered tensor first, then
    data, then stage."""
    if ranks % (tensor * stages):
        raise ValueError(f"{ranks} ranks found, expected a multiple of {tensor * stages}")
    replicas = ranks // (tensor * stages)
    builder = GraphBuilder(ranks)
    kernel = builder.kernel(Kernel(name="compute"))
    index = np.arange(ranks, dtype=np.uint32).reshape(stages, replicas, tensor)
    groups: dict[str, dict[tuple[int, ...], int]] = {"tp": {}, "pp": {}, "dp": {}}
    for s in range(stages):
        for d in range(replicas):
            groups["tp"][s, d] = builder.communicator(f"tp:{s}:{d}", index[s, d])
        for t in range(tensor):
            groups["dp"][s, t] = builder.communicator(f"dp:{s}:{t}", index[s, :, t])
    for d in range(replicas):
        for t in range(tensor):
            groups["pp"][d, t] = builder.communicator(f"pp:{d}:{t}", index[:, d, t])
    world = builder.communicator("world", index.reshape(-1))
    for s in range(stages):
        ops = _stage_program(
            s,
            stages=stages,
            layers=layers,
            micro_batches=micro_batches,
            iterations=iterations,
            kernel=kernel,
        )
        ops["duration_ns"] *= slower
        first: int | None = None
        for d in range(replicas):
            for t in range(tensor):
                bindings = [
                    (groups["tp"][s, d], t),
                    (groups["pp"][d, t], s),
                    (groups["dp"][s, t], d),
                    (world, int(index[s, d, t])),
                ]
                if first is None:
                    first = int(index[s, d, t])
                    builder.set_rank(first, ops, bindings)
                else:
                    builder.infer(int(index[s, d, t]), first, bindings)
    return builder.finish({"warmup_iterations": 1})


TP, PP, DP, WORLD = range(4)
COMPUTE_STREAM, PIPELINE_STREAM, GRADIENT_STREAM = range(3)


class _Writer:
    def __init__(self, kernel: int) -> None:
        self.kernel = kernel
        self.ops: list[tuple[int, ...]] = []

    def add(self, kind: OpKind, **fields: int) -> None:
        names = OP_DTYPE.names or ()
        self.ops.append((kind, *(fields.get(name, 0) for name in names[1:])))

    def compute(self, kernels: int, duration_ns: int) -> None:
        for _ in range(kernels):
            self.add(OpKind.ALLOCATE, bytes=1 << 20, host_ns=500)
            self.add(OpKind.KERNEL, ref=self.kernel, flags=1, duration_ns=duration_ns, host_ns=4_000)
            self.add(OpKind.FREE, bytes=1 << 20, host_ns=200)

    def collective(self, kind: OpKind, slot: int, size: int, duration_ns: int, stream: int = 0) -> None:
        fields = {"bytes": size, "dtype": DataType.BFLOAT16, "duration_ns": duration_ns, "host_ns": 5_000}
        self.add(kind, ref=slot, flags=1, stream=stream, **fields)

    def exchange(self, parts: list[tuple[OpKind, int, int]]) -> None:
        """Grouped messages (kind, relative peer, tag) on the pipeline stream, then a host synchronise."""
        if not parts:
            return
        self.add(OpKind.EVENT_RECORD, stream=COMPUTE_STREAM, host_ns=300)
        self.add(OpKind.EVENT_WAIT, stream=PIPELINE_STREAM, event_stream=COMPUTE_STREAM, peer=1, host_ns=300)
        for i, (kind, peer, tag) in enumerate(parts):
            more = OpFlag.GROUP_CONTINUES if i + 1 < len(parts) else 0
            fields = {"bytes": 8 << 20, "dtype": DataType.BFLOAT16, "duration_ns": 200_000, "host_ns": 4_000}
            self.add(kind, ref=PP, flags=1 | more, stream=PIPELINE_STREAM, peer=peer, tag=tag, **fields)
        self.add(OpKind.EVENT_RECORD, stream=PIPELINE_STREAM, host_ns=300)
        self.add(OpKind.EVENT_WAIT, stream=COMPUTE_STREAM, event_stream=PIPELINE_STREAM, peer=1, host_ns=300)
        self.add(OpKind.DEVICE_SYNC, host_ns=2_000)


def _stage_program(
    stage: int, *, stages: int, layers: int, micro_batches: int, iterations: int, kernel: int
) -> npt.NDArray[np.void]:
    out = _Writer(kernel)
    after, before = 1, stages - 1
    send_forward = [(OpKind.SEND, after, 0)] if stage + 1 < stages else []
    receive_backward = [(OpKind.RECV, after, 1)] if stage + 1 < stages else []
    receive_forward = [(OpKind.RECV, before, 0)] if stage else []
    send_backward = [(OpKind.SEND, before, 1)] if stage else []

    def forward() -> None:
        for _ in range(layers):
            for kind in (OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER, OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER):
                out.compute(6, 60_000)
                out.collective(kind, TP, 32 << 20, 110_000)

    def backward() -> None:
        for _ in range(layers):
            for kind in (OpKind.ALL_GATHER, OpKind.REDUCE_SCATTER, OpKind.ALL_GATHER) * 2:
                out.compute(6, 80_000)
                out.collective(kind, TP, 32 << 20, 110_000)

    for _ in range(iterations):
        warm = min(stages - 1 - stage, micro_batches)
        for _ in range(warm):
            out.exchange(receive_forward)
            forward()
            out.exchange(send_forward)
        if micro_batches > warm:
            out.exchange(receive_forward)
        for i in range(micro_batches - warm):
            forward()
            out.exchange(send_forward + receive_backward)
            backward()
            last = i + 1 == micro_batches - warm
            out.exchange(send_backward + ([] if last else receive_forward))
        for _ in range(warm):
            out.exchange(receive_backward)
            backward()
            out.exchange(send_backward)
        out.add(OpKind.EVENT_RECORD, stream=COMPUTE_STREAM)
        out.add(OpKind.EVENT_WAIT, stream=GRADIENT_STREAM, event_stream=COMPUTE_STREAM, peer=1)
        for _ in range(4):
            out.collective(OpKind.REDUCE_SCATTER, DP, 256 << 20, 3_000_000, GRADIENT_STREAM)
        out.add(OpKind.EVENT_RECORD, stream=GRADIENT_STREAM)
        out.add(OpKind.EVENT_WAIT, stream=COMPUTE_STREAM, event_stream=GRADIENT_STREAM, peer=1)
        out.collective(OpKind.ALL_REDUCE, WORLD, 4, 60_000)
        out.add(OpKind.DEVICE_SYNC, host_ns=2_000)
        out.compute(20, 30_000)
        for _ in range(4):
            out.collective(OpKind.ALL_GATHER, DP, 128 << 20, 2_000_000)
        out.add(OpKind.MARK, detail=MarkKind.ITERATION)
    return np.array(out.ops, dtype=OP_DTYPE)


WORKLOADS: dict[str, Callable[[int], Graph]] = {
    "barrier": barrier_rounds,
    "ring": ring_rounds,
    "training": training_job,
}
