"""Builds a graph in one process and replays it in another: what a user's process would take.

Run as a script it is that other process; see replay_scale.py and replay_event.py.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).resolve()


@dataclass(kw_only=True, slots=True)
class Measurement:
    """One replay in a fresh process; the best of some repeats."""

    workload: str
    ranks: int
    events: int
    iterations: int
    file_bytes: int
    build_s: float
    load_s: float
    replay_s: float  #: wall time of the replay itself, graph opened
    cpu_s: float  #: its processor time; less than the wall time where others use the machine
    ns_per_event: float  #: of processor time
    peak_rss_bytes: int  #: of the replaying process, Python and numpy included
    total_virtual_time_ns: int


def measure(workload: str, ranks: int, *, repeats: int = 1, threads: int = 1) -> Measurement:
    """Builds and replays one workload, each in its own process."""
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        path = Path(folder) / "job.prism"
        common = ["--workload", workload, "--ranks", str(ranks)]
        built = _child(["--build", str(path), *common])
        done = _child(["--replay", str(path), *common, "--repeats", str(repeats), "--threads", str(threads)])
    return Measurement(**(built | done))


def _child(arguments: list[str]) -> dict[str, float]:
    child = subprocess.run([sys.executable, str(HERE), *arguments], stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(child.stdout)
    return found


def _build(path: Path, workload: str, ranks: int) -> dict[str, object]:
    from replay_inputs import WORKLOADS

    begin = time.perf_counter()
    graph = WORKLOADS[workload](ranks)
    build_s = time.perf_counter() - begin
    graph.save(path)
    return {"workload": workload, "ranks": ranks, "build_s": build_s, "file_bytes": graph.file_bytes}


def _replay(path: Path, repeats: int, threads: int) -> dict[str, object]:
    from prismcore.graph import Graph
    from prismcore.replay import replay

    begin = time.perf_counter()
    graph = Graph.open(path)
    load_s = time.perf_counter() - begin
    replay_s = cpu_s = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        result = replay(graph, threads=threads)
        cpu_s = min(cpu_s, time.process_time() - begin)
        replay_s = min(replay_s, result.wall_time_s)
    return {
        "events": result.events,
        "iterations": len(result.iteration_time_ns),
        "load_s": load_s,
        "replay_s": replay_s,
        "cpu_s": cpu_s,
        "ns_per_event": cpu_s * 1e9 / result.events,
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "total_virtual_time_ns": int(result.iteration_time_ns.sum()),
    }


def show(title: str, rows: list[Measurement], *, as_json: bool) -> None:
    """A table, or JSON."""
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    from rich.console import Console

    from prismcore.report.table import rows_table
    from prismcore.report.units import format_wall

    columns = [
        "workload",
        "ranks",
        "events",
        "build",
        "load",
        "replay",
        "cpu",
        "peak rss",
        "cpu ns per event",
    ]
    table = [
        [
            *(row.workload, row.ranks, row.events),
            *(format_wall(seconds) for seconds in (row.build_s, row.load_s, row.replay_s, row.cpu_s)),
            *(f"{row.peak_rss_bytes / (1 << 20):.0f} MiB", f"{row.ns_per_event:.1f}"),
        ]
        for row in rows
    ]
    console = Console()
    if not console.is_terminal:
        console.width = 120
    console.print(rows_table(title, columns, table))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path)
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--workload", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--repeats", type=int, default=1, choices=range(1, 100), metavar="N")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.build:
        print(json.dumps(_build(args.build, args.workload, args.ranks)))
    else:
        print(json.dumps(_replay(args.replay, args.repeats, args.threads)))


if __name__ == "__main__":
    main()
