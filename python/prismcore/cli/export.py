"""``prism export``: timelines of a replay for other tools."""

from __future__ import annotations

import argparse
from pathlib import Path

from prismcore.cli import parsing


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        help="timelines for other tools",
        description="Write the timeline of a replay in another tool's format.",
    )
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    perfetto = formats.add_parser(
        "perfetto",
        help="Perfetto's native trace: open it in https://ui.perfetto.dev",
        description="Write a Perfetto trace: a process per rank, a track per stream and for the host, slices "
        "for kernels, copies, communication and waiting, and a counter of allocated memory.",
    )
    perfetto.add_argument("graph", type=Path, metavar="JOB.prism")
    perfetto.add_argument("-o", "--output", type=Path, required=True, metavar="OUT.pftrace")
    perfetto.add_argument(
        "--ranks",
        type=ranks_choice,
        default="classes",
        metavar="classes|LIST",
        help="classes: the lowest rank of each rank class (default)",
    )
    perfetto.add_argument(
        "--iteration",
        type=parsing.natural_int,
        default=None,
        metavar="N",
        help="only this iteration, counted from 0; default: the last",
    )
    perfetto.add_argument("--json", action="store_true", help="machine output on stdout")
    perfetto.set_defaults(run=run)


def ranks_choice(text: str) -> str | list[int]:
    """``classes`` or a rank list."""
    return text if text == "classes" else parsing.rank_list(text)


def run(args: argparse.Namespace) -> int:
    raise NotImplementedError
