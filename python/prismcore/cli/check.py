"""``prism check``: is a graph whole, and can its ranks meet?"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="verify a graph: file, communication of all ranks, deadlocks",
        description="Open a .prism file, verify its checksums and replay it to find mismatches, missing "
        "arrivals and deadlocks. Exit 3 if there is one.",
    )
    parser.add_argument("graph", type=Path, metavar="JOB.prism")
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    raise NotImplementedError
