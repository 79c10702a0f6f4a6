"""Bytes between sandbox ranks: what real torch programs read, against what is computed plainly."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismcore.collect import CollectOptions, collect
from prismcore.emulate import EmulateOptions, emulate
from prismcore.errors import RankFailedError
from prismcore.graph import Graph

WORLD = 4

HEAD = """
import os, pickle, sys
import numpy as np, torch, torch.distributed as dist

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % 8)
results = {}

def data(p, count, dtype=np.float32, salt=0):
    return (np.arange(count) % 50 + 100 * (p + 1) + salt).astype(dtype)

def put(*args, **kwargs):
    return torch.from_numpy(data(*args, **kwargs)).cuda()

def keep(name, tensor):
    results[name] = tensor.cpu().float().numpy() if tensor.dtype == torch.bfloat16 else tensor.cpu().numpy()
"""

TAIL = """
import prismcore

with open(f"{sys.argv[1]}/{rank}", "wb") as file:
    pickle.dump(results, file)
prismcore.mark_iteration()
"""


def data(p: int, count: int, dtype: Any = np.float32, salt: int = 0) -> np.ndarray:
    return (np.arange(count) % 50 + 100 * (p + 1) + salt).astype(dtype)


class Program:
    """A script whose ranks leave what they read; collected once."""

    def __init__(self, folder: Path, body: str, world: int = WORLD) -> None:
        self.folder = folder
        script = folder / "train.py"
        script.write_text(HEAD + body + TAIL)
        self.command = (str(script), str(folder))
        self.graph: Graph = collect(CollectOptions(command=self.command, world_size=world, ranks="all")).graph

    def run(self, sandbox: Sequence[int]) -> dict[int, dict[str, Any]]:
        for rank in range(self.graph.world_size):
            (self.folder / str(rank)).unlink(missing_ok=True)
        emulate(self.graph, EmulateOptions(command=self.command, sandbox=sandbox, silence_s=240))
        found = {}
        for rank in sandbox:
            found[rank] = pickle.loads((self.folder / str(rank)).read_bytes())
        return found


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Program]:
    return lambda body, **kwargs: Program(tmp_path_factory.mktemp("program"), body, **kwargs)


COLLECTIVES = """
x = put(rank, 30); dist.all_reduce(x); keep("sum", x)
x = put(rank, 30, np.int64); dist.all_reduce(x, op=dist.ReduceOp.MAX); keep("max", x)
x = torch.from_numpy(data(rank, 30)).bfloat16().cuda(); dist.all_reduce(x); keep("bf16", x)
x = put(rank, 30, np.float16); dist.all_reduce(x, op=dist.ReduceOp.AVG); keep("avg", x)
x = put(rank, 30); dist.reduce(x, dst=1); keep("reduce", x)
x = put(rank, 30); dist.broadcast(x, src=3); keep("broadcast", x)
out = torch.empty(30 * world, device="cuda")
dist.all_gather_into_tensor(out, put(rank, 30)); keep("all_gather", out)
outs = [torch.empty(30, device="cuda") for _ in range(world)]
dist.all_gather(outs, put(rank, 30)); keep("all_gather_last", outs[-1])
out = torch.empty(30, device="cuda")
dist.reduce_scatter_tensor(out, put(rank, 30 * world)); keep("reduce_scatter", out)
out = torch.empty(30 * world, device="cuda")
dist.all_to_all_single(out, put(rank, 30 * world)); keep("all_to_all", out)
sends = [1 + rank + p for p in range(world)]
out = torch.empty(sum(sends), device="cuda")
dist.all_to_all_single(out, put(rank, sum(sends)), output_split_sizes=sends, input_split_sizes=sends)
keep("all_to_all_v", out)
x = put(rank, 30)
dist.gather(x, [torch.empty(30, device="cuda") for _ in range(world)] if rank == 3 else None, dst=3)
out = torch.empty(30, device="cuda")
dist.scatter(out, list(put(1, 30 * world).chunk(world)) if rank == 1 else None, src=1); keep("scatter", out)
objects = [None] * world
dist.all_gather_object(objects, {"rank": rank}); results["objects"] = objects
x = put(rank, 200_000); dist.all_reduce(x); keep("large", x)
"""


@pytest.fixture(scope="module")
def collectives(make: Callable[..., Program]) -> Program:
    return make(COLLECTIVES)


@pytest.mark.torch
@pytest.mark.parametrize("sandbox", [(0, 1, 2, 3), (1, 3)], ids=["all", "some"])
def test_collectives_are_those_of_the_sandbox_ranks(collectives: Program, sandbox: tuple[int, ...]) -> None:
    def holder(p: int) -> int:
        return p if p in sandbox else sandbox[0]

    def all_of(count: int, dtype: Any = np.float32) -> np.ndarray:
        return np.stack([data(holder(p), count, dtype) for p in range(WORLD)])

    for rank, found in collectives.run(sandbox).items():
        expected = {
            "sum": all_of(30).sum(0),
            "max": all_of(30, np.int64).max(0),
            "avg": all_of(30).mean(0).astype(np.float16),
            "reduce": all_of(30).sum(0) if rank == 1 else data(rank, 30),
            "broadcast": data(3, 30),
            "all_gather": all_of(30).reshape(-1),
            "all_gather_last": data(3, 30),
            "reduce_scatter": all_of(30 * WORLD).sum(0)[30 * rank : 30 * (rank + 1)],
            "scatter": data(1, 30 * WORLD)[30 * rank : 30 * (rank + 1)],
            "all_to_all": np.concatenate(
                [
                    chunk(data(p, 30 * WORLD), rank) if p in sandbox else chunk(data(rank, 30 * WORLD), p)
                    for p in range(WORLD)
                ]
            ),
            "all_to_all_v": np.concatenate(
                [uneven(p, rank) if p in sandbox else uneven(rank, p) for p in range(WORLD)]
            ),
            "large": all_of(200_000).sum(0),
        }
        for name, want in expected.items():
            np.testing.assert_array_equal(found[name], want, err_msg=f"{name} of rank {rank}")
        np.testing.assert_allclose(found["bf16"], all_of(30).sum(0), rtol=2**-7)
        assert found["objects"] == [{"rank": holder(p)} for p in range(WORLD)]


def chunk(values: np.ndarray, place: int) -> np.ndarray:
    return values[30 * place : 30 * (place + 1)]


def uneven(source: int, destination: int) -> np.ndarray:
    counts = [1 + source + p for p in range(WORLD)]
    begin = sum(counts[:destination])
    return data(source, sum(counts))[begin : begin + counts[destination]]


TRICKY = """
evens = dist.new_group([0, 2]); other = dist.new_group([0, 2])
if rank in (0, 2):
    first, second = (evens, other) if rank == 0 else (other, evens)
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    for step in range(5):
        tensors = {}
        for group, stream in ((first, one), (second, two)):
            with torch.cuda.stream(stream):
                x = put(rank, 1000, salt=step + (group is other))
                work = dist.all_reduce(x, group=group, async_op=True)
                tensors["evens" if group is evens else "other"] = (x, work)
        for name in ("evens", "other") if rank == 0 else ("other", "evens"):
            x, work = tensors[name]
            work.wait()
            torch.cuda.synchronize()
            keep(f"{name}{step}", x)
