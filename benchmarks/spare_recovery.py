"""From SIGKILL to the next committed step, and what of the protocol takes it.

One training for each number of groups (one process each, gloo, the model of spare_processes.py). A random
group is killed at a random moment of a step; once the others have gone on, it is started again and joins,
and the next one is killed. "Committed" is the moment at which the last survivor has the mean gradients of
the first step that is committed without the dead group. Micro-batches take a fixed time in which the
processor is free, as where a device computes (--sleep-ms), beside their own small work. Stages end when
the last survivor is through with them:

    noticed       the connections broke, or a look at the lighthouse showed that a group is dead; that
                  includes the rest of the step's own work, which goes on until the sum
    quorum        the lighthouse has answered
    communicator  the new one is there
    ready         the barrier behind it, and the new plan
    patches       the lost micro-batches are computed
    sum           gradients are summed
    commit        the barrier of the commit

    python benchmarks/spare_recovery.py [--json] [--groups 8,16] [--kills N] [--sleep-ms MS]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from spare_lighthouse import Lighthouse
from spare_processes import Job, Processes, load, read_lines, run_session, scratch

STAGES = ("noticed", "quorum", "communicator", "ready", "patches", "sum", "commit")


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Milliseconds: median, and largest, over the kills."""

    groups: int
    kills: int
    step_ms: float  #: median of undisturbed steps
    total_ms: tuple[float, float]  #: from the kill to the next committed step
    beyond_ms: tuple[float, float]  #: the same less one step
    stages_ms: dict[str, tuple[float, float]]
    whole: bool  #: every committed step contains each micro-batch with the same share
    load: float  #: of the machine, before
    each_ms: list[float]


def stages(lines: list[dict[str, Any]], killed: int, survivors: list[int]) -> dict[str, float]:
    """When the last survivor was through each, ms after the kill."""
    ends = dict.fromkeys(STAGES, 0.0)
    for group in survivors:
        mine = [line for line in lines if line["group"] == group and line["time_ns"] > killed]
        first = next(i for i, line in enumerate(mine) if line.get("point") == "configure")
        last = next(i for i, line in enumerate(mine) if i > first and line["what"] == "commit")
        points = [(line.get("point"), (line["time_ns"] - killed) / 1e6) for line in mine[: last + 1]]
        commit = points[-1][1]
        found = {"noticed": min(ms for point, ms in points if point == "agree")}
        found["quorum"] = max(ms for point, ms in points if point == "configure")
        found["communicator"] = max(ms for point, ms in points if point == "transfer")
        after = [(point, ms) for point, ms in points if ms > found["communicator"]]
        # Where all held the sum already, the agreement itself commits the step.
        found["ready"] = min([ms for point, ms in after if point in ("patch", "reduce")], default=commit)
        found["patches"] = max([ms for point, ms in after if point == "reduce"], default=commit)
        found["sum"] = max([ms for point, ms in after if point == "commit"], default=commit)
        found["commit"] = commit
        ends = {name: max(ends[name], found[name]) for name in STAGES}
    return ends


def measure(groups: int, kills: int, sleep_ms: float, micro_batches: int, seed: int) -> Row:
    before = load()
    rng = random.Random(seed)
    with scratch() as folder, Lighthouse(heartbeat_timeout_ms=300, quorum_tick_ms=20) as lighthouse:
        job = Job(
            groups=groups,
            micro_batches=micro_batches,
            folder=folder,
            lighthouse=lighthouse.address,
            sleep_s=sleep_ms / 1e3,
        )
        struck = []
        everyone = list(range(groups))
        with Processes(job) as processes:
            for group in everyone:
                processes.start(run_session, group)
            processes.wait_for_step(8)
            for _ in range(kills):
                victim = rng.choice(everyone)
                time.sleep(rng.random() * micro_batches * sleep_ms / 1e3)
                killed = processes.kill(victim)
                struck.append((killed, victim))
                survivors = [group for group in everyone if group != victim]
                processes.wait_for_step(max(processes.progress) + 4, survivors)
                processes.progress[victim] = 0
                processes.start(run_session, victim)
                processes.wait_for_step(max(processes.progress) + 4)
        lines = read_lines(folder, "spare.*")
    commits = [line for line in lines if line["what"] == "commit"]
    # Undisturbed: steps of the first group before the first kill, from the third on.
    own = [c["time_ns"] for c in commits if c["group"] == 0 and c["time_ns"] < struck[0][0]][2:]
    step_ms = statistics.median((b - a) / 1e6 for a, b in pairwise(own))
    totals, parts = [], {name: [] for name in STAGES}
    for killed, victim in struck:
        ends = stages(lines, killed, [group for group in everyone if group != victim])
        totals.append(ends["commit"])
        begin = 0.0
        for name in STAGES:
            parts[name].append(ends[name] - begin)
            begin = ends[name]
    return Row(
        groups=groups,
        kills=kills,
        step_ms=step_ms,
        total_ms=summary(totals),
        beyond_ms=summary([total - step_ms for total in totals]),
        stages_ms={name: summary(values) for name, values in parts.items()},
        whole=all(c["equal"] and c["contained"] == job.parts for c in commits),
        load=before,
        each_ms=[round(total, 1) for total in totals],
    )


def summary(values: list[float]) -> tuple[float, float]:
    return round(statistics.median(values), 1), round(max(values), 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", default="8,16", help="comma-separated")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--sleep-ms", type=float, default=25.0, help="of a micro-batch")
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [
        measure(int(groups), args.kills, args.sleep_ms, args.micro_batches, args.seed)
        for groups in args.groups.split(",")
    ]
    if args.json:
        print(json.dumps({"cores": os.cpu_count(), "rows": [asdict(row) for row in rows]}, indent=2))
        return
    head = ["groups", "kills", "step, ms", "kill to commit, median / max", "less one step", *STAGES, "load"]
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        cells = [row.groups, row.kills, f"{row.step_ms:.0f}"]
        cells += [f"{a:.0f} / {b:.0f}" for a, b in (row.total_ms, row.beyond_ms, *row.stages_ms.values())]
        print("| " + " | ".join(map(str, [*cells, row.load])) + " |")
    if not all(row.whole for row in rows):
        print("A committed step does not contain every micro-batch once.")


if __name__ == "__main__":
    main()
