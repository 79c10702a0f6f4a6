"""How near the wall clock comes to the virtual one: the same jobs, the same sandbox ranks, on both.

Two Megatron jobs of examples/megatron_gpt.py: world 16 (tensor 2, pipeline 4, data 2) and world 32 with
experts (expert 4). Their layers and micro-batches are large, so that the device is the bottleneck; where the
host is, the wall clock shows this machine's Python. The first iteration holds the set-up and is virtual
on both, so it is left out. The error is that of the job's iteration time.

    python benchmarks/wall_clock.py [--json] [--jobs dense,experts] [--sandbox LIST/LIST...] [--iterations N]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "examples" / "megatron_gpt.py"
LARGE = ["--layers", "8", "--hidden", "8192", "--heads", "64", "--ffn", "28672", "--vocab", "32000"]
LARGE += ["--seq", "8192", "--micro-batches", "8", "--recompute", "full"]
EXPERTS = ["--layers", "8", "--hidden", "4096", "--heads", "32", "--ffn", "14336", "--vocab", "32000"]
EXPERTS += ["--seq", "8192", "--micro-batches", "8", "--recompute", "full"]
JOBS = {
    "dense": (16, [*LARGE, "--micro-batch-size", "16", "--tp", "2", "--pp", "4"]),
    "experts": (
        32,
        [*EXPERTS, "--micro-batch-size", "16", "--tp", "2", "--pp", "2", "--ep", "4", "--experts", "8"],
    ),
}


def prism(*arguments: object) -> dict[str, object]:
    command = [sys.executable, "-m", "prismcore", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"prism {arguments[0]} ended with exit code {done.returncode}")
    told: dict[str, object] = json.loads(done.stdout)
    return told


def compare(graph: Path, sandbox: str, program: list[str]) -> list[dict[str, object]]:
    told = {
        clock: prism(
            "emulate", graph, "--json", "--sandbox", sandbox, "--clock", clock, "--", SCRIPT, *program
        )
        for clock in ("virtual", "wall")
    }
    rows = []
    for rank in sandbox.split(","):
        virtual, wall = (told[clock]["sandbox"][rank] for clock in ("virtual", "wall"))  # type: ignore[index]
        times = zip(virtual["iteration_time_ns"], wall["iteration_time_ns"], strict=True)
        for iteration, (expected, found) in enumerate(times):
            if iteration == 0:
                continue
            rows.append(
                {
                    "sandbox": sandbox,
                    "rank": int(rank),
                    "iteration": iteration,
                    "virtual_ns": expected,
                    "wall_ns": found,
                    "error": found / expected - 1,
                }
            )
    wall_told = told["wall"]
    for row in rows:
        row |= {key: wall_told[key] for key in ("release_error_ns", "paced_answers", "overdue_answers")}
        row["peaks_equal"] = all(
            wall_told["sandbox"][r]["peak_allocated_bytes"]  # type: ignore[index]
            == told["virtual"]["sandbox"][r]["peak_allocated_bytes"]  # type: ignore[index]
            for r in sandbox.split(",")
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--jobs", default="dense,experts")
    parser.add_argument("--sandbox", default="0/0,5", help="lists of ranks, each an emulation, parted by /")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="machine output")
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        for name in args.jobs.split(","):
            world, program = JOBS[name]
            program = [*program, "--iterations", str(args.iterations)]
            graph = Path(folder) / f"{name}.prism"
            collect = ["--json", "--world-size", world, "--ranks", "all", "--iterations", args.iterations]
            prism("collect", *collect, "-o", graph, "--", SCRIPT, *program)
            for sandbox in args.sandbox.split("/"):
                rows += [{"job": name, **row} for row in compare(graph, sandbox, program)]
    errors = [abs(float(str(row["error"]))) for row in rows]
    mean, worst = sum(errors) / len(errors), max(errors)
    found = {"benchmark": "wall_clock", "load": os.getloadavg()[0], "mean_error": mean, "worst_error": worst}
    if args.json:
        print(json.dumps({**found, "rows": rows}, indent=2))
        return
    for row in rows:
        virtual, wall = (int(str(row[key])) / 1e6 for key in ("virtual_ns", "wall_ns"))
        print(
            f"{row['job']:<8} ran {row['sandbox']:<8} rank {row['rank']:>2} iteration {row['iteration']}  "
            f"virtual {virtual:10.3f} ms  wall {wall:10.3f} ms  {100 * (wall / virtual - 1):+.3f} %  "
            f"paced {row['paced_answers']}, overdue {row['overdue_answers']}"
        )
    print(
        f"mean {100 * mean:.3f} %, worst {100 * worst:.3f} % (goal: 0.58 %, 1.98 %); load {found['load']:.1f}"
    )


if __name__ == "__main__":
    main()
