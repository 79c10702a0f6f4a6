"""Processes that save and are killed, or save as two ranks; a program that test_spare_checkpoint_folder runs.

It imports torch once and forks: a process that starts anew for each kill would take seconds.
"""

import json
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

from prismcore.errors import CheckpointError
from prismcore.spare.runtime.checkpoints import Checkpoints
from prismcore.spare.runtime.random_states import RandomStates

SAVES = 2
FILE_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}


def tell(report: dict[str, Any]) -> None:
    print(json.dumps(report), flush=True)


def state_of(step: int) -> dict[str, Any]:
    values = torch.arange(50_000, dtype=torch.float32) * (step + 1)
    return {"weights": values, "progress": {"step": step, "words": [str(step)] * 3}}


def forked(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def save_and_tell(folder: Path, pipe: int, before_last: Callable[[], None] = lambda: None) -> None:
    """Saves after saves; tells each that is complete."""
    checkpoints = Checkpoints(folder, keep=1)
    for step in range(1, SAVES + 1):
        if step == SAVES:
            before_last()
        checkpoints.save(step, state_of(step))
        saved = checkpoints.wait()
        assert saved is not None
        os.write(pipe, bytes([saved.step]))


def killed_at(folder: Path, number: int) -> Callable[[int], None]:
    """SIGKILL just before the file operation of this number of the last save, whichever thread makes it."""
    left = number

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event in FILE_EVENTS and arguments and str(folder) in str(arguments[0]):
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    return lambda pipe: save_and_tell(folder, pipe, lambda: sys.addaudithook(hook))


def look(folder: Path) -> dict[str, Any]:
    """What is left, for the next one to run; which then saves, too."""
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")] if folder.exists() else []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of damaged checkpoints
        checkpoints = Checkpoints(folder, keep=1)
        latest = checkpoints.latest()
    right = True
    if latest is not None:
        state = {"weights": torch.zeros(50_000), "progress": {}}
        assert checkpoints.load(state) == latest
        expected = state_of(latest)
        right = (
            torch.equal(state["weights"], expected["weights"]) and state["progress"] == expected["progress"]
        )
    after = 1 if latest is None else latest + 1
    checkpoints.save(after, state_of(after))
    checkpoints.close()
    names = sorted(path.name for path in folder.iterdir())
    return {
        "latest": latest or 0,
        "right": right,
        "hidden": hidden,
        "clean": names == [f"step-{after:09d}"] or names,
    }


def kill(folder: Path, work: Callable[[int], None], after_s: float | None) -> tuple[bool, float]:
    """Prints what came of it; whether it was killed, and how long it lived."""
    reading, writing = os.pipe()
    start = time.monotonic()
    child = forked(lambda: work(writing))
    os.close(writing)
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    lived_s = time.monotonic() - start
    told = max(os.read(reading, 100), default=0)
    os.close(reading)
    killed = os.WIFSIGNALED(status)
    # In another process: one that has computed with torch does not fork well.
    os.waitpid(forked(lambda: tell({"killed": killed, "told": told, **look(folder)})), 0)
    return killed, lived_s


def kill_at_every_file_operation(folder: Path) -> None:
    number = 0
    while kill(folder / f"{number}", killed_at(folder / f"{number}", number), None)[0]:
        number += 1


def kill_at_any_moment(folder: Path) -> None:
    _, whole_s = kill(folder / "whole", lambda pipe: save_and_tell(folder / "whole", pipe), None)
    drawn = random.Random(1)
    for number in range(8):
        here = folder / f"{number}"
        kill(here, lambda pipe, here=here: save_and_tell(here, pipe), drawn.uniform(0, whole_s))


# --- ranks of a group


class Unready:
    """Cannot be saved."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not ready")


def model_of(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(16, 33), torch.nn.Tanh(), torch.nn.Linear(33, 5))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    loss = model(torch.randn(4, 16)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def rank_main(rank: int, folder: Path) -> dict[str, Any]:
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", 2), rank=rank, world_size=2)
    group = dist.new_group(backend="gloo")
    where = folder / "checkpoints"
    found: dict[str, Any] = {}
    model, optimizer = model_of(seed=1)
    torch.manual_seed(100 + rank)  # as with tensor parallel dropout: each rank its own
    for _ in range(2):
        train(model, optimizer)
    own = torch.full((3,), float(rank))
    # As of a pipeline stage: the other one has another tensor of the same name.
    stage = init_device_mesh("cpu", (2, 1), mesh_dim_names=("pipeline", "tensor"))["tensor"]
    layer = distribute_tensor(torch.full((4,), rank + 1.0), stage, [Shard(0)])
    with Checkpoints(where, group=group) as checkpoints:
        state = {
            "model": model,
            "optimizer": optimizer,
            "random": RandomStates(),
            "own": own,
            "rank": rank,
            "layer": layer,
        }
        checkpoints.save(2, state)
        expected = [train(model, optimizer) for _ in range(3)]
        saved = checkpoints.wait()
        assert saved is not None
        found["bytes"] = saved.bytes
        # A new run: another start, and an optimizer that has made no step.
        model, optimizer = model_of(seed=2)
        own, layer = torch.zeros(3), torch.zeros_like(layer)
        state = {"model": model, "optimizer": optimizer, "random": RandomStates(), "own": own, "rank": -1}
        state["layer"] = layer
        found["step"] = checkpoints.load(state)
        found["own"] = [own.tolist(), state["rank"], layer.full_tensor().tolist()]
        found["losses"] = [[train(model, optimizer) for _ in range(3)], expected]
        # What one rank cannot save, no rank does; the next save is well again.
        try:
            checkpoints.save(5, {"value": Unready() if rank else 1})
            checkpoints.wait()
        except CheckpointError as error:
            found["unready"] = str(error)
        checkpoints.save(6, {"value": rank})
        checkpoints.wait()
        found["latest"] = checkpoints.latest()
        # What is damaged for one rank is loaded by none.
        before = [p.full_tensor().tolist() for p in model.parameters()]
        dist.barrier()
        if rank == 0:
            files = sorted((where / "step-000000002").iterdir())
            path = next(f for f in files if f.name.startswith("__1"))
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        dist.barrier()
        try:
            checkpoints.load(state, step=2)
        except CheckpointError as error:
            found["damaged"] = str(error)
        found["untouched"] = before == [p.full_tensor().tolist() for p in model.parameters()]
        # The other rank dies in the middle of a save.
        dist.barrier()
        if rank == 1:
            tell(found)
            os.kill(os.getpid(), signal.SIGKILL)
        checkpoints.save(7, {"value": rank})
        try:
            checkpoints.wait()
        except CheckpointError as error:
            found["alone"] = str(error)
        found["latest_alone"] = checkpoints.latest()
        found["names"] = sorted(path.name for path in where.iterdir())
    return found


def two_ranks(folder: Path) -> None:
    children = [forked(lambda rank=rank: tell(rank_main(rank, folder))) for rank in (0, 1)]
    for child in children:
        os.waitpid(child, 0)


def full_disk(folder: Path) -> None:
    """``folder`` is a small file system."""
    weights = torch.ones(4_000)
    with Checkpoints(folder, keep=1) as checkpoints:
        checkpoints.save(1, {"weights": weights})
        checkpoints.wait()
        try:
            checkpoints.save(2, {"weights": torch.zeros(1_000_000)})
            checkpoints.wait()
        except CheckpointError as error:
            tell({"error": str(error)})
        checkpoints.save(3, {"weights": weights * 3})
        checkpoints.wait()
        assert checkpoints.load({"weights": weights}) == 3
        assert weights.eq(3).all()
        assert [path.name for path in folder.iterdir()] == ["step-000000003"]


if __name__ == "__main__":
    # In processes of their own: one that has computed with torch does not fork well.
    for role, folder in (argument.split("=", 1) for argument in sys.argv[1:]):
        tell({"role": role})
        os.waitpid(forked(lambda role=role, folder=folder: globals()[role](Path(folder))), 0)
