"""How far modelled kernels are from measured ones. Needs no GPU.

Reads the Kineto traces of a public Megatron job (8 A100, tensor parallel 8, forward pass) from the
folder that PRISM_DATA names, else ../shared/data beside the checkout, costs each kernel with the a100
profile, and prints a table a family and, with --kernels, a kernel; with --json, one JSON object:

    python benchmarks/kernel_accuracy.py [--kernels] [--json] [--data FOLDER]

error = modelled / measured - 1. Products get their dimensions from the op that launched them (the
library's kernels carry none), reductions and index_select the counts that the launch's arguments hold
(the virtual GPU reads them there); everything else is modelled from name and launch alone.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import os
import re
import statistics
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prismcore.cost import KernelShape, kernel_cost
from prismcore.profiles.device import load_device

DTYPES = {"c10::Half": "float16", "c10::BFloat16": "bfloat16", "float": "float32"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """One measured kernel: Kineto's name, the launch, the op's dimensions where it is a product."""

    name: str
    op: str
    shape: KernelShape
    measured_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Sums over the kernels of a group and rank, and the mean of the kernels' absolute errors."""

    group: str
    kernels: int
    measured_ms: float
    modelled_ms: float
    error: float | None
    mean_abs: float | None


def data_folder() -> Path | None:
    named = os.environ.get("PRISM_DATA")
    path = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    return path if path.is_dir() else None


def product(op: dict[str, Any]) -> dict[str, Any]:
    """Dimensions of a matrix product from its op's input shapes (row-major m x k times k x n)."""
    dims, types = op["args"].get("Input Dims"), op["args"].get("Input type")
    first = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}.get(op["name"])
    if first is None or dims is None:
        return {}
    a, b = dims[first], dims[first + 1]
    batch = math.prod(a[:-2])
    # Column-major libraries compute the transposed product.
    return {"m": b[-1], "n": a[-2], "k": a[-1], "batch": batch, "dtype": DTYPES[types[first]]}


def told(name: str, op: dict[str, Any]) -> dict[str, int]:
    """Counts that the launch's arguments hold and a trace does not: of reductions and index_select."""
    dims = op["args"].get("Input Dims") or [[]]
    if "reduce_kernel" in name and dims[0]:
        rows = 1 if op["name"] == "aten::any" or len(dims[0]) == 1 else math.prod(dims[0][:-1])
        return {"n": math.prod(dims[0]), "k": rows}
    if "indexSelectLargeIndex" in name:
        return {"n": math.prod(dims[0][1:]) * math.prod(dims[2])}
    return {}


def kernels_of(trace: Path) -> Iterator[Kernel]:
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    launches = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    ops: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "cpu_op" and "Input Dims" in event["args"]:
            ops[event["tid"]].append(event)
    for thread in ops.values():
        thread.sort(key=lambda op: op["ts"])
    starts = {thread: [op["ts"] for op in found] for thread, found in ops.items()}
    for event in events:
        if event.get("cat") != "kernel" or "nccl" in event["name"].lower():
            continue
        launch = launches[event["args"]["correlation"]]
        thread = launch["tid"]
        i = bisect_right(starts.get(thread, []), launch["ts"]) - 1
        # The op that started last and still runs.
        while i >= 0 and ops[thread][i]["ts"] + ops[thread][i]["dur"] < launch["ts"]:
            i -= 1
        op = ops[thread][i] if i >= 0 else None
        dims: dict[str, Any] = {}
        if op is not None:
            dims = product(op) if "gemm" in event["name"] else told(event["name"], op)
        args = event["args"]
        yield Kernel(
            name=event["name"],
            op=op["name"] if op is not None else "",
            shape=KernelShape(grid=tuple(args["grid"]), block=tuple(args["block"]), **dims),
            measured_us=float(event["dur"]),
        )


def summary(group: str, pairs: list[tuple[float, float]], ranks: int) -> Row:
    """pairs: measured and modelled microseconds."""
    measured, modelled = (sum(pair[i] for pair in pairs) / 1e3 / ranks for i in (0, 1))
    errors = [abs(model / real - 1) for real, model in pairs if real > 0]
    return Row(
        group=group,
        kernels=len(pairs) // ranks,
        measured_ms=measured,
        modelled_ms=modelled,
        error=modelled / measured - 1 if measured else None,
        mean_abs=statistics.fmean(errors) if errors else None,
    )


def short(kernel: Kernel) -> str:
    if kernel.shape.m:
        shape = kernel.shape
        return f"{kernel.op} {shape.batch} x {shape.n} x {shape.m} x {shape.k}"
    name = re.sub(r"^void |\(anonymous namespace\)::|at::native::|gpu_kernel_impl_nocast<", "", kernel.name)
    return re.sub(r"\(.*", "", name)[:70]


def compare(kernels: Iterable[Kernel], ranks: int, device: str, *, by_kernel: bool) -> list[Row]:
    profile = load_device(device).to_core()
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for kernel in kernels:
        cost = kernel_cost(kernel.name, kernel.shape, profile)
        family = cost.family if cost.provenance != "unknown" else "unknown"
        pair = (kernel.measured_us, cost.duration_ns / 1e3)
        groups[f"{family}: {short(kernel)}" if by_kernel else family].append(pair)
        if family != "unknown" and not by_kernel:
            groups["all but unknown"].append(pair)
    rows = [summary(group, pairs, ranks) for group, pairs in groups.items()]
    return sorted(rows, key=lambda row: -row.measured_ms)


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:+.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kernels", action="store_true", help="one row a kernel instead of a family")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--device", default="a100")
    options = parser.parse_args()
    traces = sorted(options.data.glob("megatron_tp8/kineto_rank*.json.gz")) if options.data else []
    if not traces:
        print("no traces: set PRISM_DATA to a folder with megatron_tp8/kineto_rank*.json.gz", file=sys.stderr)
        return 1
    found = [kernel for trace in traces for kernel in kernels_of(trace)]
    rows = compare(found, len(traces), options.device, by_kernel=options.kernels)
    if options.json:
        print(json.dumps({"device": options.device, "ranks": len(traces), "rows": [asdict(r) for r in rows]}))
        return 0
    print("| kernels | launches a rank | measured, ms | modelled, ms | error | mean of absolutes |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        figures = f"{row.kernels} | {row.measured_ms:.2f} | {row.modelled_ms:.2f}"
        print(f"| {row.group} | {figures} | {percent(row.error)} | {percent(row.mean_abs).lstrip('+')} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
