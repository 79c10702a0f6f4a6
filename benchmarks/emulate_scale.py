"""Time and memory of `prism emulate` at 8,192 ranks: the 8B job, tensor 8, pipeline 8, two ranks that run.

The whole command in a fresh process. `bootstrap_s` is from the start of the command to the first op of the
last sandbox rank: what the command says of itself, and all the time that it was not yet, or no longer,
measuring. Memory as in collect_scale.py: what all processes hold together.

    python benchmarks/emulate_scale.py [--json] [--graph JOB.prism] [--sandbox LIST]

Without --graph the job is collected first (which is not measured).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from collect_scale import JOBS, SCRIPT, MemoryWatch

PROGRAM = [str(SCRIPT), *JOBS["8b"]]
GOALS = {"bootstrap_s": 20, "command_s": 60, "all_processes_mib": 4096}


def collect(path: Path) -> None:
    command = [sys.executable, "-m", "prismcore", "collect", "--json", "--world-size", "8192"]
    command += ["--device", "virtual:h100", "-o", str(path), "--", *PROGRAM]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def emulate(path: Path, sandbox: str) -> dict[str, object]:
    command = [sys.executable, "-m", "prismcore", "emulate", str(path), "--json", "--sandbox", sandbox]
    begin = time.perf_counter()
    with subprocess.Popen([*command, "--", *PROGRAM], stdout=subprocess.PIPE) as running:
        with MemoryWatch(running.pid) as memory:
            out, _ = running.communicate()
        command_s = time.perf_counter() - begin
        if running.returncode != 0:
            sys.exit(f"prism emulate ended with exit code {running.returncode}")
    told = json.loads(out)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "command_s": command_s,
        "bootstrap_s": told["bootstrap_s"] + command_s - told["wall_time_s"],
        "cpu_s": used.ru_utime + used.ru_stime,
        "all_processes_mib": round(memory.peak_kib / 1024),
        "largest_process_mib": round(used.ru_maxrss / 1024),
        **{key: told[key] for key in ("ghosts", "materialised_ghosts", "messages", "posts")},
        "iterations": len(next(iter(told["sandbox"].values()))["iteration_time_ns"]),
        "same_as_replay": told["median_iteration_time_ns"] == told["replay_median_iteration_time_ns"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--graph", type=Path)
    parser.add_argument("--sandbox", default="0,8")
    parser.add_argument("--json", action="store_true", help="machine output")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        graph = args.graph
        if graph is None:
            graph = Path(folder) / "job.prism"
            collect(graph)
        found = emulate(graph, args.sandbox)
    if args.json:
        print(json.dumps({"benchmark": "emulate_scale", **found}, indent=2))
        return
    for key, value in found.items():
        goal = f"  (goal: under {GOALS[key]})" if key in GOALS else ""
        print(f"{key:<22}{value:.1f}{goal}" if isinstance(value, float) else f"{key:<22}{value}{goal}")


if __name__ == "__main__":
    main()
