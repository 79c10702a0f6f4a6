"""Small synthetic jobs, made op by op, that tests of commands and reports share."""

from prismcore.graph import CopyDirection, DataType, Gemm, GraphBuilder, MemoryPeaks, OpKind, Provenance

ADD = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_"
PEAKS = MemoryPeaks(requested_bytes=100, allocated_bytes=512, reserved_bytes=2048, device_bytes=4096)
METADATA = {
    "device": "virtual:h100",
    "command": ["train.py", "--layers", "4"],
    "warmup_iterations": 1,
    "spread": {"peak": 0.001, "iteration_time": 0.0},
}


def pipeline(stages=3, micro_batches=4, iterations=3, metadata=METADATA):
    """Forward micro-batches through a pipeline, then a sum over all ranks."""
    builder = GraphBuilder(world_size=stages)
    world = builder.communicator("default_pg:0", range(stages))
    line = builder.communicator("PIPELINE_MODEL_PARALLEL_GROUP:1", range(stages))
    for r in range(stages):
        rank = builder.rank(r)
        rank.peaks = MemoryPeaks(
            requested_bytes=100, allocated_bytes=512, reserved_bytes=2048, device_bytes=4096
        )
        for _ in range(iterations):
            for _ in range(micro_batches):
                if r > 0:
                    rank.recv(line, source=r - 1, bytes=1 << 20, duration_ns=10_000, stream=1)
                    rank.wait(rank.record(stream=1), stream=0)
                rank.allocate(1 << 20, host_ns=500)
                rank.kernel(
                    ADD, duration_ns=1_000, host_ns=4_000, grid=(10, 2, 1), provenance=Provenance.UNKNOWN
                )
                rank.kernel(
                    "nvjet",
                    duration_ns=1_000_000,
                    host_ns=4_000,
                    gemm=Gemm(m=1024, n=4096, k=512),
                    dtype=DataType.BFLOAT16,
                )
                if r < stages - 1:
                    rank.wait(rank.record(stream=0), stream=1)
                    rank.send(
                        line, to=r + 1, bytes=1 << 20, duration_ns=10_000, stream=1, call_site="pipe.py:10"
                    )
            for _ in range(micro_batches):
                rank.free(1 << 20)
            rank.wait(rank.record(stream=0), stream=2)
            rank.all_reduce(world, bytes=4 << 20, duration_ns=500_000, stream=2, call_site="train.py:77")
            rank.sync()
            rank.copy(
                bytes=4,
                duration_ns=2_000,
                direction=CopyDirection.DEVICE_TO_HOST,
                blocking=True,
                host_ns=3_000,
            )
            rank.mark_iteration()
    return builder.finish(metadata)


def ring(size=4):
    """Every rank sends to its right and receives from its left, as one grouped launch."""
    builder = GraphBuilder(world_size=size)
    world = builder.communicator("ring", range(size))
    for r in range(size):
        rank = builder.rank(r)
        rank.kernel("work", duration_ns=1_000 * (r + 1), host_ns=100)
        with rank.group():
            rank.send(world, to=(r + 1) % size, bytes=1 << 24, duration_ns=5_000)
            rank.recv(world, source=(r - 1) % size, bytes=1 << 24, duration_ns=5_000)
    return builder.finish()


def deadlock():
    """Each of two ranks waits for a message that the other would send only afterwards."""
    builder = GraphBuilder(world_size=2)
    pair = builder.communicator("pair", range(2))
    for r in range(2):
        rank = builder.rank(r)
        rank.recv(pair, source=1 - r, bytes=1 << 24, duration_ns=10, blocking=True, call_site=f"stuck.py:{r}")
        rank.send(pair, to=1 - r, bytes=1 << 24, duration_ns=10, blocking=True)
    return builder.finish()


def mismatch():
    """Two ranks meet in all-reduces of different sizes."""
    builder = GraphBuilder(world_size=2)
    pair = builder.communicator("pair", range(2))
    for r in range(2):
        builder.rank(r).all_reduce(pair, bytes=1 << (20 + r), duration_ns=10, call_site=f"sum.py:{r}")
    return builder.finish()


def with_metadata(graph, metadata):
    """The same ranks with other metadata."""
    builder = GraphBuilder(world_size=graph.world_size)
    builder.merge(graph)
    return builder.finish(metadata)


def single_ranks(graph):
    """One graph a rank, as collection gets them."""
    parts = []
    for r in graph.ranks.tolist():
        builder = GraphBuilder(world_size=graph.world_size)
        slots = [graph.communicator(c) for c in graph.rank(r).bindings["communicator"].tolist()]
        bindings = [
            (builder.communicator(c.name, c.members), position)
            for c, position in zip(slots, graph.rank(r).bindings["position"].tolist(), strict=True)
        ]
        ops = graph.ops(r).copy()
        for kernel in set(ops["ref"][ops["kind"] == OpKind.KERNEL].tolist()):
            assert builder.kernel(graph.kernel(kernel)) == kernel
        builder.set_rank(r, ops, bindings, peaks=graph.rank(r).peaks)
        parts.append(builder.finish())
    return parts
