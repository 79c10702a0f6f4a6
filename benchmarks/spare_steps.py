"""Steps of a small training that keeps the processors busy, as plain data parallel and in a session: what the
benchmarks of a session's overhead share."""

from __future__ import annotations

import argparse
import os
from datetime import timedelta
from typing import Any

import torch.distributed as dist
from spare_processes import Job, Ledger, Processes, compute, flat_gradients

from prismcore.spare import Session
from prismcore.spare.runtime.options import Timeouts

WARM_UP = 3


class Plain:
    """Plain data parallel: gradients in one flat tensor, one gloo all-reduce of it."""

    def __init__(self, job: Job, group: int) -> None:
        self._job = job
        self._group = group
        store = dist.FileStore(str(job.folder / "store"), job.groups)
        self._gloo = dist.ProcessGroupGloo(store, group, job.groups, timedelta(seconds=60))
        self._model = Ledger(job)
        self._optimizer = self._model.optimizer()
        self._flat = flat_gradients(self._model)

    def step(self, step: int) -> None:
        job = self._job
        self._flat.zero_()
        for number in range(job.micro_batches):
            compute(job, self._model, step, self._group, number)
        self._gloo.allreduce([self._flat]).wait()
        self._flat.div_(job.parts)
        self._optimizer.step()


def step_in_session(job: Job, session: Session, model: Ledger, optimizer: Any) -> None:
    for work in session.step():
        compute(job, model, *work)
        session.accumulate(work, model.loss)
    optimizer.step()


def leave(processes: Processes) -> None:
    """Nobody closes a connection that others still use."""
    processes.begin.wait()
    os._exit(0)


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """The flags that :func:`busy_job` reads."""
    parser.add_argument("--groups", default="4,8", help="comma-separated")
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument(
        "--step-ms", type=float, default=300.0, help="about, on a machine of its own; 250 or more is aimed at"
    )


def busy_job(groups: int, steps: int, args: argparse.Namespace) -> Job:
    """Of ``steps`` beside the warm-up. Micro-batches have as many samples as make a step take about
    ``--step-ms`` on this machine's cores."""
    job = Job(
        groups=groups,
        micro_batches=args.micro_batches,
        folder=None,  # type: ignore[arg-type]
        width=args.width,
        layers=args.layers,
        steps=steps + WARM_UP,
        rejoin_s=Timeouts().rejoin_s,
    )
    flops = 6 * job.layers * job.width * job.width
    rate = 60e9 * min(os.cpu_count() or 1, groups)  # a guess: about what two such cores do
    job.samples = max(1, round(args.step_ms / 1e3 * rate / flops / job.parts))
    return job
