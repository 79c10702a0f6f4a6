"""Training through failures: prismcore's session beside torchft's own manager, under the same kills.

Each round runs the same training (one process a group, gloo, model and data of spare_processes.py, m
micro-batches a group, gradients accumulated) once with each contestant, and kills the same groups at the
same times (SIGKILL, seconds after the warm-up); with --restart-s they are started again that much later.

torchft's side is the loop of its README: ``start_quorum`` (asynchronous), all gradients in one
``allreduce`` of the manager, ``should_commit``; default heartbeats (100 ms). (Its DistributedDataParallel
calls the same ``allreduce``, but over gloo survivors end with an AssertionError of its hook when a peer is
killed, torchft 0.2.0.) The loop names data by ``current_step()``, so that a step that was thrown away is done
again with the same samples; the README's takes the next batch instead, and loses those of every step that
is thrown away. Its manager listens on loopback here, states of those that join go through the process group
(its PGTransport), and operations have a time limit of 30 s, as on the other side.

What a committed step contains is read off the summed gradients themselves: the model has one weight for
each micro-batch of a step, whose gradient is the share with which that micro-batch counts.

    python benchmarks/spare_vs_torchft.py [--json] [--groups N] [--kills K] [--rounds R] [--restart-s S]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from spare_lighthouse import HOST, Lighthouse
from spare_processes import (
    Job,
    Ledger,
    Lines,
    Processes,
    compute,
    flat_gradients,
    load,
    read_lines,
    run_session,
    scratch,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Contestant:
    """``lighthouse``: flags of torchft_lighthouse, whose defaults are a heartbeat timeout of 5 s and a join
    timeout of 60 s. ``gloo_s``: time limit of torchft's gloo group (5 s in its example train_ddp.py).
    ``ends``: the loop ends the connections where a sum has failed, which torchft itself leaves to the next
    quorum."""

    name: str
    lighthouse: dict[str, int]
    gloo_s: float = 5.0
    ends: bool = False


TICK = {"quorum_tick_ms": 20}
FAST = {"heartbeat_timeout_ms": 300, **TICK}
CONTESTANTS = (
    Contestant(name="prismcore", lighthouse=FAST),
    Contestant(name="torchft, join 500 ms", lighthouse={"join_timeout_ms": 500, **TICK}),
    Contestant(name="torchft, heartbeat 300 ms", lighthouse={"join_timeout_ms": 500, **FAST}),
    Contestant(name="the same, gloo 1 s", lighthouse={"join_timeout_ms": 500, **FAST}, gloo_s=1.0),
    Contestant(
        name="the same, ends connections", lighthouse={"join_timeout_ms": 500, **FAST}, gloo_s=1.0, ends=True
    ),
)


def run_torchft(processes: Processes, group: int, contestant: Contestant, late: bool = False) -> None:
    """One group's process of a training with torchft's manager."""
    import torchft.manager
    from torchft.checkpointing.pg_transport import PGTransport
    from torchft.process_group import ProcessGroupGloo

    job = processes.job
    server = torchft.manager.ManagerServer
    torchft.manager.ManagerServer = lambda **given: server(**given | {"bind": f"{HOST}:0"})
    model = Ledger(job)
    optimizer = model.optimizer()
    lines = Lines(job.folder / f"torchft.{os.getpid()}")
    store = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
    limit = timedelta(seconds=job.timeout_s)
    gloo = ProcessGroupGloo(timeout=timedelta(seconds=contestant.gloo_s))
    manager = torchft.manager.Manager(
        pg=gloo,
        load_state_dict=lambda state: (
            model.load_state_dict(state["m"]),
            optimizer.load_state_dict(state["o"]),
        ),
        state_dict=lambda: {"m": model.state_dict(), "o": optimizer.state_dict()},
        min_replica_size=1,
        timeout=limit,
        quorum_timeout=timedelta(seconds=60),
        rank=0,
        world_size=1,
        store_addr=HOST,
        store_port=store.port,
        lighthouse_addr=job.lighthouse,
        replica_id=f"torchft_{group}",
        hostname=HOST,
        init_sync=False,
        checkpoint_transport=PGTransport(gloo, limit, torch.device("cpu")),
    )
    flat = flat_gradients(model)
    if not late:
        processes.begin.wait()  # all show signs of life before the first asks for a quorum
    while True:
        manager.start_quorum()
        flat.zero_()
        step = manager.current_step()
        for number in range(job.micro_batches):
            compute(job, model, step, group, number)
        flat /= job.micro_batches
        manager.allreduce(flat).wait()
        if contestant.ends and manager.errored():
            gloo.abort()
        commit = manager.should_commit()
        taking_part = manager.is_participating()
        if commit:
            # Of those that heal, the gradients are zero, and the step is that of the others.
            step = manager.current_step() - 1
            number, equal = model.contained()
            lines.add("commit", group=group, step=step, contained=number, equal=equal)
            processes.progress[group] = step + 1
            optimizer.step()
        elif taking_part:
            lines.add("thrown away", group=group, step=step)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One training of one contestant."""

    contestant: str
    seconds: float  #: from the first kill to the end
    step_ms: float  #: before the first kill
    committed: int  #: steps, from the first kill to the end
    thrown_away: int  #: steps whose work was done by survivors and not committed
    samples_done_again: int  #: of these; the README's loop, which takes the next batch, loses them
    samples_lacking: int  #: that committed steps are to contain, and do not
    smallest_batch: float  #: of a committed step, over the whole one
    mean_batch: float
    equal_shares: bool  #: each micro-batch in a committed step counts the same
    recovery_ms: list[float]  #: from each kill to the commit of the first step without the dead group
    stall_ms: list[float]  #: longest time between two commits around each kill, less one step


