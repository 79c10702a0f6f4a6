"""What a session costs where nothing fails: step time beside plain data parallel on the same model.

Contestants, each a training of its own with one process a group on the processor, the same model,
micro-batches and optimizer (AdamW), gradients accumulated over the micro-batches:

    plain     gradients in one flat tensor, one gloo all-reduce of it
    DDP       torch's DistributedDataParallel, no_sync for all micro-batches but the last
    session   prismcore.spare.Session, with its lighthouse, signs of life, events and commit barrier

Micro-batches compute for all of their time, on fewer cores than processes: what a session takes of the
processors is not hidden behind anything. Trainings follow each other in turn, plain / session / DDP, and
each is compared with its neighbours in the same round; the order changes from round to round. Step time is
the median over the steps of a training, or the tenth of them that was quickest, which other load on the
machine touches least; processor time of all processes, without the lighthouse's, which runs elsewhere where a
job has machines of its own, and with it, is over the same steps. On a machine that others use it says more
than the clock; signs of life, ten a second, weigh more in it the longer a step takes.

    python benchmarks/spare_overhead.py [--json] [--groups 4,8] [--rounds N] [--steps N] [--step-ms MS]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import pairwise

import torch
import torch.distributed as dist
from spare_lighthouse import Lighthouse
from spare_processes import (
    Job,
    Ledger,
    Lines,
    Processes,
    compute,
    load,
    read_lines,
    scratch,
    session_options,
)
from spare_steps import WARM_UP, Plain, add_sizes, busy_job, leave, step_in_session

from prismcore.spare import Session

FIGURES = {
    "step_ms": "step",
    "quick_ms": "quick step",
    "cpu_ms": "processor time",
    "all_cpu_ms": "with the lighthouse's",
}


class Clock:
    """Notes, at the end of every step, the wall clock and the process's own processor time."""

    def __init__(self, processes: Processes, group: int) -> None:
        self._lines = Lines(processes.job.folder / f"steps.{group}")
        self._processes = processes
        self._group = group

    def tick(self, step: int) -> None:
        self._lines.add("step", step=step, group=self._group, cpu_s=time.process_time())
        self._processes.progress[self._group] = step + 1


def run_plain(processes: Processes, group: int) -> None:
    job = processes.job
    plain, clock = Plain(job, group), Clock(processes, group)
    for step in range(job.steps):
        plain.step(step)
        clock.tick(step)
    leave(processes)


def run_ddp(processes: Processes, group: int) -> None:
    job = processes.job
    store = dist.FileStore(str(job.folder / "store"), job.groups)
    dist.init_process_group("gloo", store=store, rank=group, world_size=job.groups)
    model, clock = Ledger(job), Clock(processes, group)
    optimizer = model.optimizer()
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    for step in range(job.steps):
        optimizer.zero_grad()
        for number in range(job.micro_batches):
            with nullcontext() if number == job.micro_batches - 1 else ddp.no_sync():
                compute(job, model, step, group, number, call=ddp, scale=1 / job.micro_batches)
        optimizer.step()
        clock.tick(step)
    leave(processes)


def run_session(processes: Processes, group: int) -> None:
    job = processes.job
    model, clock = Ledger(job), Clock(processes, group)
    optimizer = model.optimizer()
    state = {"model": model, "optimizer": optimizer}
    events = job.folder / f"events.{group}"
    with Session(
        session_options(job, group), params=model.parameters(), state=state, events=events
    ) as session:
        while session.step_number < job.steps:
            step_in_session(job, session, model, optimizer)
            clock.tick(session.step_number - 1)


CONTESTANTS = {"plain": run_plain, "session": run_session, "DDP": run_ddp}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One training."""

    step_ms: float
    quick_ms: float  #: a tenth of the steps took no longer
    cpu_ms: float  #: of all groups together, per step
    all_cpu_ms: float  #: with the lighthouse


def one(contestant: str, job: Job) -> Measured:
    with scratch() as folder, Lighthouse(heartbeat_timeout_ms=2000, quorum_tick_ms=20) as lighthouse:
        job.folder, job.lighthouse = folder, lighthouse.address
        with Processes(job) as processes:
            for group in range(job.groups):
                processes.start(CONTESTANTS[contestant], group)
            processes.wait_for_step(WARM_UP)
            before = lighthouse.cpu_s()
            processes.wait_for_step(job.steps)
            of_lighthouse = lighthouse.cpu_s() - before
            processes.wait(20.0)
        lines = read_lines(folder, "steps.*")
    steps = job.steps - WARM_UP
    walls, cpu = [], 0.0
    for group in range(job.groups):
        mine = [line for line in lines if line["group"] == group and line["step"] >= WARM_UP - 1]
        assert len(mine) == steps + 1
        walls += [(b["time_ns"] - a["time_ns"]) / 1e6 for a, b in pairwise(mine)]
        cpu += mine[-1]["cpu_s"] - mine[0]["cpu_s"]
    quick = statistics.quantiles(walls, n=10)[0]
    all_cpu = cpu + (of_lighthouse if contestant == "session" else 0.0)
    return Measured(
        step_ms=statistics.median(walls),
        quick_ms=quick,
        cpu_ms=cpu / steps * 1e3,
        all_cpu_ms=all_cpu / steps * 1e3,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Over the rounds: median step, and the session's over the others' in the same round, less 1."""

    groups: int
    parameters: int
    rounds: int
    load: float
    medians: dict[str, dict[str, float]]  #: ms, by figure (FIGURES) and contestant
    overhead: dict[str, dict[str, list[float]]]  #: by figure and baseline, of each round


def measure(groups: int, args: argparse.Namespace) -> Row:
    before = load()
    job = busy_job(groups, args.steps, args)
    job.sleep_s = args.sleep_ms / 1e3
    found: dict[str, list[Measured]] = {name: [] for name in CONTESTANTS}
    names = list(CONTESTANTS)
    for number in range(args.rounds):
        for name in names if number % 2 == 0 else reversed(names):
            found[name].append(one(name, job))

    def over(what: str, name: str) -> list[float]:
        pairs = zip(found["session"], found[name], strict=True)
        return [round(getattr(a, what) / getattr(b, what) - 1, 4) for a, b in pairs]

    baselines = [name for name in CONTESTANTS if name != "session"]
    return Row(
        groups=groups,
        parameters=sum(param.numel() for param in Ledger(job).parameters()),
        rounds=args.rounds,
        load=before,
        medians={
            figure: {name: statistics.median(getattr(m, figure) for m in of) for name, of in found.items()}
            for figure in FIGURES
        },
        overhead={figure: {name: over(figure, name) for name in baselines} for figure in FIGURES},
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_sizes(parser)
    parser.add_argument("--sleep-ms", type=float, default=0.0, help="of a micro-batch, beside its work")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [measure(int(groups), args) for groups in args.groups.split(",")]
    if args.json:
        print(json.dumps({"cores": os.cpu_count(), "rows": [asdict(row) for row in rows]}, indent=2))
        return
    for row in rows:
        print(
            f"{row.groups} groups, {row.parameters:,} parameters, {row.rounds} rounds, load {row.load} before"
        )
    print("| groups | | plain, ms | DDP | session | over plain: median (least to most) | over DDP |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        for figure, words in FIGURES.items():
            cells = [str(row.groups), words]
            cells += [f"{row.medians[figure][name]:.0f}" for name in ("plain", "DDP", "session")]
            for name in ("plain", "DDP"):
                of = [100 * ratio for ratio in row.overhead[figure][name]]
                cells.append(f"{statistics.median(of):+.1f} % ({min(of):+.1f} to {max(of):+.1f})")
            print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
