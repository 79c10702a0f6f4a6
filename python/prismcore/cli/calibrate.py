"""``prism calibrate``: profiles from measured traces."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.cli import output, parsing
from prismcore.cli.graphs import open_graph

if TYPE_CHECKING:
    from prismcore.calibrate import Calibrated, Samples

SHOWN_KERNELS = 12


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "calibrate",
        help="device and cluster profiles from measured traces",
        description="Fill a device profile's table and figures, and a cluster profile's, from measured "
        "traces. Writes NAME.toml, NAME.kernels.csv and, where there are collectives, NAME.cluster.toml; the "
        "profiles extend others.",
    )
    parser.add_argument(
        "paths",
        type=Path,
        nargs="+",
        metavar="TRACE",
        help="traces of torch's profiler of one job, one file a rank (a folder or a tar archive stands for "
        "all traces among the *.json and *.json.gz in it, and is a job of its own), or graphs with measured "
        "durations (*.prism)",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=profile_path,
        required=True,
        metavar="PROFILE.toml",
        help="the device profile to write",
    )
    parser.add_argument(
        "--base",
        default=None,
        metavar="NAME|FILE",
        help="device profile to extend; default: that of the device that the traces name",
    )
    parser.add_argument(
        "--cluster",
        default=None,
        metavar="NAME|FILE",
        help="cluster profile to extend; default: the base's",
    )
    parser.add_argument(
        "--least-samples",
        type=parsing.positive_int,
        default=3,
        metavar="N",
        help="samples that a kernel or a size of a collective needs (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def profile_path(text: str) -> Path:
    """The name of a profile to write."""
    path = parsing.output_path(text)
    if path.suffix != ".toml" or not path.stem:
        raise argparse.ArgumentTypeError(f"found {text!r}, expected a name that ends in .toml")
    return path


def run(args: argparse.Namespace) -> int:
    from prismcore.calibrate import calibrate
    from prismcore.calibrate.targets import check_targets
    from prismcore.report.calibrate import calibration_json

    begin = time.perf_counter()
    check_targets(args.output, base=args.base, cluster=args.cluster, sources=args.paths)
    calibrated = calibrate(
        _samples(args.paths), base=args.base, cluster=args.cluster, least=args.least_samples
    )
    with output.terminated_as_interrupt():
        files = [str(path) for path in calibrated.save(args.output)]
    wall = time.perf_counter() - begin
    if args.json:
        output.show_json(
            {
                "files": files,
                **calibration_json(calibrated),
                "wall_time_s": wall,
                "warnings": calibrated.warnings,
            }
        )
    else:
        _show(files, calibrated, wall)
    return 0


def _samples(paths: list[Path]) -> Samples:
    from prismcore.calibrate import merged_samples
    from prismcore.calibrate.from_graph import samples_of_graph
    from prismcore.calibrate.from_traces import samples_of_traces
    from prismcore.traces.kineto import read_kineto_set
    from prismcore.traces.trace_files import is_archive

    graphs = [path for path in paths if path.suffix == ".prism"]
    whole = [path for path in paths if path not in graphs and (path.is_dir() or is_archive(path))]
    jobs = [[path] for path in whole]
    if loose := [path for path in paths if path not in graphs and path not in whole]:
        jobs.insert(0, loose)
    return merged_samples(
        [
            *(samples_of_traces(read_kineto_set(job)) for job in jobs),
            *(samples_of_graph(open_graph(path), path.name) for path in graphs),
        ]
    )


def _show(files: list[str], calibrated: Calibrated, wall_s: float) -> None:
    import shlex

    from prismcore.report import calibrate as report
    from prismcore.report.table import fields_table
    from prismcore.report.units import format_wall

    fields = [
        *report.fields(calibrated),
        ("written", ", ".join(files)),
        ("calibrated in", format_wall(wall_s)),
    ]
    output.show(fields_table(files[0], fields))
    for table in report.tables(calibrated, SHOWN_KERNELS):
        output.show("", table)
    output.show_warnings(calibrated.warnings)
    cluster = f" --cluster {shlex.quote(files[2])}" if len(files) > 2 else ""
    output.show("", f"next: prism replay JOB.prism --profile {shlex.quote(files[0])}{cluster}")
