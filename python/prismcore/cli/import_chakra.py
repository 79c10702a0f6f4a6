"""``prism import chakra``: MLCommons Chakra execution traces."""

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
        "chakra",
        help="MLCommons Chakra execution traces (protobuf or JSON), one file a rank",
        description="Import Chakra execution traces: nodes become ops on streams, what they wait for on "
        "another stream an event. Communication without a duration takes that of a model.",
    )
    parser.add_argument(
        "paths",
        type=Path,
        nargs="+",
        metavar="TRACE.et",
        help="one file a rank, gzip or not; a folder or a tar archive stands for all traces among the *.et "
        "and *.json in it; a comm_groups.json beside them names the members of groups",
    )
    import_cluster.add_cluster(parser)
    return parser


def read(args: argparse.Namespace) -> tuple[Graph, list[str]]:
    """The graph of a job's traces, and what to distrust in it."""
    from prismcore.traces.chakra import read_chakra_set
    from prismcore.traces.chakra_ops import graph_of_chakra

    traces = read_chakra_set(args.paths)
    graph, warnings = graph_of_chakra(traces, import_cluster.load_chosen(args))
    import_cluster.check_used(args, graph)
    return graph, warnings
