"""Objects that one rank gives to others: what those get that run later, and where nobody gives."""

from __future__ import annotations

import pytest
from test_collect import run

from prismcore.errors import CollectError
from prismcore.replay import replay

pytestmark = pytest.mark.torch

#: Every call checks what it got against what real ranks would get. Pickles have the same length on every
#: rank where ranks give them at the same time, as their sizes are exchanged.
EXCHANGE = """
import os, torch, torch.distributed as dist
from torch.distributed import broadcast_object_list
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
rank, world = dist.get_rank(), dist.get_world_size()
host = dist.new_group(backend="gloo", group_desc="HOST")
pairs = [dist.new_group([2 * i, 2 * i + 1], group_desc="PAIR") for i in range(world // 2)]
pair = pairs[rank // 2]
x = torch.ones(16, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)

config = [{"lr": 0.5, "name": "a" * 5000}, "steps", 7]
for group in (None, host):
    got = list(config) if rank == 0 else [None] * 3
    broadcast_object_list(got, src=0, group=group)
    assert got == config, got
got = ["safe", 1] if rank == 0 else [None, None]
dist.broadcast_object_list(got, src=0, weights_only=True)
assert got == ["safe", 1], got
got = [("from", rank)]
dist.broadcast_object_list(got, src=world - 1)
assert got == [("from", world - 1)], got
got = [("leader", rank)]
dist.broadcast_object_list(got, group_src=1, group=pair)
assert got == [("leader", rank // 2 * 2 + 1)], got

got = [None]
dist.scatter_object_list(got, [{"for": i, "x": "y" * i} for i in range(world)] if rank == 0 else None, src=0)
assert got == [{"for": rank, "x": "y" * rank}], got

got = [None, None] if rank % 2 == 0 else None
dist.gather_object({"own": rank}, got, group_dst=0, group=pair)
assert rank % 2 or got == [{"own": rank}] * 2, got
got = [None] * world if rank == 0 else None
dist.gather_object({"own": rank}, got, dst=0)
assert rank or got == [{"own": 0}] * world, got
got = [None] * world
dist.all_gather_object(got, rank)
assert got == [rank] * world, got

for turn in range(2):
    if rank % 2 == 0:
        dist.send_object_list(["hello", turn, rank], dst=rank + 1)
    else:
        got = [None] * 3
        dist.recv_object_list(got, src=rank - 1)
        assert got == ["hello", turn, rank - 1], got

for step in range(3):
    (x * 2).sum().backward()
    dist.all_reduce(x.grad)
    optimizer.step()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(EXCHANGE)
    return tmp_path


def test_ranks_get_what_their_roots_give_whichever_run_at_a_time(folder):
    everything = run("train.py", world_size=8, working_directory=folder, ranks="all", slots=1)
    replay(everything.graph)  # sizes agree between the ranks that give and those that get
    again = run("train.py", world_size=8, working_directory=folder, ranks="all", slots=4)
    assert again.graph.digest() == everything.graph.digest()
    assert (again.ranks_run, again.ranks_inferred) == (8, 0)


ROOTS = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
fours = [dist.new_group(list(range(i, i + 4)), group_desc="FOUR") for i in range(0, world, 4)]
x = torch.ones(16, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
got = [{"leader": rank}]
dist.broadcast_object_list(got, group_src=0, group=fours[rank // 4])
assert got == [{"leader": rank // 4 * 4}]
for step in range(3):
    (x * 2).sum().backward()
    dist.all_reduce(x.grad)
    optimizer.step()
"""


def test_roots_that_no_class_asked_for_run_too(tmp_path):
    (tmp_path / "train.py").write_text(ROOTS)
    auto = run("train.py", world_size=64, working_directory=tmp_path)
    assert auto.ranks_run < 32
    assert auto.ranks_run + auto.ranks_inferred == 64
    ran = [rank for rank in range(64) if auto.graph.rank(rank).origin.name != "INFERRED"]
    assert all(rank // 4 * 4 in ran for rank in ran)
    replay(auto.graph)


def test_a_list_without_the_root_says_which_rank_to_add(tmp_path):
    (tmp_path / "train.py").write_text(ROOTS)
    with pytest.raises(CollectError) as caught:
        run("train.py", world_size=64, working_directory=tmp_path, ranks="9-10", keep_partial=True)
    text = str(caught.value)
    assert text.startswith("rank 9 needs the object that rank 8 gives in broadcast_object_list at train.py:")
    assert "object 0 of communicator FOUR:" in text
    assert "add it to --ranks (8-10)" in text
    assert "\n" not in text


def test_a_root_that_gives_nothing_is_named(tmp_path):
    missing = ROOTS.replace("dist.broadcast_object_list(", "rank % 4 == 0 or dist.broadcast_object_list(")
    (tmp_path / "train.py").write_text(missing)
    with pytest.raises(CollectError, match=r"rank 1 needs .* but rank 0 ended without giving it"):
        run("train.py", world_size=8, working_directory=tmp_path, ranks="0-1")


def test_lists_of_unequal_length_are_told(tmp_path):
    unequal = ROOTS.replace('got = [{"leader": rank}]', 'got = [{"leader": rank}] * (1 + (rank > 0))')
    (tmp_path / "train.py").write_text(unequal)
    with pytest.raises(CollectError, match="expected lists of equal length on every rank"):
        run("train.py", world_size=8, working_directory=tmp_path, ranks="0-1")