def one(
    contestant: Contestant, args: argparse.Namespace, kills: list[tuple[float, int]], end_s: float
) -> Run:
    with scratch() as folder, Lighthouse(**contestant.lighthouse) as lighthouse:
        job = Job(
            groups=args.groups,
            micro_batches=args.micro_batches,
            folder=folder,
            lighthouse=lighthouse.address,
            sleep_s=args.sleep_ms / 1e3,
        )
        ours = contestant.name == "prismcore"
        main = run_session if ours else run_torchft
        more = () if ours else (contestant,)
        struck = []
        with Processes(job) as processes:
            for group in range(job.groups):
                processes.start(main, group, *more)
            processes.wait_for_step(10)
            began = time.monotonic()
            todo = [(at, "kill", group) for at, group in kills]
            if args.restart_s is not None:
                todo += [(at + args.restart_s, "start", group) for at, group in kills]
            for at, what, group in sorted(todo):
                time.sleep(max(0.0, began + at - time.monotonic()))
                processes.check()
                if what == "kill":
                    struck.append((processes.kill(group), group))
                else:
                    processes.start(main, group, *more, *(() if ours else (True,)))
            time.sleep(max(0.0, began + end_s - time.monotonic()))
            processes.check()
            ended = time.time_ns()
        lines = read_lines(folder, "spare.*" if ours else "torchft.*")
    return account(contestant.name, job, lines, struck, ended)


def account(
    contestant: str, job: Job, lines: list[dict[str, Any]], struck: list[tuple[int, int]], ended: int
) -> Run:
    first = struck[0][0]
    commits = [line for line in lines if line["what"] == "commit"]
    calm: dict[int, list[int]] = {}
    for line in commits:
        if line["time_ns"] < first and line["step"] >= 3:
            calm.setdefault(line["group"], []).append(line["time_ns"])
    gaps = [(b - a) / 1e6 for times in calm.values() for a, b in pairwise(times)]
    step_ms = statistics.median(gaps)
    after = [line for line in commits if first < line["time_ns"] <= ended]
    steps = {line["step"]: line["contained"] for line in after}  # all that commit a step hold the same
    batch = [contained / job.parts for contained in steps.values()]
    lost = {(line["step"], line["group"], line["time_ns"]) for line in lines if line["what"] == "thrown away"}
    recovery, stall = [], []
    for number, (killed, _) in enumerate(struck):
        until = struck[number + 1][0] if number + 1 < len(struck) else ended
        dead = {group for _, group in struck[: number + 1]}
        ends, pauses = [], []
        for group in set(range(job.groups)) - dead:
            mine = [c["time_ns"] for c in commits if c["group"] == group]
            before = max((t for t in mine if t <= killed), default=killed)
            times = [t for t in mine if killed < t <= until]
            if not times:
                ends.append(float("inf"))
                continue
            # The first step without the dead is the one behind the longest pause.
            pause, end = max((b - a, b) for a, b in pairwise([before, *times]))
            ends.append((end - killed) / 1e6)
            pauses.append(pause / 1e6 - step_ms)
        recovery.append(max(ends))
        stall.append(max(pauses, default=float("inf")))
    return Run(
        contestant=contestant,
        seconds=(ended - first) / 1e9,
        step_ms=step_ms,
        committed=len(steps),
        thrown_away=rounds_of(lost),
        samples_done_again=len(lost) * job.micro_batches * job.samples,
        samples_lacking=sum(job.parts - contained for contained in steps.values()) * job.samples,
        smallest_batch=min(batch, default=0.0),
        mean_batch=statistics.fmean(batch) if batch else 0.0,
        equal_shares=all(line["equal"] for line in after),
        recovery_ms=recovery,
        stall_ms=stall,
    )


