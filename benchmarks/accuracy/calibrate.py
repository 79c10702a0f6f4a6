"""Calibration of profiles on part of a job's traces, against the rest (docs/accuracy.md): a Megatron forward
step on 8 A100, tensor parallel 8."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterable
from pathlib import Path

from results import AbsentError, Row, row

from prismcore.calibrate import Samples, calibrate
from prismcore.calibrate.from_traces import samples_of_traces
from prismcore.comm import collective_cost
from prismcore.cost import DTYPES, KernelShape, kernel_cost
from prismcore.graph import Kernel
from prismcore.profiles.cluster import ClusterProfile, load_cluster
from prismcore.profiles.device import DeviceProfile, Efficiency, load_device
from prismcore.profiles.toml_text import toml_text
from prismcore.traces.kineto import read_kineto_set

NAME = "TP 8 calibrated"
BASE, BASE_CLUSTER = "a100", "a100-8x"
NAMES = {number: name for name, number in DTYPES.items()}


def rows(data: Path) -> list[Row]:
    """Kernels of half of the ranks by those of the other half, and of half of the shapes; collectives."""
    files = sorted((data / "megatron_tp8").glob("kineto_rank*.json.gz"))
    if len(files) != 8:
        raise AbsentError("megatron_tp8/kineto_rank{0..7}.json.gz are not there")
    traces = read_kineto_set(files)
    learned, rest = samples_of_traces(traces[:4]), samples_of_traces(traces[4:])
    return [
        *kernel_rows(learned, rest, traces),
        *shape_rows(learned),
        *collective_rows(samples_of_traces(traces)),
    ]


def kernel_rows(learned: Samples, rest: Samples, traces: list) -> list[Row]:
    calibrated = calibrate(learned, base=BASE)
    out = []
    for what, profile, note in (
        ("by the table of ranks 0-3", calibrated.device, ""),
        ("by the base a100", load_device(BASE), "fitted to all 8 ranks, where it knows the kernel"),
    ):
        pairs, provenance = predicted(rest, profile)
        worst = note or "the worst takes 1 us, in traces of whole ones"
        out.append(row(NAME, f"kernels of ranks 4-7 {what}", pairs, provenance=provenance, note=worst))
        totals = [
            (sum(p for p, _ in of), sum(m for _, m in of))
            for of in (predicted(samples_of_traces([trace]), profile)[0] for trace in traces[4:])
        ]
        out.append(
            row(NAME, f"compute of each of ranks 4-7 {what}", totals, provenance=provenance, note=note)
        )
    return out


def shape_rows(samples: Samples) -> list[Row]:
    """Each half of the launch shapes by figures fitted to the other half, without a table: of the base, and
    of one that nobody fitted, whose families all reach half of the peak."""
    halves = [dataclasses.replace(samples, kernels=every_second(samples.kernels, i)) for i in (0, 1)]
    out = []
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "plain.toml"
        families = [field.name for field in dataclasses.fields(Efficiency)]
        plain.write_text(toml_text({"base": BASE, "efficiency": dict.fromkeys(families, 0.5)}))
        for base, words in ((BASE, "a100"), (str(plain), "a100 with all shares at a half")):
            known: list[tuple[float, float]] = []
            fitted: list[tuple[float, float]] = []
            for learned, rest in (halves, halves[::-1]):
                profile = calibrate(learned, base=base).device
                profile.rows = []
                fitted += by_kernel(rest, profile)
                known += by_kernel(rest, load_device(base))
            note = "no table; launches of at least 10 us that a rule knows"
            for what, pairs in (
                (f"by {words}", known),
                (f"by figures fitted to the other, from {words}", fitted),
            ):
                out.append(
                    row(
                        NAME,
                        f"each half of the launch shapes {what}",
                        pairs,
                        provenance={"model": 1.0},
                        note=note,
                    )
                )
    return out


def collective_rows(samples: Samples) -> list[Row]:
    """Each half of the collectives (every second one) by what was learned from the other."""
    fitted: list[tuple[float, float]] = []
    plain: list[tuple[float, float]] = []
    for first in (0, 1):
        learned = {key: durations[first::2] for key, durations in samples.collectives.items()}
        rest = {key: durations[1 - first :: 2] for key, durations in samples.collectives.items()}
        cluster = calibrate(dataclasses.replace(samples, collectives=learned), base=BASE).cluster
        assert cluster is not None
        fitted += collective_pairs(rest, cluster)
        plain += collective_pairs(rest, load_cluster(BASE_CLUSTER))
    model = {"model": 1.0}
    return [
        row(NAME, "each half of the all-reduces fitted to the other", fitted, provenance=model),
        row(NAME, "the same by the base a100-8x", plain, provenance=model, note="fitted to other machines"),
    ]


def collective_pairs(collectives: dict, cluster: ClusterProfile) -> Iterable[tuple[float, float]]:
    core = cluster.to_core()
    for key, durations in collectives.items():
        cost = collective_cost(key.kind.name.lower(), key.bytes, key.members, cluster=core, dtype=key.dtype)
        for measured in durations.tolist():
            yield cost.duration_ns, measured


def predicted(samples: Samples, profile: DeviceProfile) -> tuple[list[tuple[float, float]], dict[str, float]]:
    """(predicted, measured) of each launch, and provenance by predicted time."""
    core = profile.to_core()
    pairs: list[tuple[float, float]] = []
    time: dict[str, float] = {}
    for kernel, durations in samples.kernels.items():
        cost = kernel_cost(kernel.name, shape_of(kernel), core)
        pairs += [(cost.duration_ns, measured) for measured in durations.tolist() if measured > 0]
        time[cost.provenance] = time.get(cost.provenance, 0) + cost.duration_ns * len(durations)
    whole = sum(time.values())
    return pairs, {name: spent / whole for name, spent in time.items()}


def by_kernel(samples: Samples, profile: DeviceProfile) -> Iterable[tuple[float, float]]:
    """(predicted, mean measured) of each launch shape."""
    core = profile.to_core()
    for kernel, durations in samples.kernels.items():
        cost = kernel_cost(kernel.name, shape_of(kernel), core)
        if cost.provenance != "unknown" and durations.mean() >= 10_000:
            yield cost.duration_ns, float(durations.mean())


def shape_of(kernel: Kernel) -> KernelShape:
    gemm = kernel.gemm
    sizes = {} if gemm is None else {"m": gemm.m, "n": gemm.n, "k": gemm.k, "batch": gemm.batch}
    return KernelShape(
        grid=kernel.grid,
        block=kernel.block,
        shared_bytes=kernel.shared_bytes,
        dtype=NAMES[int(kernel.dtype)],
        **sizes,
    )


def every_second(kernels: dict, first: int) -> dict:
    ordered = sorted(kernels, key=lambda k: (k.name, k.grid, k.block, k.shared_bytes, str(k.gemm)))
    return {kernel: kernels[kernel] for kernel in ordered[first::2]}
