"""What prismcore predicts against what was measured: one table over all data sets.

    python benchmarks/accuracy/run.py [--only NAME]... [--data FOLDER] [--out FOLDER] [--json]

Reads measurements from the folder that PRISM_DATA names, else ../shared/data beside the checkout; a set
that is not there is left out with a reason. Writes results.json and results.md beside this file, the
source of the figures in README and docs/accuracy.md, and python/prismcore/report/accuracy_bands.json,
which reports quote; with --only or --data only where --out says, all three: the folder is made, and files
of an earlier run there are replaced.
A module beside this file a data set, with ``rows(data) -> list[Row]``. Half a minute, and 35 minutes more
where the graphs of zero_gpu are not kept from an earlier run.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import results  # noqa: E402

SETS = ("straggler", "kineto", "calibrate", "collectives", "zero_gpu")
SHIPPED = HERE.parents[1] / "python" / "prismcore" / "report"


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 where no data set is there at all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=SETS, default=None)
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    if args.data is not None and not args.data.is_dir():
        parser.error(f"--data {args.data}: no such folder")
    folder = args.out or (None if args.only or args.data else HERE)
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            parser.error(f"--out {folder}: {error.strerror}")
    named = args.data or os.environ.get("PRISM_DATA") or HERE.parents[2] / "shared" / "data"
    rows: list[results.Row] = []
    skipped: dict[str, str] = {}
    for name in args.only or SETS:
        try:
            rows += importlib.import_module(name).rows(Path(named))
        except results.AbsentError as reason:
            skipped[name] = str(reason)
    chosen = [part for name in args.only or () for part in ("--only", name)]
    chosen += [] if args.data is None else ["--data", str(args.data)]
    command = shlex.join(["python", "benchmarks/accuracy/run.py", *chosen])
    if folder is not None and any((folder / name).exists() for name in results.FILES) and folder != HERE:
        print(f"{folder}: the results of an earlier run are replaced", file=sys.stderr)
    if rows and folder is not None:
        results.write(folder, rows, skipped, command, shipped=SHIPPED if folder == HERE else folder)
    if args.json:
        print(json.dumps({"rows": [dataclasses.asdict(r) for r in rows], "skipped": skipped}))
    else:
        print(results.as_markdown(rows, skipped, command), end="")
    if not rows:
        print("no measurements: set PRISM_DATA or --data to their folder", file=sys.stderr)
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
