"""Iteration times of GPT trainings on 2 to 8 A100, predicted without a GPU (docs/accuracy.md).

    python benchmarks/accuracy/zero_gpu.py [--fit] [--all] [--jobs] [--cache FOLDER] [--data FOLDER]

Maps examples/megatron_gpt.py with the sizes of each measured job (vTrain, Megatron-DeepSpeed) on
virtual:a100 and replays it with the profile a100-megatron-deepspeed. A fixed sample of 120 of 720 jobs,
and 48 of the others, drawn at random once; --all takes all of them. The profile was calibrated on every
second job of the sample (--fit prints its figures, needs scipy); the others are the check. --jobs prints
each job of the sample.

A job takes 8 to 20 s of two cores to collect: the 168 jobs 35 minutes, all 720 two and a half hours.
Graphs are kept in --cache (build/zero_gpu beside the checkout), so a second run only replays: a minute.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from results import AbsentError, Row, as_markdown, row

import prismcore
from prismcore.graph import Graph
from prismcore.profiles.cluster import ClusterProfile, load_cluster
from prismcore.profiles.device import DeviceProfile, load_device
from prismcore.replay import ReplayResult

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "megatron_gpt.py"
CACHE = ROOT / "build" / "zero_gpu"
TABLE = Path("vtrain") / "ground_truth_single_even.csv"
DEVICE = "a100-megatron-deepspeed"
SAMPLE = 120
MORE, SEED = 48, 1  #: jobs beside the sample, drawn at random
# Not in the file: GPT-2's vocabulary, padded as Megatron pads it for up to 8 ranks.
VOCABULARY = 51_200


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A measured job; sizes as in the file, time in ms."""

    gpus: int
    global_batch: int
    micro_batch: int
    hidden: int
    heads: int
    layers: int
    sequence: int
    tp: int
    dp: int
    pp: int
    measured_ms: float

    @property
    def micro_batches(self) -> int:
        """Of each pipeline and iteration."""
        return self.global_batch // (self.micro_batch * self.dp)

    @property
    def name(self) -> str:
        return (
            f"t{self.tp}d{self.dp}p{self.pp}-h{self.hidden}-l{self.layers}"
            f"-b{self.micro_batch}x{self.micro_batches}"
        )

    def command(self) -> list[str]:
        """Full activation checkpointing, 1F1B, no gradient buckets, fp16, plain (fused) Adam."""
        sizes = {
            "layers": self.layers,
            "hidden": self.hidden,
            "heads": self.heads,
            "seq": self.sequence,
            "vocab": VOCABULARY,
            "tp": self.tp,
            "pp": self.pp,
            "micro-batch-size": self.micro_batch,
            "micro-batches": self.micro_batches,
            "iterations": 2,
        }
        fixed = "--family gpt --precision fp16 --attention masked --recompute full --fused-optimizer"
        plain = "--no-dist-optimizer --no-sequence-parallel"
        flags = [text for key, value in sizes.items() for text in (f"--{key}", str(value))]
        return [str(EXAMPLE), *fixed.split(), *plain.split(), *flags]


def read_jobs(table: Path) -> list[Job]:
    """Every row of vTrain's table of single-node jobs, in the order of the file."""
    with table.open(newline="") as file:
        lines = list(csv.reader(file))[1:]
    keys = [field for field in Job.__slots__ if field != "measured_ms"]
    return [
        Job(
            **{key: int(cell) for key, cell in zip(keys, line, strict=False)},
            measured_ms=float(line[len(keys)]),
        )
        for line in lines
    ]


