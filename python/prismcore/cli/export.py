"""``prism export``: graphs and timelines of replays for other tools."""

from __future__ import annotations

import argparse
from pathlib import Path

from prismcore.cli import (
    export_chakra,
    export_flight_recorder,
    export_kineto,
    export_memory_snapshot,
    export_perfetto,
)

FORMATS = (export_perfetto, export_kineto, export_chakra, export_flight_recorder, export_memory_snapshot)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        help="graphs and timelines for other tools",
        description="Write a graph, or the timeline of its replay, in another tool's format.",
    )
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    for format in FORMATS:
        chosen = format.add_format(formats)
        chosen.add_argument("graph", type=Path, metavar="JOB.prism")
        chosen.add_argument("--json", action="store_true", help="machine output on stdout")
        chosen.set_defaults(run=format.run)
