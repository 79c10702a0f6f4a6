"""What the benchmarks of the SPARe runtime share: the processes of a small training on one machine, of
which none is left at the end, the lighthouse of torchft beside them, and a model that tells which
micro-batches are in its gradients."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # imported by optimizers; here, once for all processes
import torchft  # noqa: F401  so is this
from spare_lighthouse import HOST
from torch import nn

from prismcore.spare import Session, SessionOptions
from prismcore.spare.placement import golomb
from prismcore.spare.runtime.options import Timeouts

FORK = multiprocessing.get_context("fork")  # torch is imported once, and no thread of it runs here
_PR_SET_PDEATHSIG = 1
torch.set_num_threads(1)


@dataclass(kw_only=True)
class Job:
    """What all processes of a training know. A micro-batch takes ``sleep_s``, in which the processor is
    free, as where a device computes, and what the model's own size takes."""

    groups: int
    micro_batches: int
    folder: Path
    lighthouse: str = ""
    width: int = 64
    layers: int = 2
    samples: int = 4
    sleep_s: float = 0.0
    steps: int = 1 << 30
    timeout_s: float = 30.0
    rejoin_s: float = 0.25

    @property
    def redundancy(self) -> int:
        return 3 if self.groups > 6 else 2

    @property
    def parts(self) -> int:
        return self.groups * self.micro_batches


class Ledger(nn.Module):
    """A model with one weight more for each micro-batch of a step. Its gradient is the share with which
    that micro-batch counts: the summed gradients say themselves what they contain."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        torch.manual_seed(0)
        blocks = [part for _ in range(job.layers) for part in (nn.Linear(job.width, job.width), nn.Tanh())]
        self.body = nn.Sequential(*blocks, nn.Linear(job.width, 1))
        self.counts = nn.Parameter(torch.zeros(job.parts))

    def forward(self, x: torch.Tensor, part: int) -> torch.Tensor:
        return self.body(x).square().mean() + self.counts[part]

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            [{"params": self.body.parameters()}, {"params": [self.counts], "lr": 0.0, "weight_decay": 0.0}],
            lr=1e-3,
        )

    def contained(self) -> tuple[int, bool]:
        """How many micro-batches the gradients contain, and whether with equal shares that add up to 1."""
        grad = self.counts.grad
        assert grad is not None
        present = grad[grad != 0]
        number = present.numel()
        return number, bool(number and ((present * number - 1).abs() < 1e-5).all())


def flat_gradients(model: nn.Module) -> torch.Tensor:
    """One tensor of all gradients, into which autograd adds."""
    params = list(model.parameters())
    flat = torch.zeros(sum(param.numel() for param in params))
    at = 0
    for param in params:
        param.grad = flat[at : at + param.numel()].view_as(param)
        at += param.numel()
    return flat


def micro_batch(job: Job, step: int, shard: int, number: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed((step * job.groups + shard) * job.micro_batches + number)
    return torch.randn(job.samples, job.width, generator=generator)


class Lines:
    """Appends JSON lines, each with the time, in one write: a kill cuts none."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def add(self, what: str, **fields: Any) -> None:
        os.write(self._file, json.dumps({"time_ns": time.time_ns(), "what": what, **fields}).encode() + b"\n")


def read_lines(folder: Path, pattern: str) -> list[dict[str, Any]]:
    """Of all files, by time."""
    found = [json.loads(line) for path in folder.glob(pattern) for line in path.read_text().splitlines()]
    return sorted(found, key=lambda line: line["time_ns"])


