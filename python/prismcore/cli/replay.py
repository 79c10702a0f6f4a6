"""``prism replay``: run a graph in virtual time."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.cli import output, parsing
from prismcore.cli.graphs import (
    check_ranks,
    cluster_profile,
    device_profile,
    open_graph,
)
from prismcore.cli.perturbation import add_perturbations, perturbation_of
from prismcore.errors import StoppedError

if TYPE_CHECKING:
    from prismcore.graph import Graph
    from prismcore.replay import ReplayResult
    from prismcore.report.expected_error import ExpectedError
    from prismcore.report.launches import Launches

SHOWN_CLASSES = 8
SHOWN_ITERATIONS = 8


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "replay",
        help="iteration time, peak memory and who waits for whom",
        description="Replay a graph in virtual time: iteration time, where time goes, peak memory.",
    )
    parser.add_argument("graph", type=Path, metavar="JOB.prism")
    parser.add_argument(
        "--ranks",
        type=parsing.rank_list,
        default=None,
        metavar="LIST",
        help="also each of these ranks: 0,8,16-31",
    )
    parser.add_argument(
        "--profile", default=None, metavar="NAME|FILE", help="device profile that costs kernels and host anew"
    )
    parser.add_argument(
        "--cluster",
        default=None,
        metavar="NAME|FILE",
        help="cost communication anew by this cluster profile",
    )
    parser.add_argument(
        "--threads", type=parsing.positive_int, default=1, metavar="N", help="results do not depend on it"
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    add_perturbations(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from prismcore.replay import replay
    from prismcore.report.expected_error import expected_error
    from prismcore.report.launches import launches
    from prismcore.report.warnings import gap_warnings, graph_warnings, iteration_warnings

    graph = open_graph(args.graph)
    check_ranks(graph, args.ranks or (), "--ranks")
    perturbation = perturbation_of(args, graph)
    device, cluster = device_profile(args.profile), cluster_profile(args.cluster)
    result = replay(
        graph,
        threads=args.threads,
        perturbation=perturbation,
        device=device,
        cluster=cluster,
    )
    if perturbation.is_none:
        result.warnings += iteration_warnings(result)
    else:
        result.warnings += gap_warnings(graph, result)
    result.warnings += graph_warnings(graph, device=device, cluster=cluster)
    found = launches(graph, device)
    expected = expected_error(
        graph,
        device=device,
        cluster=cluster,
        change=None if perturbation.is_none else "such perturbations",
        iteration_ns=result.median_iteration_time_ns if len(result.iteration_time_ns) else None,
    )
    result.warnings += expected.warnings
    if args.json:
        report = result.to_json(args.ranks)
        output.show_json(expected.beside_provenance(report, untimed_launches=found.untimed))
    else:
        _show(args, graph, result, expected, found)
    return StoppedError.exit_code if result.failure is not None and result.failure.stopped else 0


def _show(
    args: argparse.Namespace,
    graph: Graph,
    result: ReplayResult,
    expected: ExpectedError,
    found: Launches,
) -> None:
    from prismcore.report.replay import class_table, rank_table, split_table, sum_note
    from prismcore.report.table import fields_table
    from prismcore.report.units import format_bytes, format_ns, format_wall, plural
    from prismcore.report.words import provenance_words

    if result.failure is not None:
        output.show_lines([*result.failure.lines(), ""])
    if not len(result.iteration_time_ns):
        output.show(f"{args.graph}: no iteration ended on all ranks")
        output.show_warnings(result.warnings)
        return
    peak = format_bytes(int(result.peak_allocated_bytes.max()))
    times = [format_ns(int(t)) for t in result.iteration_time_ns]
    counted = len(times) - result.first_counted
    shown = ", ".join(times[:SHOWN_ITERATIONS])
    if len(times) > SHOWN_ITERATIONS:
        shown += f", ... ({len(times)} in all)"
    if result.first_counted:
        shown += " (the first holds the set-up)"
    left_out = found.provenance_words(imported="imported_from" in graph.metadata)
    fields = [
        (
            "iteration time",
            found.time_words(
                result.median_iteration_time_ns,
                f"{format_ns(result.median_iteration_time_ns)} (median of {counted})",
            ),
        ),
        ("iterations", shown),
        (
            "peak allocated",
            f"{peak} on rank {result.peak_rank}" if result.memory_known else "not known: not in the traces",
        ),
        ("provenance of device time", provenance_words(result.provenance) + left_out),
        ("expected error", expected.words()),
        (
            "events",
            f"{result.events:,} of {plural(len(result.ranks), 'rank')} in {format_wall(result.wall_time_s)}",
        ),
    ]
    output.show(fields_table(str(args.graph), fields), "", split_table(result))
    if note := sum_note(result):
        output.show(note)
    output.show("", class_table(graph, result, SHOWN_CLASSES))
    if args.ranks is not None:
        output.show("", rank_table("ranks", result, args.ranks))
    output.show_warnings(result.warnings)
    graph_file = shlex.quote(str(args.graph))
    trace = shlex.quote(str(args.graph.with_suffix(".pftrace")))
    output.show("", f"next: prism export perfetto {graph_file} -o {trace}")
