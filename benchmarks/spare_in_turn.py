"""What a session costs where nothing fails, on a machine that others use: steps of plain data parallel and
of a session in turn, in the same processes, so that both meet the same load.

Every group's process holds two models, each with its optimizer: one step of the first with one gloo
all-reduce of a flat gradient, one step of the second in a session, the order changing from pair to pair.
Micro-batches compute all the time. Processor time of a step is that of all groups together, without the
threads of torchft, which send signs of life through both kinds of steps: these, and the lighthouse, are
measured apart, and added for the time that a step takes where it has all cores to itself. (What other
threads and a second model take of the caches, both kinds of steps pay for: see spare_overhead.py, where
each has processes of its own.)

    python benchmarks/spare_in_turn.py [--json] [--groups 4,8] [--pairs N] [--step-ms MS]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spare_lighthouse import Lighthouse
from spare_processes import Ledger, Processes, load, scratch, session_options
from spare_steps import WARM_UP, Plain, add_sizes, busy_job, leave, step_in_session

from prismcore.spare import Session

TIMEOUT_S = 3000.0


def of_torchft_ns() -> int:
    """Processor time of its threads in this process."""
    total = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            if (thread / "comm").read_text().startswith("torchft"):
                total += int((thread / "schedstat").read_text().split()[0])
    return total


def run(processes: Processes, group: int) -> None:
    job = processes.job
    plain, model = Plain(job, group), Ledger(job)
    optimizer = model.optimizer()
    state = {"model": model, "optimizer": optimizer}
    pairs: list[dict[str, tuple[int, int, int]]] = []
    with Session(
        session_options(job, group), params=model.parameters(), state=state, events=job.folder / f"e.{group}"
    ) as session:

        def in_session(_: int) -> None:
            step_in_session(job, session, model, optimizer)

        steps = {"plain": plain.step, "session": in_session}
        for step in range(job.steps):
            pair = {}
            for name in steps if step % 2 else reversed(steps):
                began, torchft, used = time.monotonic_ns(), of_torchft_ns(), time.process_time_ns()
                steps[name](step)
                used = time.process_time_ns() - used
                torchft = of_torchft_ns() - torchft
                pair[name] = used - torchft, torchft, time.monotonic_ns() - began
            pairs.append(pair)
            processes.progress[group] = step + 1
    (job.folder / f"pairs.{group}").write_text(json.dumps(pairs))
    leave(processes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Of all groups together, in ms a step; ``more``: median and quartiles of the pairs."""

    groups: int
    pairs: int
    load: float
    step_ms: float  #: median, of the clock
    plain_cpu_ms: float
    session_cpu_ms: float
    more_cpu_ms: list[float]  #: lower quartile, median, upper quartile
    mean_more_cpu_ms: float
    torchft_ms_per_s: float
    lighthouse_ms_per_s: float

    @property
    def alone_ms(self) -> float:
        """A step of plain data parallel where nothing else runs: it keeps all cores busy."""
        return self.plain_cpu_ms / min(os.cpu_count() or 1, self.groups)

    def overhead(self) -> list[float]:
        """Over plain: by the steps alone, with signs of life, and with the lighthouse on the same cores."""
        beats, lighthouse = (
            rate * self.alone_ms / 1e3 for rate in (self.torchft_ms_per_s, self.lighthouse_ms_per_s)
        )
        steps = self.more_cpu_ms[1]
        return [x / self.plain_cpu_ms for x in (steps, steps + beats, steps + beats + lighthouse)]


def measure(groups: int, args: argparse.Namespace) -> Row:
    before = load()
    job = busy_job(groups, args.pairs, args)
    with scratch() as folder, Lighthouse(heartbeat_timeout_ms=20_000, quorum_tick_ms=20) as lighthouse:
        job.folder, job.lighthouse = folder, lighthouse.address
        with Processes(job) as processes:
            for group in range(groups):
                processes.start(run, group)
            processes.wait_for_step(WARM_UP, timeout_s=TIMEOUT_S)
            began, used = time.monotonic(), lighthouse.cpu_s()
            processes.wait_for_step(job.steps, timeout_s=TIMEOUT_S)
            by_lighthouse = (lighthouse.cpu_s() - used) / (time.monotonic() - began)
            processes.wait(60.0)
        by_group: list[list[dict[str, Any]]] = [
            json.loads((folder / f"pairs.{group}").read_text())[WARM_UP:] for group in range(groups)
        ]

    def cpu(name: str) -> list[float]:
        return [sum(pair[name][0] for pair in pairs) / 1e6 for pairs in zip(*by_group, strict=True)]

    plain, session = cpu("plain"), cpu("session")
    more = [b - a for a, b in zip(plain, session, strict=True)]
    steps = [step for pairs in by_group for pair in pairs for step in pair.values()]
    return Row(
        groups=groups,
        pairs=args.pairs,
        load=before,
        step_ms=statistics.median(wall for *_, wall in steps) / 1e6,
        plain_cpu_ms=statistics.median(plain),
        session_cpu_ms=statistics.median(session),
        more_cpu_ms=statistics.quantiles(more, n=4),
        mean_more_cpu_ms=statistics.mean(more),
        torchft_ms_per_s=1e3 * groups * sum(t for _, t, _ in steps) / sum(wall for *_, wall in steps),
        lighthouse_ms_per_s=1e3 * by_lighthouse,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_sizes(parser)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [measure(int(groups), args) for groups in args.groups.split(",")]
    if args.json:
        print(json.dumps({"cores": os.cpu_count(), "rows": [asdict(row) for row in rows]}, indent=2))
        return
    print(
        "| groups | pairs | plain, ms | more, ms: median (quartiles), mean | torchft, ms/s | lighthouse "
        "| steps alone | with signs of life | with the lighthouse | load |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        low, middle, high = row.more_cpu_ms
        cells = [str(row.groups), str(row.pairs), f"{row.plain_cpu_ms:.0f}"]
        cells += [f"{middle:+.1f} ({low:+.1f} to {high:+.1f}), {row.mean_more_cpu_ms:+.1f}"]
        cells += [f"{row.torchft_ms_per_s:.1f}", f"{row.lighthouse_ms_per_s:.1f}"]
        cells += [f"{100 * part:+.1f} %" for part in row.overhead()]
        print("| " + " | ".join([*cells, f"{row.load}"]) + " |")


if __name__ == "__main__":
    main()