def _die_with(parent: int) -> None:
    """So that nothing is left where even the benchmark itself is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Processes:
    """Groups of a training. ``progress[g]``: the steps that group g has committed."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.progress = FORK.Array("q", job.groups, lock=False)
        self.begin = FORK.Barrier(job.groups)
        self.running: dict[int, Any] = {}
        self._all: list[Any] = []

    def start(self, main: Callable[..., None], group: int, *arguments: Any) -> None:
        log = self.job.folder / f"log.{group}.{len(self._all)}"
        process = FORK.Process(
            target=self._child, args=(os.getpid(), log, main, group, arguments), daemon=True
        )
        process.start()
        self.running[group] = process
        self._all.append(process)

    def kill(self, group: int) -> int:
        """SIGKILL. Returns when, of the wall clock, in ns."""
        process = self.running.pop(group)
        now = time.time_ns()
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        return now

    def wait_for_step(self, step: int, groups: list[int] | None = None, timeout_s: float = 60.0) -> None:
        """Until all of them (default: all that run) have committed it."""
        until = time.monotonic() + timeout_s
        while any(self.progress[group] < step for group in (groups or list(self.running))):
            self.check()
            if time.monotonic() > until:
                raise RuntimeError(f"step {step} not within {timeout_s} s:\n{self.logs()}")
            time.sleep(0.005)

    def wait(self, timeout_s: float) -> None:
        """Until all have come to their end."""
        until = time.monotonic() + timeout_s
        while any(process.exitcode is None for process in self.running.values()):
            self.check()
            if time.monotonic() > until:
                raise RuntimeError(f"not through within {timeout_s} s:\n{self.logs()}")
            time.sleep(0.02)

    def check(self) -> None:
        """Raises RuntimeError where one ended by itself."""
        for group, process in self.running.items():
            if process.exitcode not in (None, 0):
                raise RuntimeError(f"group {group} ended with {process.exitcode}:\n{self.logs(group)}")

    def logs(self, group: int | str = "*") -> str:
        paths = sorted(self.job.folder.glob(f"log.{group}.*"))
        return "".join(f"--- {path.name}\n{path.read_text()[-1500:]}\n" for path in paths)

    def _child(
        self, parent: int, log: Path, main: Callable[..., None], group: int, arguments: tuple[Any, ...]
    ) -> None:
        _die_with(parent)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its children
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, 1)
        os.dup2(file, 2)
        main(self, group, *arguments)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._all:
            if process.exitcode is None:
                process.kill()
        for process in self._all:
            process.join()


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one run; SIGTERM ends the benchmark as Ctrl-C does, so that all is cleaned up."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        with tempfile.TemporaryDirectory(prefix="spare-bench-") as folder:
            yield Path(folder)
    finally:
        signal.signal(signal.SIGTERM, before)


def load() -> float:
    """Of the last minute, before the benchmark adds to it."""
    return round(os.getloadavg()[0], 1)


def session_options(job: Job, group: int) -> SessionOptions:
    return SessionOptions(
        placement=golomb(job.groups, job.redundancy),
        micro_batches=job.micro_batches,
        group=group,
        lighthouse=job.lighthouse,
        host=HOST,
        timeouts=Timeouts(collective_s=job.timeout_s, rejoin_s=job.rejoin_s),
    )


class Points:
    """Takes the time at the named points of the protocol (prismcore.spare.runtime.inject.POINTS)."""

    def __init__(self, lines: Lines, group: int) -> None:
        self._lines = lines
        self._group = group

    def at(self, point: str, *, group: int, step: int) -> None:
        if point != "compute":
            self._lines.add("point", point=point, group=self._group, step=step)


def run_session(processes: Processes, group: int) -> None:
    """One group's process of a training with SPARe."""
    job = processes.job
    model = Ledger(job)
    optimizer = model.optimizer()
    lines = Lines(job.folder / f"spare.{os.getpid()}")
    options = session_options(job, group)
    events = job.folder / f"events.{os.getpid()}"
    state = {"model": model, "optimizer": optimizer}
    with Session(options, params=model.parameters(), state=state, events=events) as session:
        session._injector = Points(lines, group)  # type: ignore[assignment]
        while session.step_number < job.steps:
            for work in session.step():
                compute(job, model, *work)
                session.accumulate(work, model.loss)
            number, equal = model.contained()
            step = session.step_number - 1
            lines.add("commit", group=group, step=step, contained=number, equal=equal, loss=session.loss)
            processes.progress[group] = step + 1
            optimizer.step()


def compute(
    job: Job, model: Any, step: int, shard: int, number: int, *, call: Any = None, scale: float | None = None
) -> None:
    """Forward and backward of one micro-batch; its loss is ``model.loss``. ``scale``: of its gradients."""
    if job.sleep_s:
        time.sleep(job.sleep_s)
    x = micro_batch(job, step, shard, number)
    model.loss = (call or model)(x, shard * job.micro_batches + number)
    (model.loss if scale is None else model.loss * scale).backward()
