"""``prism info``: what a graph holds."""

from __future__ import annotations

import argparse
from pathlib import Path

from prismcore.cli import parsing


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "info", help="what a graph holds", description="Say what a .prism file holds, without replaying it."
    )
    parser.add_argument("graph", type=Path, metavar="JOB.prism")
    parser.add_argument(
        "--ranks",
        type=parsing.rank_list,
        default=None,
        metavar="LIST",
        help="also each of these ranks: 0,8,16-31",
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    raise NotImplementedError
