"""How far modelled collectives are from measured ones. Needs no GPU.

Reads public measurements (vTrain's all-reduce tables, AICB's collectives, a Megatron trace) from
the folder that PRISM_DATA names, else ../shared/data beside the checkout, and prints a table and,
with --json, one JSON object:

    python benchmarks/comm_accuracy.py [--json] [--fit] [--data FOLDER]

error = modelled / measured - 1. What was used for fitting a100-8x is marked "fit"; the other rows
are the check. --fit prints the figures of [one_node.calibration] that the fit gives (needs scipy).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from prismcore._core import ClusterProfile as CoreProfile
from prismcore.comm import collective_cost
from prismcore.profiles.cluster import Calibration, load_cluster

MIB = 1 << 20
FIT_GPUS = (2, 4, 8)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    kind: str
    nbytes: int
    ranks: int
    dtype: str
    measured_us: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Errors of one set of samples: mean signed, mean absolute, largest absolute."""

    set: str
    model: str
    samples: int
    mean: float
    mean_abs: float
    worst: float


def data_folder() -> Path | None:
    named = os.environ.get("PRISM_DATA")
    path = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    return path if path.is_dir() else None


def vtrain(data: Path, gpus: int) -> list[Sample]:
    """All-reduces of 1 to 1,024 MiB on `gpus` A100 of one node (nccl-tests, out of place)."""
    with (data / "vtrain" / "allreduce_a100" / f"AR_GPU{gpus}_1M_1024M_LUT").open() as table:
        lines = list(csv.reader(table))[1:]
    return [
        Sample(
            kind="all_reduce",
            nbytes=int(line[0]),
            ranks=gpus,
            dtype="float32",
            measured_us=float(line[3]) / 1e3,
        )
        for line in lines
    ]


def aicb(data: Path) -> list[Sample]:
    """Medians of collectives whose group size is known; elapsed time includes the host's launch."""
    times: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    with gzip.open(data / "aicb" / "A100_example_even.csv.gz", "rt") as table:
        for line in csv.DictReader(table):
            if line["comm_group_size"] in ("", "None"):
                continue
            key = (
                line["comm_type"].removeprefix("CommType."),
                int(line["comm_group_size"]),
                int(line["msg_size"]),
            )
            times[key].append(float(line["_elapsed_time"]) * 1e3)
    return [
        Sample(
            kind=kind, nbytes=nbytes, ranks=ranks, dtype="bfloat16", measured_us=statistics.median(elapsed)
        )
        for (kind, ranks, nbytes), elapsed in sorted(times.items())
        if len(elapsed) >= 5
    ]


def megatron_tp8(data: Path) -> list[Sample]:
    """84 all-reduces on 8 A100; transfer time is the shortest kernel of the 8 ranks."""
    per_rank = []
    for rank in range(8):
        with gzip.open(data / "megatron_tp8" / f"kineto_rank{rank}.json.gz", "rt") as trace:
            events = json.load(trace)["traceEvents"]
        kernels = [e for e in events if e.get("cat") == "kernel" and "nccl" in e["name"].lower()]
        per_rank.append(sorted(kernels, key=lambda e: e["ts"]))
    samples = []
    for same in zip(*per_rank, strict=True):
        half = "f16" in same[0]["name"]
        samples.append(
            Sample(
                kind="all_reduce",
                nbytes=64 * MIB if half else 32 * 1024,
                ranks=8,
                dtype="float16" if half else "float32",
                measured_us=float(min(kernel["dur"] for kernel in same)),
            )
        )
    return samples


def uncalibrated() -> CoreProfile:
    plain = load_cluster("a100-8x")
    plain.one_node.calibration = Calibration()
    return plain.to_core()


def modelled_us(sample: Sample, profile: CoreProfile) -> float:
    cost = collective_cost(
        sample.kind, sample.nbytes, range(sample.ranks), cluster=profile, dtype=sample.dtype
    )
    return cost.duration_ns / 1e3


def row(name: str, model: str, samples: Iterable[Sample], profile: CoreProfile) -> Row:
    errors = [modelled_us(sample, profile) / sample.measured_us - 1 for sample in samples]
    return Row(
        set=name,
        model=model,
        samples=len(errors),
        mean=statistics.fmean(errors),
        mean_abs=statistics.fmean(map(abs, errors)),
        worst=max(map(abs, errors)),
    )


def host_share_us(samples: Sequence[Sample], profile: CoreProfile) -> float:
    """What AICB's elapsed times hold besides the transfer: median over the messages to 64 KiB."""
    small = [s.measured_us - modelled_us(s, profile) for s in samples if 0 < s.nbytes <= 65536]
    return statistics.median(small)


def without(samples: Sequence[Sample], host_us: float) -> list[Sample]:
    return [
        Sample(
            kind=s.kind,
            nbytes=s.nbytes,
            ranks=s.ranks,
            dtype=s.dtype,
            measured_us=s.measured_us - host_us,
        )
        for s in samples
    ]


