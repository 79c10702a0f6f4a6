"""Modelled collectives against measured ones (docs/accuracy.md); needs no GPU. Seconds.

    python benchmarks/accuracy/collectives.py --fit [--data FOLDER]

prints the figures of [one_node.calibration] that the fit gives (needs scipy). Calibrated on: vTrain's
all-reduce tables of 2, 4 and 8 GPUs, three of seven; and for AICB, whose elapsed times hold the host's
launch, one host share on every second collective. All else is the check.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from results import AbsentError, Row, row

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
    """Medians of collectives whose group size is known; elapsed time includes the host's launch.

    The first of each kind and size starts its communicator, and is left out.
    """
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
        for (kind, ranks, nbytes), (_, *elapsed) in sorted(times.items())
        if len(elapsed) >= 4 and nbytes > 0
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


def pairs(samples: Sequence[Sample], profile: CoreProfile, host_us: float = 0.0) -> list[tuple[float, float]]:
    """Modelled and measured time of each, us."""
    return [(modelled_us(sample, profile) + host_us, sample.measured_us) for sample in samples]


def host_share_us(samples: Sequence[Sample], profile: CoreProfile) -> float:
    """Time of host and launch, the same for each, that brings the mean absolute relative error lowest."""
    found = pairs(samples, profile)
    return min(
        (true - modelled for modelled, true in found),
        key=lambda share: sum(abs((modelled + share) / true - 1) for modelled, true in found),
    )


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
    """All-reduce tables by size, a Megatron step, and collectives of a training job."""
    for folder in ("vtrain/allreduce_a100", "megatron_tp8", "aicb"):
        if not (data / folder).is_dir():
            raise AbsentError(f"{folder} is not there")
    profile, plain = load_cluster("a100-8x").to_core(), uncalibrated()
    tables = {gpus: vtrain(data, gpus) for gpus in range(2, 9)}

    def of(gpus: Sequence[int], low: int, high: int) -> list[Sample]:
        return [s for g in gpus for s in tables[g] if low * MIB <= s.nbytes <= high * MIB]

    check = [gpus for gpus in tables if gpus not in FIT_GPUS]
    model = {"model": 1.0}
    out = []
    for part, gpus in (("calibrated on", FIT_GPUS), ("check", check)):
        for low, high in ((32, 1024), (8, 31), (1, 7)):
            what = f"{part}: {', '.join(map(str, gpus))} GPUs, {low} to {high:,} MiB"
            out.append(row("A100 all-reduce", what, pairs(of(gpus, low, high), profile), provenance=model))
    out.append(
        row(
            "A100 all-reduce",
            f"beside it: {', '.join(map(str, check))} GPUs, 1 to 1,024 MiB, NCCL's own model",
            pairs(of(check, 1, 1024), plain),
            provenance=model,
            note="no calibration",
        )
    )
    megatron = megatron_tp8(data)
    for size, chosen in (
        ("64 MiB", [s for s in megatron if s.nbytes > MIB]),
        ("32 KiB", [s for s in megatron if s.nbytes < MIB]),
    ):
        what = f"check: all-reduce of {size}, 8 GPUs, transfers of a forward step"
        out.append(row("A100 Megatron TP 8", what, pairs(chosen, profile), provenance=model))
    collectives = aicb(data)
    host_us = host_share_us(collectives[::2], profile)
    for part, chosen in (("calibrated on", collectives[::2]), ("check", collectives[1::2])):
        what = f"{part}: medians by kind, group and size, every second"
        note = f"{host_us:.0f} us of host in each"
        out.append(row("A100 MoE run", what, pairs(chosen, profile, host_us), provenance=model, note=note))
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=None, help="folder with the measurements")
    parser.add_argument("--fit", action="store_true", required=True)
    options = parser.parse_args(arguments)
    named = options.data or os.environ.get("PRISM_DATA")
    data = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    if not data.is_dir():
        print("no measurements: set PRISM_DATA or --data to the folder that holds vtrain/", file=sys.stderr)
        return 1
    print(json.dumps(fit(data), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