# A rank that does not look for long, while another does each time.
x = put(rank, 10)
for step in range(20):
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    if rank == 1:
        keep(f"max{step}", x)
# A ring of messages, each rank sends first.
after, before = (rank + 1) % world, (rank - 1) % world
got = torch.empty(40, device="cuda")
for work in dist.batch_isend_irecv([
    dist.P2POp(dist.isend, put(rank, 40), after), dist.P2POp(dist.irecv, got, before)
]):
    work.wait()
keep("ring", got)
# One after the other, along a line.
line = put(rank, 40)
if rank > 0:
    dist.recv(line, rank - 1)
if rank < world - 1:
    dist.send(line, rank + 1)
keep("line", line)
dist.barrier()
"""


@pytest.mark.torch
def test_programs_that_a_lock_step_exchange_would_hang(make: Callable[..., Program]) -> None:
    program = make(TRICKY)
    for rank, found in program.run((0, 1, 2, 3)).items():
        for step in range(5):
            for salt, name in enumerate(("evens", "other")):
                if rank in (0, 2):
                    want = data(0, 1000, salt=step + salt) + data(2, 1000, salt=step + salt)
                    np.testing.assert_array_equal(found[f"{name}{step}"], want)
        for step in range(20) if rank == 1 else ():
            np.testing.assert_array_equal(found[f"max{step}"], data(WORLD - 1, 10))
        np.testing.assert_array_equal(found["ring"], data((rank - 1) % WORLD, 40))
        np.testing.assert_array_equal(found["line"], data(0, 40))


HOST = """
both = dist.new_group(backend="gloo")
def own(salt=0): return torch.from_numpy(data(rank, 20, np.int64, salt))
x = own(); dist.all_reduce(x, group=both); results["sum"] = x.numpy()
x = own().bool(); dist.all_reduce(x, op=dist.ReduceOp.MIN, group=both); results["bool"] = x.numpy()
x = own(); dist.broadcast(x, src=1, group=both); results["broadcast"] = x.numpy()
outs = [torch.empty(20, dtype=torch.int64) for _ in range(world)]
dist.all_gather(outs, own(), group=both); results["all_gather"] = torch.cat(outs).numpy()
x = own(); dist.reduce(x, dst=1, op=dist.ReduceOp.MAX, group=both); results["reduce"] = x.numpy()
if rank == 1:
    dist.gather(own(), outs, dst=1, group=both)
    results["gather"] = torch.cat(outs).numpy()
else:
    dist.gather(own(), dst=1, group=both)