def fit(data: Path) -> dict[str, list[float]]:
    """Bandwidth efficiency, extra latency (us) and fill steps, by protocol.

    Sizes a quarter of a power of two apart weigh equally; each protocol is fitted where NCCL chooses
    it: Simple from 8 MiB, LL128 from 4 MiB on 4 and 8 GPUs (below, the launch of 8 GPUs by one
    process bounds the measurement).
    """
    from scipy.optimize import least_squares

    plain = uncalibrated()
    spaced = {round(2 ** (k / 4)) * MIB for k in range(41)}

    def chosen(protocol: str, floor: int, sizes: set[int] | None) -> list[tuple[int, float, float, float]]:
        out = []
        for gpus in FIT_GPUS:
            for sample in vtrain(data, gpus):
                if sample.nbytes < floor or (sizes is not None and sample.nbytes not in sizes):
                    continue
                cost = collective_cost(
                    "all_reduce", sample.nbytes, range(gpus), cluster=plain, dtype="float32"
                )
                if cost.protocol != protocol:
                    continue
                steps = 2 * (gpus - 1)
                hop, base = (3.4, 8.4) if protocol == "simple" else (1.9, 14.0)
                latency = base + steps * hop
                transfer = cost.duration_ns / 1e3 - latency
                out.append((steps, latency, transfer, sample.measured_us))
        return out

    def solve(samples: list[tuple[int, float, float, float]], fills: bool) -> list[float]:
        def residuals(x: Sequence[float]) -> list[float]:
            efficiency, extra, fill = x[0], x[1], x[2] if fills else 0.0
            return [
                (latency + extra + transfer / efficiency * (steps + fill) / steps) / measured - 1
                for steps, latency, transfer, measured in samples
            ]

        start = [0.95, 20.0, 0.4] if fills else [0.9, 10.0]
        return [round(float(v), 3) for v in least_squares(residuals, start, loss="soft_l1", f_scale=0.02).x]

    return {
        "simple": solve(chosen("simple", 8 * MIB, spaced), fills=True),
        "ll128": solve(chosen("ll128", 4 * MIB, None), fills=False),
    }


def rows(data: Path) -> list[Row]:
    profile = load_cluster("a100-8x").to_core()
    plain = uncalibrated()
    tables = {gpus: vtrain(data, gpus) for gpus in range(2, 9)}
    out = []
    for low, high in ((32, 1024), (8, 31), (1, 7)):
        for part, fitted in (("fit", True), ("check", False)):
            chosen = [
                sample
                for gpus, samples in tables.items()
                if (gpus in FIT_GPUS) == fitted
                for sample in samples
                if low * MIB <= sample.nbytes <= high * MIB
            ]
            gpus = "2, 4, 8" if fitted else "3, 5, 6, 7"
            name = f"vTrain all-reduce, {gpus} GPUs, {low} to {high} MiB ({part})"
            out.append(row(name, "NCCL's own", chosen, plain))
            out.append(row(name, "a100-8x", chosen, profile))
    megatron = megatron_tp8(data)
    for name, chosen in (
        ("Megatron TP 8 all-reduce, 64 MiB (check)", [s for s in megatron if s.nbytes > MIB]),
        ("Megatron TP 8 all-reduce, 32 KiB (check)", [s for s in megatron if s.nbytes < MIB]),
    ):
        out.append(row(name, "NCCL's own", chosen, plain))
        out.append(row(name, "a100-8x", chosen, profile))
    collectives = aicb(data)
    large = [s for s in collectives if s.nbytes >= 1 << 30]
    for model, figures in (("NCCL's own", plain), ("a100-8x", profile)):
        out.append(
            row("AICB all-gather, reduce-scatter, 17 and 33 GiB, 4 GPUs (check)", model, large, figures)
        )
    middle = [s for s in collectives if MIB <= s.nbytes < 1 << 30 and s.ranks == 2]
    for model, figures in (("NCCL's own", plain), ("a100-8x", profile)):
        host_us = host_share_us(collectives, figures)
        name = f"AICB, 8 and 16 MiB, 2 GPUs, less {host_us:.0f} us of host time (check)"
        out.append(row(name, model, without(middle, host_us), figures))
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the measurements")
    parser.add_argument("--fit", action="store_true", help="print the fitted calibration instead")
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout")
    options = parser.parse_args(arguments)
    data = options.data or data_folder()
    if data is None or not data.is_dir():
        print("no measurements: set PRISM_DATA or --data to the folder that holds vtrain/", file=sys.stderr)
        return 1
    if options.fit:
        print(json.dumps(fit(data), indent=1))
        return 0
    found = rows(data)
    if options.json:
        print(json.dumps({"rows": [asdict(one) for one in found]}, indent=1))
        return 0
    print(f"{'set':<80} {'model':<10} {'n':>5} {'mean':>7} {'|mean|':>7} {'worst':>7}")
    for one in found:
        print(
            f"{one.set:<80} {one.model:<10} {one.samples:>5} "
            f"{one.mean:>+7.1%} {one.mean_abs:>7.1%} {one.worst:>7.1%}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
