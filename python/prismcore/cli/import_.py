"""``prism import``: measured traces of other tools as graphs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismcore.cli import (
    import_chakra,
    import_flight_recorder,
    import_kineto,
    import_pytorch_et,
    import_straggler,
    output,
    parsing,
)

if TYPE_CHECKING:
    from prismcore.report.launches import Launches

FORMATS = (import_kineto, import_pytorch_et, import_chakra, import_flight_recorder, import_straggler)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "import",
        help="a graph from measured traces",
        description="Turn measured traces into a graph to replay. What they lack is told in warnings.",
    )
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    for format in FORMATS:
        chosen = format.add_format(formats)
        parsing.add_graph_output(chosen)
        chosen.add_argument("--json", action="store_true", help="machine output on stdout")
        chosen.set_defaults(run=run, read=format.read)


def run(args: argparse.Namespace) -> int:
    from prismcore.outputs import check_file
    from prismcore.report.launches import launches
    from prismcore.report.summary import ops_and_provenance

    begin = time.perf_counter()
    check_file(args.output, sources=_inputs(args))
    with output.terminated_as_interrupt():  # archives are unpacked into a temporary folder
        graph, warnings = args.read(args)
    graph.save(args.output)
    ops, provenance = ops_and_provenance(graph)
    found = launches(graph)
    report = {
        "output": str(args.output),
        "world_size": graph.world_size,
        "ranks": len(graph.ranks),
        "iterations": graph.iterations,
        "ops": ops,
        "provenance": provenance,
        "untimed_launches": found.untimed,
        "file_bytes": graph.file_bytes,
        "wall_time_s": time.perf_counter() - begin,
        "warnings": warnings,
    }
    if args.json:
        output.show_json(report)
    else:
        _show(args.output, report, found, warnings)
    return 0


def _inputs(args: argparse.Namespace) -> list[Path]:
    """Files that are read: those of folders, what lies beside traces and what profiles extend included."""
    from prismcore.profiles.cluster import cluster_files
    from prismcore.traces.chakra import GROUPS_FILE
    from prismcore.traces.trace_files import files_in

    given = [*args.paths, *(getattr(args, "kineto", None) or ())]
    files: list[Path] = []
    for path in given:
        files += files_in(path, args.format) if path.is_dir() else [path]
    if args.format == "chakra":
        files += [path.parent / GROUPS_FILE for path in files]
    if (meta := getattr(args, "meta", None)) is not None:
        files.append(meta)
    if (cluster := getattr(args, "cluster", None)) is not None:
        files += cluster_files(cluster)
    return files


def _show(path: Path, report: dict[str, Any], found: Launches, warnings: Sequence[str]) -> None:
    import shlex

    from prismcore.profiles.device import device_profiles
    from prismcore.report.table import fields_table
    from prismcore.report.units import format_bytes, format_wall
    from prismcore.report.words import provenance_words

    fields = [
        ("ranks", f"{report['ranks']:,} of {report['world_size']:,}"),
        ("iterations", f"{report['iterations']:,}"),
        ("ops", f"{report['ops']:,} of all ranks together"),
        (
            "provenance of device time",
            provenance_words(report["provenance"]) + found.provenance_words(imported=True),
        ),
        ("size", format_bytes(report["file_bytes"])),
        ("imported in", format_wall(report["wall_time_s"])),
    ]
    output.show(fields_table(str(path), fields))
    output.show_warnings(warnings)
    costed = f" --profile NAME ({', '.join(device_profiles())})" if found.untimed else ""
    output.show("", f"next: prism replay {shlex.quote(str(path))}{costed}")
