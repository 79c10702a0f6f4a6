"""Time and memory of `prism collect` by world size: the example Megatron job, pipeline 8, tensor 8, 8B shape.

Each size is one `prism collect` in a fresh process, on as many slots as there are cores. Memory, while
it runs, every quarter of a second: what all its processes hold together, of which the largest is told
(Linux, smaps_rollup: the proportional shares of memory of their own, so that what ranks share with the
parent that forked them counts once, and the files of the process that has most of them mapped, as
programs elsewhere on the machine may share those); and the resident set of the largest process.

    python benchmarks/collect_scale.py [--json] [--worlds LIST] [--preset 8b|70b]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "examples" / "megatron_gpt.py"
JOBS = {
    "8b": ["--preset", "8b", "--tp", "8", "--pp", "8", "--micro-batches", "16"],
    "70b": ["--preset", "70b", "--tp", "8", "--pp", "16", "--micro-batches", "32"],
}
COLUMNS = (
    "world_size",
    "wall_time_s",
    "ranks_run",
    "classes",
    "blocks",
    "file_bytes",
    "all_processes_mib",
    "largest_process_mib",
)
SAMPLE_S = 0.25


class MemoryWatch:
    """The most that a process and all that descend from it hold together."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak_kib = 0

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            held = [held_kib(process) for process in descendants(self._root)]
            self.peak_kib = max(self.peak_kib, sum(own for own, _ in held) + max(files for _, files in held))


def held_kib(process: int) -> tuple[int, int]:
    """Share of memory of its own (anonymous, or in memory files), and mapped files; 0 once it has ended."""
    try:
        rows = (line.split() for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:])
        sizes = {row[0]: int(row[1]) for row in rows}
        status = Path(f"/proc/{process}/status").read_text()
        files = int(status.partition("RssFile:")[2].split()[0])
        return sizes["Pss_Anon:"] + sizes["Pss_Shmem:"], files
    except (OSError, IndexError, KeyError):  # ended, or about to
        return 0, 0


def descendants(root: int) -> list[int]:
    found = [root]
    for process in found:
        for tasks in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                found += map(int, tasks.read_text().split())
            except OSError:
                continue
    return found


def collect(world: int, preset: str, folder: str) -> dict[str, float]:
    command = [sys.executable, "-m", "prismcore", "collect", "--json", "--world-size", str(world)]
    command += ["-o", f"{folder}/job.prism", "--", str(SCRIPT), *JOBS[preset]]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        with MemoryWatch(running.pid) as memory:
            out, _ = running.communicate()
        if running.returncode != 0:
            sys.exit(f"prism collect ended with exit code {running.returncode}")
    row = json.loads(out)
    row["all_processes_mib"] = round(memory.peak_kib / 1024)
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    row["largest_process_mib"] = round(largest)
    return {key: row[key] for key in COLUMNS}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="machine output")
    parser.add_argument("--worlds", default="64,512,8192", help="comma-separated")
    parser.add_argument("--preset", choices=JOBS, default="8b")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [collect(int(world), args.preset, folder) for world in args.worlds.split(",")]
    if args.json:
        print(json.dumps({"benchmark": "collect_scale", "preset": args.preset, "rows": rows}))
        return
    print("  ".join(f"{column:>{max(11, len(column))}}" for column in COLUMNS))
    for row in rows:
        print("  ".join(f"{row[column]:>{max(11, len(column))}.7g}" for column in COLUMNS))


if __name__ == "__main__":
    main()