x = torch.empty(20, dtype=torch.int64)
dist.scatter(x, [own(p) for p in range(world)] if rank == 1 else None, src=1, group=both)
results["scatter"] = x.numpy()
if rank == 1:
    dist.send(own(5), 3, group=both, tag=2)
    dist.send(own(6), 3, group=both, tag=1)
    for tag in (3, 4):
        dist.send(own(tag), 3, group=both, tag=tag)
elif rank == 3:
    for tag in (1, 2):
        x = torch.empty(20, dtype=torch.int64)
        dist.recv(x, 1, group=both, tag=tag)
        results[f"tag{tag}"] = x.numpy()
    x = torch.empty(20, dtype=torch.int64)
    work = dist.irecv(x, 1, group=both, tag=3)
    while not work.is_completed():
        pass
    results["tag3"] = x.numpy()
    x = torch.empty(20, dtype=torch.int64)
    dist.irecv(x, 1, group=both, tag=4).get_future().wait()
    results["tag4"] = x.numpy()
for name, group in (("gloo", both), ("nccl", None)):
    objects = [None] * world
    dist.all_gather_object(objects, f"rank {rank}", group=group)
    results[f"{name}_objects"] = objects
    given = [{"from": rank}, "x" * 100] if rank == 1 else [None, None]
    dist.broadcast_object_list(given, src=1, group=group)
    results[f"{name}_given"] = given
    got, parts = [None], [f"for {p}" for p in range(world)]
    dist.scatter_object_list(got, parts if rank == 1 else None, src=1, group=group)
    results[f"{name}_scattered"] = got
    if rank == 1:
        dist.send_object_list(["hello", 3], 3, group=group)
    elif rank == 3:
        got = [None, None]
        dist.recv_object_list(got, 1, group=group)
        results[f"{name}_sent"] = got
    gathered = [None] * world if rank == 1 else None
    dist.gather_object(f"rank {rank}", gathered, dst=1, group=group)
    results[f"{name}_gathered"] = gathered
dist.barrier(group=both)
"""


@pytest.mark.torch
def test_groups_in_host_memory_and_objects(make: Callable[..., Program]) -> None:
    program = make(HOST)
    for sandbox in ((0, 1, 2, 3), (1, 3)):

        def holder(p: int, sandbox: Sequence[int] = sandbox) -> int:
            return p if p in sandbox else sandbox[0]

        held = np.stack([data(holder(p), 20, np.int64) for p in range(WORLD)])
        for rank, found in program.run(sandbox).items():
            same = {
                "sum": held.sum(0),
                "bool": np.ones(20, dtype=bool),
                "broadcast": data(1, 20, np.int64),
                "all_gather": held.reshape(-1),
                "reduce": held.max(0) if rank == 1 else data(rank, 20, np.int64),
                "scatter": data(1, 20, np.int64, rank),
            }
            if rank == 1:
                same["gather"] = held.reshape(-1)
            if rank == 3:
                same |= {"tag2": data(1, 20, np.int64, 5), "tag1": data(1, 20, np.int64, 6)}
                same |= {f"tag{tag}": data(1, 20, np.int64, tag) for tag in (3, 4)}
            for name, want in same.items():
                np.testing.assert_array_equal(found[name], want, err_msg=f"{name} of rank {rank}")
            everybody = [f"rank {holder(p)}" for p in range(WORLD)]
            for name in ("gloo", "nccl"):
                assert found[f"{name}_objects"] == everybody
                assert found[f"{name}_given"] == [{"from": 1}, "x" * 100]
                assert found[f"{name}_scattered"] == [f"for {rank}"]
                assert found.get(f"{name}_sent", ["hello", 3]) == ["hello", 3]
                if rank == 1 and len(sandbox) == WORLD:
                    assert found[f"{name}_gathered"] == everybody


OBJECTS = """
objects = [f"of rank {rank}"] if rank == 2 else [None]
dist.broadcast_object_list(objects, src=2)
back = [f"back {objects[0]}"] if rank == 3 else [None]
dist.broadcast_object_list(back, src=3)
results["back"] = back
"""


@pytest.mark.torch
def test_objects_of_ghosts_are_what_they_give_in_a_run_of_their_own(make: Callable[..., Program]) -> None:
    """Rank 3 needs the object of rank 2 for its own."""
    for rank, found in make(OBJECTS).run((0, 1)).items():
        assert found["back"] == ["back of rank 2"], rank


KILLED = """
import time
x = put(rank, 10)
dist.all_reduce(x)
if os.path.exists(f"{sys.argv[1]}/now") and rank == 1:
    os.kill(os.getpid(), 9)
dist.all_reduce(x)
keep("x", x)
"""


@pytest.mark.torch
def test_a_rank_that_is_killed_while_others_wait_for_its_bytes_is_named(make: Callable[..., Program]) -> None:
    program = make(KILLED, world=2)
    (program.folder / "now").touch()
    with pytest.raises(RankFailedError, match="rank 1 was killed by SIGKILL"):
        program.run((0, 1))
