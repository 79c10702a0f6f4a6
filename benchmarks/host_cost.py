"""What calls cost the host, in public Kineto traces. Needs no GPU.

    python benchmarks/host_cost.py [--json] [--data FOLDER]

reads the traces of a Megatron job (A100, forward) in the folder that PRISM_DATA names, else
../shared/data beside the checkout. Two things are printed, in microseconds, over all ranks: how long
the runtime's calls take by kind, and how much host time lies between one kernel launch and the next on
the launching thread where the host is the bottleneck (the second kernel started within 15 us of
its launch, so that the device was waiting for it). The profiler and its recording of shapes are in
both: they bound an unprofiled trainer from above.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

STARTED_AT_ONCE_US = 15
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Microseconds: quantiles at 10, 25, 50, 75 and 90 percent, and the mean."""

    what: str
    count: int
    quantiles: tuple[float, ...]
    mean: float


def data_folder() -> Path | None:
    named = os.environ.get("PRISM_DATA")
    path = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    return path if path.is_dir() else None


def row(what: str, values: list[float]) -> Row:
    ordered = sorted(values)
    at = tuple(ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in QUANTILES)
    return Row(what=what, count=len(values), quantiles=at, mean=statistics.fmean(values))


def collect(trace: Path, calls: dict[str, list[float]], gaps: dict[str, list[float]]) -> None:
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    runtime = [event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    kernels = {e["args"]["correlation"]: e for e in events if e.get("cat") == "kernel"}
    for event in runtime:
        calls[event["name"]].append(event["dur"])
    launches = [event for event in runtime if event["args"].get("correlation") in kernels]
    thread = Counter(event["tid"] for event in launches).most_common(1)[0][0]
    ordered = sorted((e for e in launches if e["tid"] == thread), key=lambda event: event["ts"])

    def is_communication(event: dict[str, Any]) -> bool:
        return "nccl" in kernels[event["args"]["correlation"]]["name"].lower()

    for before, launch in pairwise(ordered):
        kernel = kernels[launch["args"]["correlation"]]
        if kernel["ts"] - (launch["ts"] + launch["dur"]) > STARTED_AT_ONCE_US:
            continue
        kind = "to a communication launch" if is_communication(launch) else "to a compute launch"
        gaps[f"launch {kind}, host-bound"].append(launch["ts"] - before["ts"])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, default=data_folder())
    options = parser.parse_args()
    traces = sorted(options.data.glob("megatron_tp8/kineto_rank*.json.gz")) if options.data else []
    if not traces:
        print("no traces: set PRISM_DATA to a folder with megatron_tp8/kineto_rank*.json.gz", file=sys.stderr)
        return 1
    calls: dict[str, list[float]] = defaultdict(list)
    gaps: dict[str, list[float]] = defaultdict(list)
    for trace in traces:
        collect(trace, calls, gaps)
    rows = [row(what, values) for what, values in sorted(gaps.items())]
    rows += [row(name, values) for name, values in sorted(calls.items(), key=lambda item: -len(item[1]))]
    if options.json:
        print(json.dumps({"ranks": len(traces), "rows": [asdict(r) for r in rows]}))
        return 0
    print("| what | count | 10 % | 25 % | median | 75 % | 90 % | mean |")
    print("|---|---|---|---|---|---|---|---|")
    for found in rows:
        figures = " | ".join(f"{value:g}" for value in found.quantiles)
        print(f"| {found.what} | {found.count} | {figures} | {found.mean:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
