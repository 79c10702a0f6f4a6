"""Wall time of `prism collect` by world size: the example Megatron job, pipeline 8, tensor 8, 8B shape.

Each size is one `prism collect` in a fresh process, on as many slots as there are cores; the memory is
the largest process of it (ranks share most of theirs with the parent that forks them).

    python benchmarks/collect_scale.py [--json] [--worlds LIST] [--preset 8b|70b]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "examples" / "megatron_gpt.py"
JOBS = {
    "8b": ["--preset", "8b", "--tp", "8", "--pp", "8", "--micro-batches", "16"],
    "70b": ["--preset", "70b", "--tp", "8", "--pp", "16", "--micro-batches", "32"],
}
COLUMNS = ("world_size", "wall_time_s", "ranks_run", "classes", "blocks", "file_bytes", "largest_process_mib")


def collect(world: int, preset: str, folder: str) -> dict[str, float]:
    command = [sys.executable, "-m", "prismcore", "collect", "--json", "--world-size", str(world)]
    command += ["-o", f"{folder}/job.prism", "--", str(SCRIPT), *JOBS[preset]]
    row = json.loads(subprocess.check_output(command))
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
