"""How fast traces of torch's profiler are read, beside Python's own JSON reader in the same run.

A synthetic trace, its events as torch writes them, at growing sizes, plain and gzipped; then, where
PRISM_DATA (else ../shared/data beside the checkout) holds it, the import of an 8-rank job: reading,
stitching and the graph; and of the two jobs of the straggler analysis both commands, import and replay,
start of Python included. Times are processor time, of commands wall time beside it; memory is the peak of
the reading process.

    python benchmarks/trace_import.py [--json] [--megabytes LIST] [--repeats N] [--hta PYTHON]

``--hta``: the 8-rank job also beside HolisticTraceAnalysis, whose environment is best one of its own:
``python -m venv /tmp/hta && /tmp/hta/bin/pip install HolisticTraceAnalysis``, then --hta /tmp/hta/bin/python.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from trace_import_hta import lines, side_by_side

from prismcore.traces.kineto import read_kineto_set, stitch_kineto
from prismcore.traces.kineto_file import read_kineto

DATA = Path(os.environ.get("PRISM_DATA") or Path(__file__).parents[2] / "shared" / "data")

KERNEL = (
    '{{"ph": "X", "cat": "kernel", "name": "void at::native::vectorized_elementwise_kernel<4, '
    'at::native::CUDAFunctor_add<c10::BFloat16>, at::detail::Array<char*, 3> >({n})", "pid": 0, "tid": 7, '
    '"ts": {ts}.{f:03d}, "dur": 41.407, "args": {{"External id": {n}, "device": 0, "context": 1, '
    '"stream": 7, "correlation": {n}, "registers per thread": 40, "shared memory": 400, "blocks per SM": 4, '
    '"warps per SM": 75.8, "grid": [512, 1, 1], "block": [512, 1, 1], "est. achieved occupancy %": 75}}}}'
)
CALL = (
    '{{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 2910249, "tid": 2919752, '
    '"ts": {ts}.{f:03d}, "dur": 6.576, "args": {{"External id": {n}, "cbid": 211, "correlation": {n}}}}}'
)
OP = (
    '{{"ph": "X", "cat": "cpu_op", "name": "aten::add_", "pid": 2910249, "tid": 2919752, "ts": {ts}.{f:03d}, '
    '"dur": 12.2, "args": {{"External id": {n}, "Record function id": 0, "Concrete Inputs": ["", "", "1"], '
    '"Input type": ["c10::BFloat16", "c10::BFloat16", "Scalar"], "Input Dims": [[4, 2048], [4, 2048], []], '
    '"Ev Idx": {n}}}}}'
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Of one trace."""

    megabytes: float
    gzip: bool
    events: int
    mb_per_s: float
    json_mb_per_s: float | None  #: of json.load in the same run, without any use of it
    peak_mib: float  #: of a process that reads it, Python and numpy among it
    ratio: float | None


