"""Step costs of a mapped job, on graphs whose two parts are known to the nanosecond."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismcore.errors import SpareError
from prismcore.graph import GraphBuilder
from prismcore.spare.job import step_costs

MIB = 1 << 20
WORK, COMM = 0, 1


def ddp(*, groups=3, micro_batches=2, forward=1_000, bucket=400, update=700, iterations=3, slow=None, **how):
    """Data parallel, gradients in two buckets: the first is hidden by backward, the last is not."""
    builder = GraphBuilder(world_size=groups)
    world = builder.communicator(how.get("name", "default_pg:0"), range(groups))
    for r in range(groups):
        rank = builder.rank(r)
        scale = 2 if r == slow else 1
        for _ in range(iterations):
            for i in range(micro_batches):
                rank.kernel("forward", duration_ns=scale * forward)
                if i == micro_batches - 1:
                    rank.kernel("backward of the upper half", duration_ns=scale * forward)
                    rank.wait(rank.record(stream=WORK), stream=COMM)
                    rank.all_reduce(world, bytes=25 * MIB, duration_ns=bucket, stream=COMM)
                    rank.kernel("backward of the lower half", duration_ns=scale * forward)
                else:
                    rank.kernel("backward", duration_ns=scale * 2 * forward)
            rank.wait(rank.record(stream=WORK), stream=COMM)
            rank.all_reduce(world, bytes=25 * MIB, duration_ns=bucket, stream=COMM)
            rank.wait(rank.record(stream=COMM), stream=WORK)
            rank.kernel("update", duration_ns=update)
            rank.sync()
            if how.get("loss"):
                rank.all_reduce(world, bytes=4, duration_ns=how["loss"], stream=COMM, blocking=True)
            rank.mark_iteration()
    return builder.finish()


def test_of_plain_data_parallel():
    costs = step_costs(ddp())
    assert (costs.shard_ns, costs.once_ns, costs.iteration_ns) == (6_000, 400 + 700, 7_100)
    assert (costs.exposed_ns, costs.groups, costs.trainer) == (400, 3, "torch DDP")
    assert costs.communicators == ("default_pg",)


@given(
    micro_batches=st.integers(1, 5),
    forward=st.integers(1, 10**6),
    bucket=st.integers(1, 10**6),
    update=st.integers(0, 10**6),
)
def test_both_parts_are_exact(micro_batches, forward, bucket, update):
    """A bucket longer than what hides it shows by what is left over."""
    costs = step_costs(ddp(micro_batches=micro_batches, forward=forward, bucket=bucket, update=update))
    shard = micro_batches * 3 * forward
    once = max(bucket - forward, 0) + bucket + update
    assert (costs.shard_ns, costs.once_ns) == (shard, once)


def test_of_the_slowest_rank():
    """The others wait for rank 1 in the reduction; that is no cost of the reduction."""
    costs = step_costs(ddp(slow=1))
    assert (costs.shard_ns, costs.once_ns, costs.rank) == (12_000, 1_100, 1)


def test_a_loss_is_no_gradient():
    costs = step_costs(ddp(loss=50))
    assert (costs.shard_ns, costs.once_ns) == (6_000, 400 + 700 + 50)


def megatron(*, replicas=2, micro_batches=3, gather=300, iterations=3, name="DATA_PARALLEL_GROUP_WITH_CP"):
    """Two pipeline stages and a distributed optimizer: gather, work, reduce-scatter, norm, update."""
    world_size = 2 * replicas
    builder = GraphBuilder(world_size=world_size)
    norm = builder.communicator("INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP:9", range(world_size))
    stages = [range(s * replicas, (s + 1) * replicas) for s in range(2)]
    parallel = [builder.communicator(f"{name}:{s + 1}", stages[s]) for s in range(2)]
    for r in range(world_size):
        stage, replica = divmod(r, replicas)
        line = builder.communicator(
            f"PIPELINE_MODEL_PARALLEL_GROUP:{replica + 3}", [replica, replicas + replica]
        )
        rank = builder.rank(r)
        other = (1 - stage) * replicas + replica
        for _ in range(iterations):
            rank.all_gather(parallel[stage], bytes=4 * MIB, duration_ns=gather)
            for _ in range(micro_batches):
                if stage == 1:
                    rank.recv(line, source=other, bytes=MIB, duration_ns=10)
                rank.kernel("forward", duration_ns=1_000)
                if stage == 0:
                    rank.send(line, to=other, bytes=MIB, duration_ns=10)
                    rank.recv(line, source=other, bytes=MIB, duration_ns=10, tag=1)
                rank.kernel("backward", duration_ns=2_000)
                if stage == 1:
                    rank.send(line, to=other, bytes=MIB, duration_ns=10, tag=1)
            rank.reduce_scatter(parallel[stage], bytes=8 * MIB, duration_ns=500)
            rank.all_reduce(norm, bytes=4, duration_ns=20)
            rank.kernel("update", duration_ns=60)
            rank.sync()
            rank.mark_iteration()
    return builder.finish()


def test_of_a_pipeline_with_a_distributed_optimizer():
    """Stage 1 ends its backward 2,010 ns before stage 0 and waits for it in the norm: no step cost."""
    costs = step_costs(megatron())
    assert (costs.shard_ns, costs.once_ns) == (3 * (3_000 + 3_000 + 20), 300 + 500 + 20 + 60)
    assert (costs.trainer, costs.groups, costs.rank) == ("Megatron", 2, 0)
    assert costs.exposed_ns == 300 + 500
    assert step_costs(megatron(gather=0)).once_ns == 580


def test_one_iteration_without_marks():
    builder = GraphBuilder(world_size=2)
    world = builder.communicator("default_pg:0", range(2))
    for r in range(2):
        builder.rank(r).kernel("work", duration_ns=70)
        builder.rank(r).all_reduce(world, bytes=MIB, duration_ns=30)
    costs = step_costs(builder.finish())
    assert (costs.shard_ns, costs.once_ns) == (70, 30)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (lambda: ddp(name="mine:0"), "no data-parallel communicator among mine"),
        (lambda: megatron(name="MY_GROUP"), "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP, MY_GROUP, PIPE"),
        (lambda: GraphBuilder(world_size=2).finish(), "holds no rank"),
        (lambda: ddp(forward=0), "expected some computation"),
    ],
)
def test_what_cannot_be_told_is_refused(graph, words):
    with pytest.raises(SpareError, match=words):
        step_costs(graph())


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
def test_sharded_parameters_are_refused(kind):
    builder = GraphBuilder(world_size=2)
    world = builder.communicator("default_pg:0", range(2))
    for r in range(2):
        getattr(builder.rank(r), kind)(world, bytes=4 * MIB, duration_ns=10)
        builder.rank(r).kernel("work", duration_ns=100)
        builder.rank(r).all_reduce(world, bytes=4 * MIB, duration_ns=10)
    with pytest.raises(SpareError, match=f"the first is {kind}"):
        step_costs(builder.finish())


def test_a_job_of_one_replica_is_refused():
    builder = GraphBuilder(world_size=1)
    world = builder.communicator("default_pg:0", [0])
    builder.rank(0).kernel("work", duration_ns=100)
    builder.rank(0).broadcast(world, root=0, bytes=4 * MIB, duration_ns=10)
    with pytest.raises(SpareError, match="reduces no gradients"):
        step_costs(builder.finish())
