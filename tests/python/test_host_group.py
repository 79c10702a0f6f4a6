"""gloo groups of ranks whose peers do not run: what they answer, and what they record."""

from __future__ import annotations

import numpy as np
import pytest
from test_collect import MEGATRON, run

from prismcore import _core
from prismcore.graph import Graph
from prismcore.graph.op import OpFlag, OpKind
from prismcore.profiles.cluster import load_cluster
from prismcore.replay import replay

pytestmark = pytest.mark.torch

#: Every call checks its answer: every absent member behaves as if it held this rank's own data.
ANSWERS = """
import torch, torch.distributed as dist
dist.init_process_group("{backend}")
rank, world = dist.get_rank(), dist.get_world_size()
group = dist.new_group(backend="gloo", group_desc="HOST")
place = [float(i + rank) for i in range(world)]

def equal(tensor, values):
    assert torch.equal(tensor, torch.tensor(values, dtype=tensor.dtype)), (tensor, values)

kinds = dist.ReduceOp
reduced = [
    (kinds.SUM, [3, 1, 0], [3 * world, world, 0]),
    (kinds.PRODUCT, [3, 1, 0], [3 ** world, 1, 0]),
    (kinds.MAX, [3, 1, 0], [3, 1, 0]),
    (kinds.MIN, [3, 1, 0], [3, 1, 0]),
    (kinds.BAND, [3, 1, 0], [3, 1, 0]),
    (kinds.BXOR, [3, 1, 0], [0, 0, 0]),
]
for operation, given, expected in reduced:
    tensor = torch.tensor(given)
    dist.all_reduce(tensor, operation, group=group)
    equal(tensor, expected)
flags = torch.tensor([True, False])
dist.all_reduce(flags, group=group)
equal(flags, [True, False])
work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
work.wait()
equal(work.get_future().value()[0], [world, world])

tensor = torch.tensor([2.0])
dist.reduce(tensor, 1, group=group)
equal(tensor, [2.0 * world if rank == 1 else 2.0])

gathered = [torch.zeros(2) for _ in range(world)]
dist.all_gather(gathered, torch.tensor([1.0, rank]), group=group)
for part in gathered:
    equal(part, [1.0, rank])
whole = torch.zeros(2 * world)
dist.all_gather_into_tensor(whole, torch.tensor([1.0, rank]), group=group)
equal(whole, [1.0, rank] * world)
gathered = [torch.zeros(1) for _ in range(world)] if rank == 0 else None
dist.gather(torch.tensor([5.0]), gathered, 0, group=group)
for part in gathered or []:
    equal(part, [5.0])

own = torch.zeros(1)
dist.scatter(own, [torch.tensor([float(i)]) for i in range(world)] if rank == 1 else None, 1, group=group)
equal(own, [1.0 if rank == 1 else 0.0])
own = torch.zeros(1)
dist.reduce_scatter(own, [torch.tensor([value]) for value in place], group=group)
equal(own, [place[rank] * world])
own = torch.zeros(1)
dist.reduce_scatter_tensor(own, torch.tensor(place), group=group)
equal(own, [place[rank] * world])

out = torch.zeros(world)
dist.all_to_all_single(out, torch.tensor(place), group=group)
equal(out, place)
send = [2] + [1] * (world - 1)
receive = [1, 2] + [1] * (world - 2)
out = torch.full((world + 1,), 9.0)
dist.all_to_all_single(out, torch.arange(1.0, world + 2), receive, send, group=group)
equal(out, [1.0, 3.0, 0.0] + [float(i) for i in range(4, world + 2)])

token = torch.tensor([7.0])
dist.broadcast(token, 0, group=group)
equal(token, [7.0])

# Receives are posted before sends on every rank: legal, and no deadlock when replayed.
incoming = torch.ones(4)
receiving = dist.irecv(incoming, (rank - 1) % world, group=group, tag=3)
sending = dist.isend(torch.ones(4), (rank + 1) % world, group=group, tag=3)
receiving.wait()
sending.wait()
equal(incoming, [0.0] * 4)

# A program that asks whether a message has come, and never waits.
polled = dist.irecv(incoming, (rank - 1) % world, group=group, tag=4)
dist.isend(torch.ones(4), (rank + 1) % world, group=group, tag=4)
while not polled.is_completed():
    pass

objects = [None] * world
dist.all_gather_object(objects, {{"rank": rank}}, group=group)
assert objects == [{{"rank": rank}}] * world
objects = [None] * world
dist.gather_object((rank, "x"), objects if rank == 0 else None, 0, group=group)
assert rank or objects == [(0, "x")] * world
dist.barrier(group=group)
dist.monitored_barrier(group)
assert dist.get_backend(group) == "gloo"
if "{backend}" != "gloo":
    ours = torch.tensor([1.0]).cuda()  # from the host: kernels compute nothing
    dist.all_reduce(ours)
    assert ours.item() == world
dist.destroy_process_group(group)
"""


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl", "gloo"])
@pytest.mark.parametrize("world", [4])
def test_absent_members_answer_by_the_contract(tmp_path, backend, world):
    (tmp_path / "train.py").write_text(ANSWERS.format(backend=backend))
    result = run("train.py", world_size=world, working_directory=tmp_path, ranks="all")
    graph = result.graph
    assert graph.ranks.tolist() == list(range(world))
    replay(graph)  # all meet, nothing waits for ever
    messages = [int((host_ops(graph, 1)["kind"] == kind).sum()) for kind in (OpKind.SEND, OpKind.RECV)]
    assert messages == [2, 2]
    kinds = {OpKind(kind) for kind in np.unique(host_ops(graph, 1)["kind"]).tolist()}
    assert kinds == {
        OpKind.ALL_REDUCE, OpKind.REDUCE, OpKind.ALL_GATHER, OpKind.GATHER, OpKind.SCATTER, OpKind.SEND,
        OpKind.REDUCE_SCATTER, OpKind.ALL_TO_ALL, OpKind.BROADCAST, OpKind.RECV,
    }  # fmt: skip


