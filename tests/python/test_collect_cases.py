"""Programs that users of torch have reported trouble with, collected: each test names the report."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_collect import run

from prismcore.errors import CollectError, MismatchError, PrismError, RankFailedError
from prismcore.graph import Graph
from prismcore.graph.op import OpKind
from prismcore.replay import replay

pytestmark = pytest.mark.torch

HEAD = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rank, world = dist.get_rank(), dist.get_world_size()
"""


def collected(folder: Path, body: str, **options) -> Graph:
    (folder / "train.py").write_text(HEAD + body)
    settings = {"world_size": 4, "ranks": "all", "working_directory": folder}
    return run("train.py", **(settings | options)).graph


def communication(graph: Graph, rank: int) -> list[tuple[str, str, int]]:
    """Kind, communicator and bytes of each op."""
    names = [graph.communicator(int(b["communicator"])).name for b in graph.rank(rank).bindings]
    ops = graph.ops(rank)
    return [
        (OpKind(int(op["kind"])).name.lower(), names[int(op["ref"])], int(op["bytes"]))
        for op in ops[ops["kind"] >= OpKind.ALL_REDUCE]
    ]


BUFFERS = """
own = dist.new_group([rank], use_local_synchronization=True, group_desc="OWN")
large = torch.empty((1 << 31) + 8, dtype=torch.bfloat16, device="cuda")
dist.all_reduce(large)
dist.all_reduce(torch.ones(1 << 20, device="cuda"), group=own)
dist.all_reduce(torch.ones(1, device="cuda"))
objects = [None] * world
dist.all_gather_object(objects, "x" * 1000)
assert objects == ["x" * 1000] * world
"""


def test_buffers_past_two_gib_groups_of_one_and_object_gathers(tmp_path):
    """nccl#184, pytorch#11466: counts past 2^31. pytorch#160135, nccl#1352: a group of one keeps its
    place and costs next to nothing. pytorch#150798: an object gather is a Long, then the bytes."""
    graph = collected(tmp_path, BUFFERS)
    ops = communication(graph, 2)
    kinds = [(kind, size) for kind, _, size in ops]
    assert kinds[:3] == [("all_reduce", 2 * ((1 << 31) + 8)), ("all_reduce", 4 << 20), ("all_reduce", 4)]
    assert ops[1][1].startswith("OWN:")
    long, payload = kinds[3:]
    assert long == ("all_gather", 4 * 8)
    assert payload[0] == "all_gather"
    assert payload[1] % 4 == 0
    assert payload[1] >= 4 * 1000
    durations = graph.ops(2)["duration_ns"][graph.ops(2)["kind"] >= OpKind.ALL_REDUCE]
    assert durations[1] < durations[2] < durations[0]
    replay(graph)


UNEVEN = """
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).cuda())
for batch in range(3 if rank != 2 else 2):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
"""


def test_a_rank_with_one_batch_less_is_named(tmp_path):
    """pytorch#33148, #38174: an uneven number of batches hangs."""
    graph = collected(tmp_path, UNEVEN)
    with pytest.raises(PrismError, match="rank 2") as caught:
        replay(graph)
    assert caught.value.exit_code == 3


BRANCHES = """
total = torch.tensor([1.0 if rank == 0 else 2.0]).cuda()
dist.reduce(total, 0)
if total.item() > 3:
    dist.all_reduce(total)
else:
    dist.broadcast(total, 0)
"""


def test_branches_on_what_only_the_root_has_are_found(tmp_path):
    """pytorch#77562: reduce where all_reduce was needed; ranks go different ways and hang."""
    graph = collected(tmp_path, BRANCHES)
    with pytest.raises(MismatchError, match=r"all_reduce.*broadcast|broadcast.*all_reduce") as caught:
        replay(graph)
    assert "train.py:" in str(caught.value)


GROUPS = """
group = dist.new_group([0, 1] if rank < 2 else [1, 2])
if rank < 2:
    dist.all_reduce(torch.ones(4, device="cuda"), group=group)
dist.all_reduce(torch.ones(4, device="cuda"))
"""


def test_other_ranks_in_the_same_new_group_are_found(tmp_path):
    """pytorch#130102: ranks call new_group with different lists in the same place."""
    with pytest.raises(CollectError, match=r"rank [23] made other process groups than rank 0"):
        collected(tmp_path, GROUPS, ranks="auto")


STATE = """
model = torch.nn.Linear(1024, 1024).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    model(torch.ones(1 << 15, 1024, device="cuda")).square().sum().backward()
    dist.all_reduce(model.weight.grad)
    optimizer.step()
    optimizer.zero_grad()
"""


def test_the_first_iteration_lacks_the_optimizer_state(tmp_path):
    """Megatron-LM#2254: peaks of one iteration are too small, so the default is more than one."""
    one = collected(tmp_path, STATE, ranks="0", iterations=1).rank(0).peaks
    three = collected(tmp_path, STATE, ranks="0").rank(0).peaks
    assert three.allocated_bytes >= one.allocated_bytes + (2 << 20)


FEWER = """
for step in range(2):
    dist.all_reduce(torch.ones(64, device="cuda"))
    torch.optim.SGD([torch.nn.Parameter(torch.ones(4, device="cuda"))], lr=0.1).step()
dist.destroy_process_group()
"""


def test_a_program_that_cleans_up_after_fewer_steps(tmp_path):
    """The usual last line of a program leaves torch without any group."""
    graph = collected(tmp_path, FEWER)
    assert graph.iterations == 2
    assert "the program ended after 2 of 3 iterations" in graph.metadata["notes"]
    assert ("all_reduce", "default_pg:0", 256) in communication(graph, 3)


OWN_EXPERTS = """
counts = torch.tensor([8 * (1 + 2 * rank + k) for k in range(world)], device="cuda")
theirs = torch.empty_like(counts)
dist.all_to_all_single(theirs, counts)
sent, received = counts.tolist(), theirs.tolist()
tokens = torch.empty(sum(received), 4, device="cuda")
dist.all_to_all_single(tokens, torch.ones(sum(sent), 4, device="cuda"), received, sent)
"""


def test_counts_that_ghosts_answered_are_named(tmp_path):
    graph = collected(tmp_path, OWN_EXPERTS, routing="hot-rank")
    (note,) = [note for note in graph.metadata["notes"] if "--routing" in note]
    assert note.startswith("no dispatcher that --routing knows was seen: hot-rank")
    with pytest.raises(MismatchError, match="split tables of the two ranks disagree") as caught:
        replay(graph)
    assert "such as those of all_to_all int64 of 32 bytes at train.py:9 <module>" in str(caught.value)
    assert "--rules FILE" in str(caught.value)


COMPUTED = """
counts = torch.bincount(torch.arange(world, device="cuda"), minlength=world)
x = torch.ones(world, 4, device="cuda")
dist.all_to_all_single(torch.empty_like(x), x, counts.tolist(), counts.tolist())
"""


def test_counts_that_a_kernel_would_compute_are_named(tmp_path):
    with pytest.raises(RankFailedError, match="counts that kernels would compute read as zero") as caught:
        collected(tmp_path, COMPUTED)
    assert "Split sizes doesn't match total dim 0 size" in str(caught.value)


def test_no_routing_asked_for_is_no_note(tmp_path):
    assert not [note for note in collected(tmp_path, FEWER).metadata["notes"] if "routing" in note]
