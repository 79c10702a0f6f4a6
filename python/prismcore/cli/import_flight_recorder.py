"""``prism import flight-recorder``: dumps of torch's flight recorder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.cli import import_cluster

if TYPE_CHECKING:
    from prismcore.graph import Graph


def add_format(
    formats: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    parser = formats.add_parser(
        "flight-recorder",
        help="dumps of torch's flight recorder, one file a rank",
        description="Import dumps of torch's flight recorder (pickles, which are read without running "
        "anything, or JSON): calls of torch.distributed and the time between them, one iteration.",
    )
    parser.add_argument(
        "paths",
        type=Path,
        nargs="+",
        metavar="DUMP",
        help="one file a rank, whose name ends in the rank; a folder or a tar archive stands for all "
        "dumps in it",
    )
    import_cluster.add_cluster(parser)
    return parser


def read(args: argparse.Namespace) -> tuple[Graph, list[str]]:
    """The graph of a job's dumps, and what to distrust in it."""
    from prismcore.traces.flight_recorder import read_flight_records
    from prismcore.traces.flight_recorder_ops import graph_of_flight_records

    records = read_flight_records(args.paths)
    graph, warnings = graph_of_flight_records(records, import_cluster.load_chosen(args))
    import_cluster.check_used(args, graph)
    return graph, warnings
