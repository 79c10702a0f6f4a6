"""``prism import pytorch-et``: PyTorch execution traces, alone or beside Kineto traces."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.cli import import_cluster
from prismcore.cli.usage import UsageError

if TYPE_CHECKING:
    from prismcore.graph import Graph


def add_format(
    formats: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    parser = formats.add_parser(
        "pytorch-et",
        help="PyTorch execution traces, one file a rank, alone or with the Kineto traces of the same run",
        description="Import PyTorch execution traces: with --kineto all times are measured, and execution "
        "traces say which collectives these were; without, communication takes the time of a model and "
        "computation none.",
    )
    parser.add_argument(
        "paths",
        type=Path,
        nargs="+",
        metavar="TRACE.json",
        help="one file a rank, gzip or not; a folder or a tar archive stands for all traces among the "
        "*.json and *.json.gz in it",
    )
    parser.add_argument(
        "--kineto",
        type=Path,
        nargs="+",
        action="extend",
        default=None,
        metavar="TRACE.json",
        help="Kineto traces of the same ranks and steps, given as the execution traces are",
    )
    import_cluster.add_cluster(parser)
    return parser


def read(args: argparse.Namespace) -> tuple[Graph, list[str]]:
    """The graph of a job's traces, and what to distrust in it."""
    from prismcore.traces.execution_trace import read_execution_trace_set
    from prismcore.traces.execution_trace_ops import graph_of_execution_traces

    if args.kineto is not None and args.cluster is not None:
        raise UsageError("--cluster costs what has no measured time, and with --kineto all has one")
    traces = read_execution_trace_set(args.paths)
    if args.kineto is None:
        graph, warnings = graph_of_execution_traces(traces, import_cluster.load_chosen(args))
        import_cluster.check_used(args, graph)
        return graph, warnings

    from prismcore.traces.execution_trace_link import link
    from prismcore.traces.kineto import read_kineto_set, stitch_kineto

    kineto = read_kineto_set(args.kineto)
    warnings = link(traces, kineto)
    stitched = stitch_kineto(kineto)
    stitched.format = "pytorch-et"
    stitched.warnings = warnings + stitched.warnings
    return stitched.graph(), stitched.warnings
