"""``prism import straggler``: op-level traces of the straggler analysis."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.cli import parsing
from prismcore.cli.usage import UsageError

if TYPE_CHECKING:
    from prismcore.graph import Graph
    from prismcore.traces.job_sizes import JobSizes

SIZES = {
    "dp": "data-parallel size",
    "pp": "pipeline stages",
    "tp": "tensor-parallel size",
    "vpp": "model chunks of a stage",
}


def add_format(
    formats: argparse._SubParsersAction[argparse.ArgumentParser],
) -> argparse.ArgumentParser:
    parser = formats.add_parser(
        "straggler",
        help="op-level trace of a pipeline job, as the straggler analysis publishes them",
        description="Import an op-level trace (parquet) of the straggler analysis: each step becomes an "
        "iteration, durations lose the waiting for peers, gaps before ops stay as measured.",
    )
    parser.add_argument("paths", type=Path, nargs=1, metavar="TRACE.parquet")
    parser.add_argument(
        "--meta",
        type=Path,
        default=None,
        metavar="META.yaml",
        help="sizes of the job: dp_size, pp_size, tp_size, ...; default: as far as the trace shows them",
    )
    for name, what in SIZES.items():
        parser.add_argument(
            f"--{name}", type=parsing.positive_int, default=None, metavar="N", help=f"{what}, over META.yaml"
        )
    parser.add_argument(
        "--steps",
        type=parsing.rank_list,
        default=None,
        metavar="LIST",
        help="only these steps, by their position in the file from 0 on: 0,2,4-9",
    )
    parser.add_argument(
        "--typical",
        action="store_true",
        help="one step that is typical of these, to predict others, instead of each",
    )
    return parser


def read(args: argparse.Namespace) -> tuple[Graph, list[str]]:
    """The graph of a trace, and what to distrust in it."""
    from prismcore.traces.straggler import read_straggler
    from prismcore.traces.straggler_steps import straggler_steps

    trace = read_straggler(args.paths[0], _sizes(args))
    steps = straggler_steps(trace if args.steps is None else trace.only(args.steps))
    if args.typical:
        steps = steps.typical()
    return steps.graph(), steps.warnings


def _sizes(args: argparse.Namespace) -> JobSizes | None:
    import dataclasses

    from prismcore.traces.job_sizes import JobSizes, read_job_sizes

    given = {name: getattr(args, name) for name in SIZES if getattr(args, name) is not None}
    if args.meta is not None:
        sizes = read_job_sizes(args.meta)
        return dataclasses.replace(sizes, **given, world=0) if given else sizes
    if not given:
        return None
    if "dp" not in given or "pp" not in given:
        raise UsageError("without --meta, --dp and --pp are needed where sizes are given")
    return JobSizes(**given)
