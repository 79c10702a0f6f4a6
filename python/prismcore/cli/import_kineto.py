"""``prism import kineto``: traces of torch's profiler."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prismcore.graph import Graph


def add_format(
    formats: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    parser = formats.add_parser(
        "kineto",
        help="traces of torch's profiler (Chrome's JSON), one file a rank",
        description="Import traces of torch's profiler: each profiled step becomes an iteration, collectives "
        "lose the waiting for peers, host time stays as measured.",
    )
    parser.add_argument(
        "paths",
        type=Path,
        nargs="+",
        metavar="TRACE.json",
        help="one file a rank, gzip or not; a folder or a tar archive stands for all traces among the "
        "*.json and *.json.gz in it",
    )
    return parser


def read(args: argparse.Namespace) -> tuple[Graph, list[str]]:
    """The graph of a job's traces, and what to distrust in it."""
    from prismcore.traces.kineto import read_kineto_set, stitch_kineto

    traces = stitch_kineto(read_kineto_set(args.paths))
    return traces.graph(), traces.warnings
