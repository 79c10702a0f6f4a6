"""Sandbox ranks among ghosts against the replay of the same job, to the nanosecond and to the byte.

Each job is collected with every rank, then emulated with 1, 2 and 4 of its ranks as sandbox, and with all
of them where that is asked for. `iterations_off_ns`: largest difference of an iteration's end, over all
ranks, from the replay; `memory_off_bytes`: of a sandbox rank's peaks, allocated and reserved, from what it
recorded. Where a rank left its recorded program the difference is told instead.

    python benchmarks/emulate_agreement.py [--json] [--jobs LIST] [--all]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prismcore.collect import CollectOptions, collect
from prismcore.emulate import EmulateOptions, emulate
from prismcore.errors import DivergenceError
from prismcore.graph import Graph
from prismcore.replay import replay
from prismcore.routing import PRESETS

SCRIPT = str(Path(__file__).resolve().parent.parent / "examples" / "megatron_gpt.py")
SHAPE = ("--layers", "4", "--hidden", "256", "--heads", "8", "--ffn", "512", "--vocab", "1024")
SMALL = [*SHAPE, "--seq", "128", "--micro-batches", "4"]
EXPERTS = [*SMALL, "--experts", "8", "--topk", "2", "--ep", "4", "--tp", "2", "--pp", "2"]
JOBS: dict[str, tuple[int, list[str], str]] = {
    "dense": (16, [*SMALL, "--tp", "2", "--pp", "4"], "balanced"),
    **{preset: (32, EXPERTS, preset) for preset in PRESETS},
}
SANDBOXES = ((5,), (0, 9), (0, 3, 6, 13))
COLUMNS = ("job", "world_size", "sandbox", "iterations_off_ns", "memory_off_bytes", "wall_time_s", "told")


def measure(job: str, graph: Graph, sandbox: Sequence[int]) -> dict[str, Any]:
    world_size, arguments, _ = JOBS[job]
    begun = time.perf_counter()
    row: dict[str, Any] = {"job": job, "world_size": world_size, "sandbox": len(sandbox)}
    try:
        result = emulate(graph, EmulateOptions(command=[SCRIPT, *arguments], sandbox=sandbox))
    except DivergenceError as error:
        row |= {"iterations_off_ns": None, "memory_off_bytes": None, "told": str(error)}
    else:
        ends = np.abs(result.job.iteration_end_ns - replay(graph).iteration_end_ns)
        peaks = {rank: graph.rank(rank).peaks for rank in sandbox}
        memory = [
            abs(found - recorded)
            for rank, sandboxed in result.sandbox.items()
            for found, recorded in (
                (sandboxed.peak_allocated_bytes, peaks[rank].allocated_bytes),
                (sandboxed.peak_reserved_bytes, peaks[rank].reserved_bytes),
            )
        ]
        told = [warning for warning in result.warnings if " asked " in warning]
        row |= {
            "iterations_off_ns": int(ends.max()),
            "memory_off_bytes": max(memory),
            "told": "; ".join(told),
        }
    return row | {"wall_time_s": round(time.perf_counter() - begun, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--jobs", default=",".join(JOBS), help="of: %(default)s")
    parser.add_argument("--all", action="store_true", help="also all ranks of a job as sandbox")
    args = parser.parse_args()
    rows = []
    for job in args.jobs.split(","):
        world_size, arguments, routing = JOBS[job]
        options = CollectOptions(
            command=[SCRIPT, *arguments], world_size=world_size, ranks="all", routing=routing
        )
        graph = collect(options).graph
        for sandbox in [*SANDBOXES, *([range(world_size)] if args.all else [])]:
            rows.append(measure(job, graph, sandbox))
            if not args.json:
                if len(rows) == 1:
                    print("  ".join(COLUMNS))
                print("  ".join(str(rows[-1][column]) for column in COLUMNS), flush=True)
    if args.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