def rounds_of(lost: set[tuple[int, int, int]]) -> int:
    """How many times a step was thrown away: by the group to which that happened most often."""
    by_step: dict[int, dict[int, int]] = {}
    for step, group, _ in lost:
        of = by_step.setdefault(step, {})
        of[group] = of.get(group, 0) + 1
    return sum(max(of.values()) for of in by_step.values())


def draw(rng: random.Random, args: argparse.Namespace) -> list[tuple[float, int]]:
    """(seconds, group); never all hosts of a shard."""
    from prismcore.spare.placement import golomb

    hosts = [set(of.tolist()) for of in golomb(args.groups, 3).hosts()]
    while True:
        groups = rng.sample(range(args.groups), args.kills)
        if not any(of <= set(groups) for of in hosts):
            break
    return [(0.2 + number * args.every_s + rng.random(), group) for number, group in enumerate(groups)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--sleep-ms", type=float, default=50.0, help="of a micro-batch")
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--every-s", type=float, default=8.0, help="between kills, about")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--restart-s", type=float, help="start a killed group again after it")
    parser.add_argument("--only", help="contestants whose name contains this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    before = load()
    rng = random.Random(args.seed)
    runs = []
    for _ in range(args.rounds):
        kills = draw(rng, args)
        for contestant in CONTESTANTS:
            if not args.only or args.only in contestant.name:
                runs.append(one(contestant, args, kills, 0.2 + args.kills * args.every_s + 1.0))
    if args.json:
        print(json.dumps({"load": before, "runs": [asdict(run) for run in runs]}, indent=2))
        return
    show(runs, args, before)


def show(runs: list[Run], args: argparse.Namespace, before: float) -> None:
    batch = args.groups * args.micro_batches * Job(groups=1, micro_batches=1, folder=None).samples  # type: ignore[arg-type]
    print(
        f"{args.groups} groups, {args.kills} kills in {args.rounds} rounds, {batch} samples a step, "
        f"load {before} before"
    )
    head = ["", "step, ms", "steps committed", "steps thrown away", "samples done again, or lost"]
    head += ["samples that committed steps lack", "batch, mean / least"]
    head += ["kill to next commit, ms: median / max", "stall, ms: median / max"]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for name in (contestant.name for contestant in CONTESTANTS):
        of = [run for run in runs if run.contestant == name]
        if not of:
            continue
        recovery = [ms for run in of for ms in run.recovery_ms]
        stall = [ms for run in of for ms in run.stall_ms]
        cells = [
            name,
            f"{statistics.median(run.step_ms for run in of):.0f}",
            sum(run.committed for run in of),
            sum(run.thrown_away for run in of),
            sum(run.samples_done_again for run in of),
            sum(run.samples_lacking for run in of),
            f"{statistics.fmean(run.mean_batch for run in of):.3f} / {min(r.smallest_batch for r in of):.3f}",
            f"{statistics.median(recovery):.0f} / {max(recovery):.0f}",
            f"{statistics.median(stall):.0f} / {max(stall):.0f}",
        ]
        print("| " + " | ".join(map(str, cells)) + " |")


if __name__ == "__main__":
    main()