def sample(jobs: Sequence[Job], count: int = SAMPLE) -> list[Job]:
    """`count` jobs at equal distances among all, ordered by how they are parallel and by their sizes."""
    ordered = sorted(
        jobs,
        key=lambda j: (j.tp, j.dp, j.pp, j.hidden, j.micro_batch, j.layers, j.micro_batches),
    )
    count = min(count, len(ordered))
    return [ordered[(2 * i + 1) * len(ordered) // (2 * count)] for i in range(count)]


def drawn(jobs: Sequence[Job], count: int = MORE) -> list[Job]:
    """`count` jobs beside the sample, at random, the same each time."""
    kept = sample(jobs)
    others = [job for job in jobs if job not in kept]
    random.Random(SEED).shuffle(others)
    return others[:count]


def path_of(job: Job, cache: Path) -> Path:
    """Where the job's graph is kept: another example or other sizes are another file."""
    what = EXAMPLE.read_bytes() + " ".join(job.command()[1:]).encode()
    return cache / f"{job.name}-{hashlib.sha256(what).hexdigest()[:12]}.prism"


def graph_of(job: Job, cache: Path) -> Graph:
    """The job's graph: collected, or kept from an earlier collection."""
    from prismcore.collect import CollectOptions, collect

    path = path_of(job, cache)
    if not path.exists():
        options = CollectOptions(
            command=job.command(), world_size=job.gpus, device="virtual:a100", iterations=2
        )
        graph = collect(options).graph
        cache.mkdir(parents=True, exist_ok=True)
        graph.save(path)
    return Graph.open(path)


def predict(graph: Graph, device: DeviceProfile, cluster: ClusterProfile) -> ReplayResult:
    """Times are those of the device and cluster given, whatever the graph was collected with."""
    return prismcore.replay(graph, device=device, cluster=cluster)


MEMORY_BOUND = ("elementwise", "reduction", "normalization", "softmax", "embedding", "copy", "random")


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One calibrated figure of the profile: what it is, and how a value of it is put in."""

    name: str
    start: float
    low: float
    high: float
    put: Callable[[DeviceProfile, float], None]


def _host(*keys: str) -> Callable[[DeviceProfile, float], None]:
    def put(device: DeviceProfile, value: float) -> None:
        for key in keys:
            setattr(device.host, key, round(value))

    return put


def _efficiency(*keys: str) -> Callable[[DeviceProfile, float], None]:
    def put(device: DeviceProfile, value: float) -> None:
        for key in keys:
            setattr(device.efficiency, key, round(value, 3))

    return put


FIGURES = (
    # The trainer's own host time for each launch, and for each call of NCCL.
    Figure(name="host.launch_ns", start=25e3, low=1e3, high=1e6, put=_host("launch_ns", "copy_ns")),
    Figure(name="host.communication_ns", start=40e3, low=1e3, high=1e6, put=_host("communication_ns")),
    # Shares of the data sheet's rates that kernels reach.
    Figure(name="efficiency.gemm", start=0.8, low=0.2, high=1.0, put=_efficiency("gemm")),
    Figure(name="efficiency (memory)", start=0.7, low=0.1, high=1.0, put=_efficiency(*MEMORY_BOUND)),
    Figure(name="efficiency.optimizer", start=0.8, low=0.1, high=1.0, put=_efficiency("optimizer")),
)


def calibrated(values: Sequence[float]) -> DeviceProfile:
    """a100 with these values of FIGURES."""
    device = load_device("a100")
    for figure, value in zip(FIGURES, values, strict=True):
        figure.put(device, value)
    return device


def calibrate(jobs: Sequence[Job], graphs: Sequence[Graph], cluster: ClusterProfile) -> list[float]:
    """Values of FIGURES for which log(predicted / measured) is smallest (soft L1, so that single jobs
    that the model cannot explain do not decide)."""
    from math import log

    from scipy.optimize import least_squares

    def residuals(x: Sequence[float]) -> list[float]:
        device = calibrated([2.0**v for v in x])
        return [
            log(predict(graph, device, cluster).median_iteration_time_ns / 1e6 / job.measured_ms)
            for job, graph in zip(jobs, graphs, strict=True)
        ]

    found = least_squares(
        residuals,
        [log(f.start, 2) for f in FIGURES],
        bounds=([log(f.low, 2) for f in FIGURES], [log(f.high, 2) for f in FIGURES]),
        diff_step=0.02,
        xtol=1e-3,
        ftol=1e-4,
        loss="soft_l1",
        f_scale=0.05,
    )
    return [float(2.0**v) for v in found.x]


def split(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """What the profile was calibrated on, and what it was not: even and odd positions of the sample."""
    return list(jobs[0::2]), list(jobs[1::2])


def rows(data: Path) -> list[Row]:
    """The sample, by whether the profile was calibrated on it, and jobs beside it."""
    return rows_of(read_table(data), CACHE)


def read_table(data: Path) -> list[Job]:
    if not (data / TABLE).exists():
        raise AbsentError(f"{TABLE} is not there")
    return read_jobs(data / TABLE)


def rows_of(jobs: Sequence[Job], cache: Path, *, every: bool = False) -> list[Row]:
    """Rows of the table; with `every` all jobs but those calibrated on are the check."""
    on, others = split(sample(jobs))
    if every:
        others = [job for job in jobs if job not in on]
    cluster = load_cluster("a100-8x")
    rest = "GPT jobs" + (" of the whole file" if every else "")
    parts: tuple[tuple[str, list[Job], str], ...] = (
        (f"calibrated on: GPT jobs, every second of {SAMPLE}", on, DEVICE),
        (f"check: {rest} that the profile was not calibrated on", others, DEVICE),
        ("beside it: the same, profile a100", others, "a100"),
    )
    if not every:
        what = f"check: {MORE} GPT jobs drawn at random from the other {len(jobs) - SAMPLE}"
        parts += ((what, drawn(jobs), DEVICE),)
    out = []
    for what, chosen, name in parts:
        device = load_device(name)
        results = [predict(graph, device, cluster) for graph in graphs_of(chosen, cache)]
        pairs = [
            (result.median_iteration_time_ns / 1e6, job.measured_ms)
            for job, result in zip(chosen, results, strict=True)
        ]
        shares = {
            key: sum(result.provenance[key] for result in results) / len(results)
            for key in results[0].provenance
        }
        note = f"{len(FIGURES)} figures calibrated" if name == DEVICE else "no calibration on jobs"
        out.append(
            row(
                "A100 without a GPU",
                what,
                pairs,
                provenance=shares,
                note=note,
                covers=covers(jobs) if what.startswith("check") else None,
            )
        )
    return out


def covers(jobs: Sequence[Job]) -> dict[str, object]:
    """What reports may quote the check for (prismcore.report.case)."""
    times = [job.measured_ms for job in jobs]
    return {
        "prediction": "mapped job",
        "source": "megatron",
        "device": DEVICE,
        "cluster": "a100-8x",
        "nodes": "one",
        "within_ms": [min(times), max(times)],
    }


def graphs_of(jobs: Iterable[Job], cache: Path) -> list[Graph]:
    """Collects what is not kept, telling each on stderr."""
    graphs = []
    for job in jobs:
        if not path_of(job, cache).exists():
            print(f"collecting {job.name}", file=sys.stderr, flush=True)
        graphs.append(graph_of(job, cache))
    return graphs


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=None, help="folder with the measurements")
    parser.add_argument("--cache", type=Path, default=CACHE, help="where collected graphs are kept")
    parser.add_argument("--fit", action="store_true", help="print the figures that the calibration gives")
    parser.add_argument("--all", action="store_true", help="every job of the file, not the sample alone")
    parser.add_argument("--jobs", action="store_true", help="print each job of the sample")
    options = parser.parse_args(arguments)
    named = options.data or os.environ.get("PRISM_DATA")
    try:
        jobs = read_table(Path(named) if named else ROOT.parent / "shared" / "data")
    except AbsentError as reason:
        print(f"no measurements: {reason}: set PRISM_DATA or --data", file=sys.stderr)
        return 1
    if options.fit:
        on, _ = split(sample(jobs))
        values = calibrate(on, graphs_of(on, options.cache), load_cluster("a100-8x"))
        for figure, value in zip(FIGURES, values, strict=True):
            print(f"{figure.name} = {value:.4g}")
        return 0
    if options.jobs:
        show_jobs(sample(jobs), options.cache)
    print(as_markdown(rows_of(jobs, options.cache, every=options.all), {}, "zero_gpu.py"), end="")
    return 0


def show_jobs(jobs: Sequence[Job], cache: Path) -> None:
    device, cluster = load_device(DEVICE), load_cluster("a100-8x")
    print("| job | calibrated on | measured, ms | predicted, ms | error | host |\n|---|---|---|---|---|---|")
    for at, (job, graph) in enumerate(zip(jobs, graphs_of(jobs, cache), strict=True)):
        result = predict(graph, device, cluster)
        found = result.median_iteration_time_ns / 1e6
        share = result.split.host_ns / result.median_iteration_time_ns
        print(
            f"| {job.name} | {'yes' if at % 2 == 0 else 'no'} | {job.measured_ms:.1f} | {found:.1f} "
            f"| {100 * (found / job.measured_ms - 1):+.1f} % | {100 * share:.0f} % |"
        )


if __name__ == "__main__":
    sys.exit(main())
