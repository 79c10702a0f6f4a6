"""``prism collect``: map every rank of an ordinary training program."""

from __future__ import annotations

import argparse
from pathlib import Path

from prismcore.cli import parsing


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "collect",
        help="map every rank of a training program, with no GPU",
        usage="prism collect --world-size N [options] -o JOB.prism -- SCRIPT ARGS",
        description="Run an ordinary torchrun program rank by rank on a virtual GPU and write its execution "
        "graph. After --: script.py ARGS, or -m module ARGS, as torchrun takes them, untouched.",
    )
    parser.add_argument(
        "--world-size", type=parsing.positive_int, required=True, metavar="N", help="ranks of the job"
    )
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="JOB.prism", help="the graph to write"
    )
    parser.add_argument(
        "--device", default="virtual:h100", metavar="virtual:NAME|FILE", help="device profile (%(default)s)"
    )
    parser.add_argument(
        "--cluster", default=None, metavar="FILE", help="cluster profile (TOML); default: of the device"
    )
    parser.add_argument(
        "--ranks",
        type=ranks_choice,
        default="auto",
        metavar="auto|all|LIST",
        help="which ranks run: auto runs some of each class and infers the others (%(default)s)",
    )
    parser.add_argument(
        "--slots",
        type=parsing.positive_int,
        default=None,
        metavar="N",
        help="ranks at a time; default: by cores",
    )
    parser.add_argument(
        "--iterations", type=parsing.positive_int, default=3, metavar="N", help="iterations (%(default)s)"
    )
    parser.add_argument(
        "--host",
        choices=("profile", "measured"),
        default="profile",
        help="host time between calls: of the profile, reproducible, or as measured here (%(default)s)",
    )
    parser.add_argument(
        "--preload",
        action="append",
        default=[],
        metavar="MODULE",
        help="import MODULE once, before ranks are forked; may be given again",
    )
    parser.add_argument(
        "--keep-partial", action="store_true", help="save what there is when a rank runs out of memory"
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout: that of prism info")
    parser.set_defaults(run=run, program=None)


def ranks_choice(text: str) -> str | list[int]:
    """``auto``, ``all`` or a rank list."""
    return text if text in ("auto", "all") else parsing.rank_list(text)


def run(args: argparse.Namespace) -> int:
    raise NotImplementedError
