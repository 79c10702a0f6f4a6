"""A small training with SPARe in processes of its own, for the tests of the runtime."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import time
import unittest.mock
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import spawn
from pathlib import Path
from typing import Any

import pytest
import spare_lighthouse

from prismcore.spare.placement import golomb
from prismcore.spare.runtime.lighthouse import Lighthouse as Line

# The server of forks finds what it imports ahead by this alone.
_FOLDERS = [str(Path(__file__).parent), str(Path(spare_lighthouse.__file__).parent)]
os.environ["PYTHONPATH"] = os.pathsep.join([*_FOLDERS, os.environ.get("PYTHONPATH", "")])
PATIENCE_S = 300.0
"""Nothing takes so long, however busy the machine is."""
REJOIN_S = 0.1
KILLED = -signal.SIGKILL
"""The exit code of a process that was."""
WORKERS = multiprocessing.get_context("forkserver")
WORKERS.set_forkserver_preload(["torch", "torchft", "prismcore.spare.runtime.session", "spare_training"])


@dataclass(kw_only=True)
class Training:
    """What all groups of a training know."""

    folder: Path
    lighthouse: str
    groups: int = 4
    redundancy: int = 2
    micro_batches: int = 2
    steps: int = 6
    deterministic: bool = False
    inject: Sequence[Any] = ()
    sleep_s: float = 0.0  # in every micro-batch
    hold_step: int = -1  # is begun once go() was called: newcomers are not too late on a slow machine
    last_hold: int = -1  # is begun once open("end") was called
    stuck: tuple[int, int] = (-1, -1)  # group and step: until then its program hangs there
    collective_s: float = 60.0
    samples: int = 2
    positions: int = 1
    inside_s: float = 10.0
    checkpoint_steps: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def go(self, newcomers: Sequence[Any] = ()) -> None:
        """Lets the training go on from ``hold_step``, once the lighthouse hears of these processes: the
        others wait for them then."""
        logs = [self.folder / f"events.{process.pid}" for process in newcomers]
        wait_until(
            lambda: all(log.exists() and b"\n" in log.read_bytes() for log in logs), f"{logs} are there"
        )
        wait_until_heard(self.lighthouse, logs)
        self.open("go")

    def open(self, gate: str) -> None:
        (self.folder / gate).touch()

    def gate(self, group: int | None, step: int) -> Path | None:
        """What is waited for before a micro-batch of the step."""
        if step == self.last_hold:
            return self.folder / "end"
        return self.folder / "go" if step == self.hold_step or (group, step) == self.stuck else None

    def events(self) -> list[dict[str, Any]]:
        lines = [
            line for path in sorted(self.folder.glob("events.*")) for line in path.read_text().splitlines()
        ]
        return [json.loads(line) for line in lines]

    def commits(self) -> dict[int, set[float]]:
        """Losses by step, of all members: one each."""
        losses: dict[int, set[float]] = {}
        for event in self.events():
            if event["event"] == "commit":
                losses.setdefault(event["step"], set()).add(event["loss"])
        return losses

    def weights(self) -> dict[str, str]:
        """Digest of the weights at the end, by group, or group and position: ``3_1``."""
        return {p.suffix[1:]: p.read_text() for p in self.folder.glob("weights.*")}


def run_group(training: Training, group: int | None, log: str, position: int = 0, store: str = "") -> None:
    """One process: a group, or one of its ranks, which then meet at ``store``."""
    import torch

    from prismcore.spare.runtime.checkpoints import Checkpoints
    from prismcore.spare.runtime.options import SessionOptions, Timeouts
    from prismcore.spare.runtime.session import Session

    with open(log, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    inside: Any = None
    if training.positions > 1:
        inside = meet_inside(training, position, store)
    model = make_model() if inside is None else cut(make_model(), position, training.positions)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    options = SessionOptions(
        placement=golomb(training.groups, training.redundancy),
        micro_batches=training.micro_batches,
        group=group,
        lighthouse=training.lighthouse,
        deterministic=training.deterministic,
        host="localhost",
        position=position,
        positions=training.positions,
        store=store,
        timeouts=Timeouts(collective_s=training.collective_s, rejoin_s=REJOIN_S, inside_s=training.inside_s),
        inject=tuple(training.inject),
        **training.options,
    )
    state = {"model": model, "optimizer": optimizer}
    number = os.getpid()
    checkpoints = None
    if training.checkpoint_steps:
        folder = training.folder / "checkpoints"
        checkpoints = Checkpoints(folder, every_steps=training.checkpoint_steps, group=inside)
    with Session(
        options,
        params=model.parameters(),
        state=state,
        checkpoints=checkpoints,
        events=training.folder / f"events.{number}",
    ) as session:
        slow_step = -1
        while session.step_number < training.steps:
            for work in session.step():
                gate = training.gate(session.group, work.step)
                while gate is not None and not gate.exists():
                    time.sleep(0.02)
                if 0 <= training.hold_step <= work.step != slow_step:
                    slow_step = work.step
                    time.sleep(1.5 * REJOIN_S)  # so that members look for newcomers in each of these steps
                if training.sleep_s:
                    time.sleep(training.sleep_s)
                x, y = samples_of(training, *work)
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                session.accumulate(work, loss)
            optimizer.step()
            optimizer.zero_grad()
        mine = session.group
    digest = "".join(f"{float(p.detach().double().sum()):.17g} " for p in model.parameters())
    suffix = f"{mine}" if inside is None else f"{mine}_{position}"
    (training.folder / f"weights.{suffix}").write_text(digest)


def make_model() -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(12, 16), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
    )


def meet_inside(training: Training, position: int, store: str) -> Any:
    """The process group of a group's ranks, as torchrun would have them meet; and one for its checkpoints."""
    import torch.distributed as dist

    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = store.split(":")
    dist.init_process_group("gloo", rank=position, world_size=training.positions)
    return dist.new_group(backend="gloo")


