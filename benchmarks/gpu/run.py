"""What a real GPU shows of prismcore, in one go: a table, and JSON. See README.md beside it; use run.sh.

python benchmarks/gpu/run.py [--dry] [--out FILE.json] [--seconds S] [--worlds 8,64,8192] [--only WORD]
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import parts
from parts import ROOT, Setting
from rows import FailedError, Report, Row, Runner

TOTAL_S = 460.0  # under 8 minutes, with what is told at the end

#: Arguments of examples/megatron_gpt.py and examples/ddp.py, and the layer that prism profile measures.
MEGATRON = {
    "real": (
        "--layers 8 --hidden 2048 --heads 16 --kv-heads 16 --ffn 8192 --seq 2048 --vocab 32000 --tp 1 --pp 1 "
        "--micro-batches 4 --iterations 6",
        "hidden=2048,ffn=8192,heads=16,kv_heads=16,sequence=2048,vocab=32000",
    ),
    "dry": (
        "--layers 2 --hidden 256 --heads 4 --kv-heads 4 --ffn 1024 --seq 128 --vocab 1024 --tp 1 --pp 1 "
        "--micro-batches 2 --iterations 3",
        "hidden=256,ffn=1024,heads=4,sequence=128,vocab=1024",
    ),
}
OWN = {
    "real": (
        "--layers 8 --hidden 2048 --heads 16 --seq 2048 --vocab 32000 --batch 2 --iterations 6",
        "hidden=2048,ffn=8192,heads=16,sequence=2048,micro_batch=2,vocab=32000",
    ),
    "dry": (
        "--layers 2 --hidden 256 --heads 4 --seq 128 --vocab 1024 --batch 2 --iterations 3",
        "hidden=256,ffn=1024,heads=4,sequence=128,micro_batch=2,vocab=1024",
    ),
}


def setting_of(args: argparse.Namespace, runner: Runner, work: Path) -> Setting:
    size = "dry" if args.dry else "real"
    trainer, script = (MEGATRON, "megatron_gpt.py") if parts.megatron() else (OWN, "ddp.py")
    words, shape = trainer[size]
    return Setting(
        runner=runner,
        work=work,
        dry=args.dry,
        program=[str(ROOT / "examples" / script), *words.split()],
        shape=shape,
        profile_minutes=0.5 if args.dry else 1.5,
    )


def make_rows(setting: Setting, report: Report, worlds: list[int], only: str) -> None:
    def row(name: str, budget_s: float, make: Any, *arguments: Any) -> Row | None:
        if only and only not in name:
            return None
        return report.row(name, setting.runner, budget_s, lambda: make(*arguments))

    row("device tests, C++", 60, parts.ctest, setting)
    row("device tests, Python", 60, parts.pytest, setting)
    row("profile", 120, parts.profile, setting)
    theirs = row("program, real", 60, parts.real, setting)
    ours = row("program, virtual", 60, parts.virtual, setting)
    for name, compared in (
        ("peak allocated bytes", parts.same_peak),
        ("kernel names and counts", parts.same_kernels),
        ("iteration time", parts.same_time),
    ):
        row(name, 10, lambda compared=compared: compared(*_figures(ours, theirs)))
    for part in parts.ENTRIES:
        row(part, 30, parts.entry, setting, part)
    row("swap time", 60, parts.swaps, setting)
    for world in worlds:
        row(f"map {world:,} ranks", 60, parts.collected, setting, world)
        for sandbox in (1, 2):
            row(f"emulate {world:,} ranks, {sandbox} run", 45, parts.emulated, setting, world, sandbox)
    if worlds:
        row("pacing by the host", 45, parts.emulated, setting, worlds[0], 1, "--clock", "wall")


def _figures(*rows: Row | None) -> list[dict[str, Any]]:
    for row in rows:
        if row is None or row.status != "ok":
            raise FailedError("a run to compare is missing: its row failed or was left out")
    return [row.figures for row in rows if row is not None]


def facts(args: argparse.Namespace, setting: Setting) -> dict[str, Any]:
    import prismcore

    return {
        "benchmark": "gpu",
        "dry": args.dry,
        "prismcore": prismcore.__version__,
        "python": platform.python_version(),
        **{name: _version(name) for name in ("torch", "megatron-core", "nvidia-nccl-cu13")},
        "gpus": [] if args.dry else _gpus(),
        "cores": os.cpu_count(),
        "program": [Path(setting.program[0]).name, *setting.program[1:]],
        "begun_s": round(time.time()),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> list[str]:
    """Name, driver and memory of each, as nvidia-smi tells them."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return told.stdout.strip().splitlines()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--dry", action="store_true", help="a virtual GPU stands for the real one")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=TOTAL_S, help="time of all of it; default: %(default)s"
    )
    parser.add_argument("--worlds", default="8,64,8192", help="ranks of emulations; default: %(default)s")
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose names hold it")
    args = parser.parse_args()
    runner = Runner(time.monotonic() + args.seconds)
    worlds = [int(world) for world in args.worlds.split(",") if world]
    with tempfile.TemporaryDirectory(prefix="prism-gpu-") as folder:
        setting = setting_of(args, runner, Path(folder))
        report = Report(args.out, facts(args, setting))
        make_rows(setting, report, worlds, args.only)
    counts = [row.status.partition(":")[0] for row in report.rows]
    words = ", ".join(f"{counts.count(kind)} {kind}" for kind in dict.fromkeys(counts))
    print(f"{len(counts)} rows: {words}; {args.out}")
    return 1 if "failed" in counts else 0


if __name__ == "__main__":
    sys.exit(main())
