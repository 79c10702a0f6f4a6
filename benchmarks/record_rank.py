"""Cost of one recorded op in a rank, all in: the stand-in's call, the clocks, the cost model's cache
and the recorder. Goal: under 150 ns.

Calls the virtual GPU's CUDA runtime from C++ as torch does. Needs a checkout and a C++20 compiler: the
small program beside this file is compiled first.

    python benchmarks/record_rank.py [--json] [--ops N] [--repeats N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

from prismcore import _core

HERE = Path(__file__).resolve().parent


def build(folder: Path, libraries: Path) -> Path:
    program = folder / "record_rank"
    command = [
        os.environ.get("CXX", "c++"),
        *("-std=c++20", "-O2", f"-I{HERE.parent / 'csrc'}", str(HERE / "record_rank.cc")),
        *(f"-L{libraries}", "-lprismcore", f"-Wl,-rpath,{libraries}", "-ldl", "-o", str(program)),
    ]
    subprocess.run(command, check=True)
    return program


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--json", action="store_true", help="machine output")
    parser.add_argument("--ops", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    libraries = Path(_core.vgpu_library_paths()[0]).parent
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder), libraries)
        runs = [
            json.loads(subprocess.check_output([str(program), str(libraries), str(args.ops)]))
            for _ in range(args.repeats)
        ]
    rows = [
        {
            "case": case,
            "best_ns_per_op": min(run[case] for run in runs),
            "median_ns_per_op": statistics.median(run[case] for run in runs),
        }
        for case in runs[0]
    ]
    if args.json:
        print(json.dumps({"benchmark": "record_rank", "rows": rows}))
        return
    print(f"{'case':18} {'best ns/op':>11} {'median':>8}")
    for row in rows:
        print(f"{row['case']:18} {row['best_ns_per_op']:11.1f} {row['median_ns_per_op']:8.1f}")


if __name__ == "__main__":
    main()