def test_a_world_of_one_needs_nobody(tmp_path):
    (tmp_path / "train.py").write_text(
        ANSWERS.format(backend="nccl").split("tensor = torch.tensor([2.0])")[0]
    )
    text = (tmp_path / "train.py").read_text().replace("[0, 0, 0]),\n]", "[3, 1, 0]),\n]")
    (tmp_path / "train.py").write_text(text)
    assert len(run("train.py", world_size=1, working_directory=tmp_path).graph.ranks) == 1


def host_ops(graph: Graph, rank: int):
    """The rank's ops on groups in host memory."""
    slots = [
        slot
        for slot, binding in enumerate(graph.rank(rank).bindings)
        if graph.communicator(int(binding["communicator"])).name.startswith(_core.HOST_GROUP_MARK)
    ]
    ops = graph.ops(rank)
    return ops[(ops["kind"] >= OpKind.ALL_REDUCE) & np.isin(ops["ref"], slots)]


STEPS = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rank, world = dist.get_rank(), dist.get_world_size()
host = dist.new_group(backend="gloo", group_desc="HOST")
quarters = [dist.new_group(list(range(i, world, 4)), backend="gloo", group_desc="QUARTER") for i in range(4)]
parameter = torch.ones(1 << 20, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([parameter], lr=0.1)


def meet():
    dist.barrier(group=host)
    dist.all_reduce(torch.ones(100), group=quarters[rank % 4])


for step in range(3):
    (parameter * 2).sum().backward()
    dist.all_reduce(parameter.grad)
    meet()
    optimizer.step()
"""


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("steps")
    (folder / "train.py").write_text(STEPS)
    auto = run("train.py", world_size=16, working_directory=folder)
    return auto, run("train.py", world_size=16, working_directory=folder, ranks="all")


def test_ranks_that_were_inferred_have_the_host_groups_of_their_own(steps):
    auto, everything = steps
    assert auto.ranks_inferred > 0
    assert auto.graph.digest() == everything.graph.digest()
    for rank in (5, 15):
        members = {
            tuple(auto.graph.communicator(int(binding["communicator"])).members.tolist())
            for binding in auto.graph.rank(rank).bindings
        }
        assert members == {tuple(range(16)), tuple(range(rank % 4, 16, 4))}


def test_host_ops_block_and_last_what_the_network_says(steps):
    graph = steps[0].graph
    cluster = load_cluster("h100-8x").to_core()
    message = [_core.p2p_cost(bytes, False, cluster)[-1] for bytes in (0, 100)]
    ops = host_ops(graph, 3)
    assert ops["bytes"].tolist() == [0, 400] * 3
    assert ops["duration_ns"].tolist() == [4 * message[0], 2 * 3 * message[1]] * 3
    assert all(OpFlag(int(flags)) & OpFlag.BLOCKING for flags in ops["flags"])
    others = graph.ops(3)["stream"][np.isin(graph.ops(3)["kind"], (OpKind.KERNEL, OpKind.COPY))]
    assert set(ops["stream"].tolist()).isdisjoint(others.tolist())


def test_host_groups_hold_no_device_memory(steps):
    graph = steps[1].graph
    world = [c for c in (graph.communicator(i) for i in range(graph.num_communicators)) if c.size == 16]
    assert sorted(c.name for c in world) == ["default_pg:0", "gloo@HOST:1"]
    peaks = graph.rank(0).peaks
    one = run_without_host_groups().graph.rank(0).peaks
    assert peaks.device_bytes == one.device_bytes


def run_without_host_groups():
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(STEPS.replace("    meet()\n", "", 1))
        return run("train.py", world_size=16, working_directory=Path(folder), ranks="0")


def test_call_sites_of_device_and_host_groups_stand_in_order(steps):
    graph = steps[1].graph
    sites = [site for site in graph.program_call_sites(graph.rank(0).program) if site]
    lines = STEPS.splitlines()
    found = [lines[int(site.split(":")[1].split(" ")[0]) - 1].strip() for site in sites]
    assert [text.split("(")[0] for text in found] == [
        "dist.all_reduce",
        "dist.barrier",
        "dist.all_reduce",
    ] * 3
    assert ["meet" in site for site in sites] == [False, True, True] * 3


def test_costing_anew_for_the_same_cluster_changes_nothing(steps):
    graph = steps[0].graph
    anew = replay(graph, cluster=load_cluster("h100-8x"))
    assert list(anew.iteration_time_ns) == list(replay(graph).iteration_time_ns)


def test_megatron_with_its_gloo_groups():
    flags = ["--tp", "2", "--pp", "2", "--layers", "2", "--no-dist-optimizer", "--gloo"]
    result = run(MEGATRON, *flags, world_size=16, iterations=2, ranks="0,15")
    assert result.graph.ranks.tolist() == [0, 15]
