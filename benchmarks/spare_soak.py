"""Kill, repair, re-join, hundreds of steps long: what survivors hold in memory, descriptors and threads.

Every few steps a random group is killed (the first too, whose store the others meet at) and started again
at once; the next is killed when it is back. Two groups are never killed: of these, resident memory, open
file descriptors and threads are taken once a cycle, after the others are back. The slope is a least-squares
line over the cycles behind the first fifth.

    python benchmarks/spare_soak.py [--json] [--steps 500] [--groups N] [--every STEPS]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from spare_lighthouse import Lighthouse
from spare_processes import Job, Processes, load, read_lines, run_session, scratch

UNITS = {"rss_kib": "resident memory, KiB", "descriptors": "file descriptors", "threads": "threads"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Of one survivor."""

    group: int
    what: str
    first: int  #: behind the first fifth of the cycles
    last: int
    largest: int
    per_100_steps: float  #: slope


def sample(pid: int) -> dict[str, int]:
    process = Path(f"/proc/{pid}")
    pages = int((process / "statm").read_text().split()[1])
    return {
        "rss_kib": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
        "descriptors": len(os.listdir(process / "fd")),
        "threads": len(os.listdir(process / "task")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--every", type=int, default=8, help="steps between a return and the next kill")
    parser.add_argument("--sleep-ms", type=float, default=5.0, help="of a micro-batch")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    before = load()
    rng = random.Random(args.seed)
    began = time.monotonic()
    taken: list[tuple[int, dict[int, dict[str, int]]]] = []  # step, group, what
    with scratch() as folder, Lighthouse(heartbeat_timeout_ms=300, quorum_tick_ms=20) as lighthouse:
        job = Job(
            groups=args.groups,
            micro_batches=4,
            folder=folder,
            lighthouse=lighthouse.address,
            sleep_s=args.sleep_ms / 1e3,
            rejoin_s=0.1,
        )
        stay = [1, args.groups - 1]
        mortal = [group for group in range(args.groups) if group not in stay]
        with Processes(job) as processes:
            for group in range(args.groups):
                processes.start(run_session, group)
            processes.wait_for_step(10)
            while (step := max(processes.progress)) < args.steps:
                taken.append((step, {group: sample(processes.running[group].pid) for group in stay}))
                victim = rng.choice(mortal)
                time.sleep(rng.random() * 4 * job.sleep_s)
                processes.kill(victim)
                processes.progress[victim] = 0
                processes.start(run_session, victim)
                processes.wait_for_step(max(processes.progress) + args.every)
        commits = [line for line in read_lines(folder, "spare.*") if line["what"] == "commit"]
    rows = [series(taken, group, what) for group in stay for what in UNITS]
    whole = all(line["equal"] and line["contained"] == job.parts for line in commits)
    steps = sorted({line["step"] for line in commits})
    found = {
        "steps": steps[-1] + 1,
        "missing_steps": steps[-1] + 1 - len(steps),
        "every_micro_batch_counts_once": whole,
        "kills": len(taken),
        "seconds": round(time.monotonic() - began, 1),
        "load": before,
        "rows": [asdict(row) for row in rows],
    }
    if args.json:
        print(json.dumps(found, indent=2))
        return
    print(
        f"{args.groups} groups, {found['steps']} steps, {found['kills']} kills and returns in "
        f"{found['seconds']} s; steps missing: {found['missing_steps']}; every micro-batch counts once in "
        f"every step: {whole}; load {before}"
    )
    print("| survivor | | first | last | largest | slope per 100 steps |\n|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| group {row.group} | {UNITS[row.what]} | {row.first:,} | {row.last:,} | {row.largest:,} "
            f"| {row.per_100_steps:+.2f} |"
        )


def series(taken: list[tuple[int, dict[int, dict[str, int]]]], group: int, what: str) -> Series:
    settled = taken[len(taken) // 5 :]
    steps = np.array([step for step, _ in settled])
    values = np.array([of[group][what] for _, of in settled])
    slope = float(np.polyfit(steps, values, 1)[0]) if len(steps) > 2 else 0.0
    return Series(
        group=group,
        what=what,
        first=int(values[0]),
        last=int(values[-1]),
        largest=int(values.max()),
        per_100_steps=round(slope * 100, 3),
    )


if __name__ == "__main__":
    main()