def write(path: Path, megabytes: float, *, packed: bool) -> None:
    opener = gzip.open if packed else open
    length = 0
    with opener(path, "wt", encoding="ascii") as file:
        file.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [')
        number = 0
        while length < megabytes * 1e6:
            parts = (
                text.format(n=number % 5000, ts=4458676524648 + 50 * number, f=number % 1000)
                for text in (OP, CALL, KERNEL)
            )
            block = ("," if number else "") + ",\n".join(parts)
            length += len(block)
            file.write(block)
            number += 1
        file.write("]}")


def seconds(call, repeats: int) -> float:
    best = float("inf")
    for _ in range(repeats):
        begin = time.process_time()
        call()
        best = min(best, time.process_time() - begin)
    return best


def parse(path: Path, *, packed: bool) -> None:
    with (gzip.open if packed else open)(path, "rb") as file:
        json.load(file)


def peak_mib(path: Path) -> float:
    program = (
        "import sys; from prismcore.traces.kineto_file import read_kineto; read_kineto(sys.argv[1]); "
        "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    return float(done.stdout) / 1024


def measure(path: Path, *, packed: bool, repeats: int, compare: bool) -> Row:
    trace = read_kineto(path)
    mine = trace.text_bytes / 1e6 / seconds(lambda: read_kineto(path), repeats)
    other = trace.text_bytes / 1e6 / seconds(lambda: parse(path, packed=packed), 1) if compare else None
    return Row(
        megabytes=round(trace.text_bytes / 1e6, 1),
        gzip=packed,
        events=len(trace.name),
        mb_per_s=round(mine, 1),
        json_mb_per_s=None if other is None else round(other, 1),
        peak_mib=round(peak_mib(path), 1),
        ratio=None if other is None else round(mine / other, 2),
    )


def eight_ranks(paths: list[Path], repeats: int) -> dict[str, float] | None:
    if not paths:
        return None
    read = seconds(lambda: read_kineto_set(paths), repeats)
    traces = read_kineto_set(paths)
    graph = seconds(lambda: stitch_kineto(traces).graph(), repeats)
    return {
        "megabytes": round(sum(t.text_bytes for t in traces) / 1e6, 1),
        "read_s": round(read, 3),
        "stitch_and_graph_s": round(graph, 3),
    }


def both_commands(folder: Path, repeats: int) -> list[tuple[str, float, float]]:
    """Of each job of the straggler analysis wall and processor time of import and replay together, the
    least of the repeats."""
    found = []
    for job in ("AR", "ST"):
        trace, meta = folder / f"trace-{job}.parquet", folder / f"meta-{job}.yaml"
        if not trace.exists():
            continue
        runs = []
        with tempfile.TemporaryDirectory() as out:
            graph = str(Path(out) / "job.prism")
            for _ in range(repeats):
                begin, before = time.perf_counter(), os.times()
                for command in (
                    ["import", "straggler", str(trace), "--meta", str(meta), "-o", graph],
                    ["replay", graph],
                ):
                    subprocess.run(
                        [sys.executable, "-m", "prismcore", *command], check=True, stdout=subprocess.DEVNULL
                    )
                after = os.times()
                used = (
                    after.children_user
                    + after.children_system
                    - before.children_user
                    - before.children_system
                )
                runs.append((time.perf_counter() - begin, used))
        found.append((job, min(wall for wall, _ in runs), min(used for _, used in runs)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--megabytes", default="10,40,160")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--hta", metavar="PYTHON", default=None)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for megabytes in (float(text) for text in args.megabytes.split(",")):
            for packed in (False, True):
                path = Path(folder) / ("trace.json.gz" if packed else "trace.json")
                write(path, megabytes, packed=packed)
                compare = megabytes <= 50  # Python's reader holds some ten times the text
                rows.append(measure(path, packed=packed, repeats=args.repeats, compare=compare))
    paths = sorted((DATA / "megatron_tp8").glob("kineto_rank*.json.gz"))
    set_of_8 = eight_ranks(paths, args.repeats)
    beside = side_by_side(args.hta, [str(p) for p in paths], args.repeats) if args.hta and paths else None
    jobs = both_commands(DATA / "straggler", args.repeats)
    if args.json:
        found = {"rows": [asdict(row) for row in rows], "eight_ranks": set_of_8, "beside": beside}
        found["straggler"] = [{"job": job, "wall_s": wall, "cpu_s": used} for job, wall, used in jobs]
        print(json.dumps(found))
        return
    print("   MB  gzip     events   MB/s  json MB/s  ratio  peak MiB")
    for row in rows:
        other = "-" if row.json_mb_per_s is None else f"{row.json_mb_per_s:.0f}"
        ratio = "-" if row.ratio is None else f"{row.ratio:.1f}"
        print(
            f"{row.megabytes:5.0f}  {'yes' if row.gzip else 'no':4}  {row.events:9,}  {row.mb_per_s:5.0f}  "
            f"{other:>9}  {ratio:>5}  {row.peak_mib:8.0f}"
        )
    if set_of_8 is None:
        print(f"8-rank job: not run, {DATA / 'megatron_tp8'} is absent (PRISM_DATA names the folder)")
    else:
        print(
            f"8-rank job, {set_of_8['megabytes']} MB: read in {set_of_8['read_s']} s, stitched and a graph "
            f"in {set_of_8['stitch_and_graph_s']} s"
        )
    for line in lines(beside) if beside else ():
        print(line)
    for job, wall, used in jobs:
        print(f"straggler {job}, import and replay: {wall:.2f} s, {used:.2f} s of processor time")
    if not jobs:
        print(f"straggler jobs: not run, {DATA / 'straggler'} is absent")


if __name__ == "__main__":
    main()