def cut(model: Any, position: int, positions: int) -> Any:
    """``model``, tensor parallel: each rank has some of the inner features."""
    import torch
    import torch.distributed as dist

    class Summed(torch.autograd.Function):
        """Forward: the sum over the ranks; backward: as it is."""

        @staticmethod
        def forward(context: Any, x: Any) -> Any:
            x = x.clone()
            dist.all_reduce(x)
            return x

        @staticmethod
        def backward(context: Any, grad: Any) -> Any:
            dist.all_reduce(probe := torch.ones(1))  # as ranks of a pipeline or of sequences do there
            assert float(probe) == positions
            return grad

    class Halves(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            inner = model[0].out_features // positions
            mine = slice(position * inner, (position + 1) * inner)
            self.up = torch.nn.Linear(model[0].in_features, inner)
            self.down = torch.nn.Linear(inner, 1)
            with torch.no_grad():
                self.up.weight.copy_(model[0].weight[mine])
                self.up.bias.copy_(model[0].bias[mine])
                self.down.weight.copy_(model[3].weight[:, mine])
                self.down.bias.copy_(model[3].bias)
            self.mine = mine

        def forward(self, x: Any) -> Any:
            inner = torch.tanh(self.up(x))
            kept = torch.nn.functional.dropout(torch.ones(len(x), inner.shape[1] * positions), 0.2)
            part = torch.nn.functional.linear(inner * kept[:, self.mine], self.down.weight)
            return Summed.apply(part) + self.down.bias

    return Halves()


def samples_of(training: Training, step: int, shard: int, micro_batch: int) -> tuple[Any, Any]:
    import torch

    number = (step * training.groups + shard) * training.micro_batches + micro_batch
    generator = torch.Generator().manual_seed(1000 + number)
    x = torch.randn(training.samples, 12, generator=generator)
    return x, x.sum(1, keepdim=True).sin()


def wait_until(holds: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, f"did not happen: {what}"
        time.sleep(0.02)


def wait_until_heard(lighthouse: str, logs: Sequence[Path]) -> None:
    """Of the last lives that these logs tell of."""
    starts = [
        [event for event in map(json.loads, log.read_text().splitlines()) if event["event"] == "start"]
        for log in logs
    ]
    replicas = {life[-1]["replica"] for life in starts}
    line = Line(lighthouse, replica="", host="", heartbeat_s=1, timeout_s=1, told=print)

    def is_heard() -> bool:
        heard = line.heard() or {}
        return all(replica in heard and not heard[replica].dead for replica in replicas)

    wait_until(is_heard, f"the lighthouse hears of {replicas}")


class Lighthouse(spare_lighthouse.Lighthouse):
    """One that soon takes who is silent for dead."""

    def __init__(self, *, heartbeat_timeout_ms: int = 450, join_timeout_ms: int = 60000) -> None:
        super().__init__(
            heartbeat_timeout_ms=heartbeat_timeout_ms, join_timeout_ms=join_timeout_ms, quorum_tick_ms=20
        )


_preparation = spawn.get_preparation_data


def bare_preparation(name: str) -> dict[str, Any]:
    return {key: value for key, value in _preparation(name).items() if not key.startswith("init_main")}


class Groups:
    """Processes of a training. At the end none is left."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.processes: list[Any] = []

    def start(
        self, group: int | None, position: int = 0, store: str = "", *, training: Training | None = None
    ) -> Any:
        """``training``: as this process knows it; default: as all do."""
        log = str(self.training.folder / f"log.{group}.{len(self.processes)}")
        process = WORKERS.Process(
            target=run_group, args=(training or self.training, group, log, position, store)
        )
        with unittest.mock.patch.object(spawn, "get_preparation_data", bare_preparation):
            process.start()  # children need not import pytest's main module
        process.group, process.log, process.position = group, log, position
        self.processes.append(process)
        return process

    def start_ranks(self, group: int | None) -> list[Any]:
        """All ranks of a group."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            store = f"127.0.0.1:{server.getsockname()[1]}"
        return [self.start(group, position, store) for position in range(self.training.positions)]

    def wait(self, timeout_s: float = PATIENCE_S) -> dict[int, int]:
        """Exit codes by process number; fails where one takes too long."""
        until = time.monotonic() + timeout_s
        for process in self.processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode is None:
                raise AssertionError(f"group {process.group} is not through:\n{self.logs()}")
        return {number: process.exitcode for number, process in enumerate(self.processes)}

    def logs(self) -> str:
        paths = sorted(self.training.folder.glob("log.*"))
        return "".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in paths)

    def __enter__(self) -> Groups:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            if process.exitcode is None:
                os.kill(process.pid, signal.SIGKILL)
            process.join()


def run(training: Training, timeout_s: float = PATIENCE_S) -> dict[int, int]:
    """All groups to their end."""
    with Groups(training) as groups:
        for group in range(training.groups):
            groups.start(group)
        return groups.wait(timeout_s)


def losses_of(training: Training) -> list[float]:
    """One for each step: all members that committed it had the same. No step is missing."""
    commits = training.commits()
    assert sorted(commits) == list(range(training.steps))
    assert {len(losses) for losses in commits.values()} == {1}
    return [commits[step].pop() for step in range(training.steps)]


def assert_same(training: Training, undisturbed: Training) -> None:
    assert losses_of(training) == pytest.approx(losses_of(undisturbed), rel=1e-6)
    assert len(set(training.weights().values())) == 1


def wait_for_start(training: Training, pid: int) -> None:
    log = training.folder / f"events.{pid}"
    wait_until(lambda: log.exists() and b"\n" in log.read_bytes(), f"{log} is there")


def wait_for(training: Training, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Until there is such an event."""

    def has_happened() -> bool:
        try:
            return any(map(holds, training.events()))
        except ValueError:
            return False  # a line is being written

    wait_until(has_happened, "an event")
