"""``prism replay``: run a graph in virtual time."""

from __future__ import annotations

import argparse
from pathlib import Path

from prismcore.cli import parsing


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "replay",
        help="iteration time, peak memory and who waits for whom",
        description="Replay a graph in virtual time: iteration time, where time goes, peak memory.",
    )
    parser.add_argument("graph", type=Path, metavar="JOB.prism")
    parser.add_argument(
        "--ranks",
        type=parsing.rank_list,
        default=None,
        metavar="LIST",
        help="also each of these ranks: 0,8,16-31",
    )
    parser.add_argument(
        "--profile", default=None, metavar="NAME|FILE", help="cost kernels anew by this device profile"
    )
    parser.add_argument(
        "--cluster", default=None, metavar="NAME|FILE", help="cost communication anew by this cluster profile"
    )
    parser.add_argument(
        "--slow-rank",
        type=parsing.slow_rank,
        action="append",
        default=[],
        metavar="R:FACTOR[@t0-t1]",
        help="kernels of rank R take FACTOR times as long, in a span of its device time if given; "
        "may be given again: 3:1.5, 3:2@10ms-1s",
    )
    parser.add_argument(
        "--threads", type=parsing.positive_int, default=1, metavar="N", help="results do not depend on it"
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    raise NotImplementedError
