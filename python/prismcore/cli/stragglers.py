"""``prism stragglers``: what slow ops, stages and workers cost a job."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.cli import output
from prismcore.cli.graphs import open_graph

if TYPE_CHECKING:
    from prismcore.stragglers import StragglerReport

LONG_NAME = 60
SHOWN = 15
LEFT_OUT = 0.1  # of the iteration, from when on it is told


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "stragglers",
        help="what slow operations, stages and workers cost",
        description="Replay a graph with its stragglers removed, wholly and in part: every op takes what "
        "ops of its kind take elsewhere, but for those of one operation, stage or data-parallel rank.",
    )
    parser.add_argument("graph", type=Path, metavar="JOB.prism")
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from prismcore.report.expected_error import expected_error
    from prismcore.report.summary import ops_and_provenance
    from prismcore.report.warnings import graph_warnings
    from prismcore.report.words import provenance_words
    from prismcore.stragglers import analyse

    begin = time.perf_counter()
    graph = open_graph(args.graph)
    report = analyse(graph)
    provenance = ops_and_provenance(graph)[1]
    expected = expected_error(graph, change="its stragglers taken away")
    warnings = [*graph_warnings(graph), *expected.warnings]
    left_out = 1 - report.without_gaps_ns / report.iteration_time_ns if report.iteration_time_ns else 0.0
    if left_out >= LEFT_OUT:
        warnings.append(
            f"{100 * left_out:.0f} % of the iteration are gaps and host time, which these figures leave out"
        )
    if not report.by_stage:
        warnings.append(
            "the graph does not say which rank is which worker, so there is nothing by stage and worker; "
            "prism import straggler notes it"
        )
    if report.operations_left_out:
        warnings.append(
            f"{report.operations_left_out:,} operations are not replayed alone: the "
            f"{len(report.by_operation)} that took most beyond their ideal durations are"
        )
    if args.json:
        wall = time.perf_counter() - begin
        found = {**report.to_json(), "provenance": provenance, "wall_time_s": wall, "warnings": warnings}
        output.show_json(expected.beside_provenance(found))
        return 0
    rests_on = [
        ("provenance of device time", provenance_words(provenance)),
        ("expected error", expected.words()),
    ]
    _show(str(args.graph), report, rests_on)
    output.show_warnings(warnings)
    return 0


def _show(title: str, report: StragglerReport, rests_on: Sequence[tuple[str, str]]) -> None:
    from prismcore.report.table import fields_table, rows_table
    from prismcore.report.units import format_ns, format_share

    fields = [
        ("iteration time", f"{format_ns(round(report.iteration_time_ns))} (mean, as in the graph)"),
        ("without gaps", format_ns(round(report.without_gaps_ns))),
        ("without stragglers", format_ns(round(report.ideal_ns))),
        ("slowdown S", f"{report.slowdown:.3f}"),
    ]
    if report.slowest_workers:
        workers = ", ".join(f"dp {dp} stage {stage}" for dp, stage in report.slowest_workers)
        for name, share in (
            (f"share of the slowest ({workers})", report.m_slowest_workers),
            ("share of the last stage", report.m_last_stage),
        ):
            fields.append((name, "nothing to gain" if share is None else format_share(share)))
    output.show(fields_table(title, [*fields, *rests_on]))
    groups = (
        ("operation", dict(sorted(report.by_operation.items(), key=lambda item: -item[1]))),
        ("stage", {str(k): v for k, v in report.by_stage.items()}),
        ("dp rank", {str(k): v for k, v in report.by_dp_rank.items()}),
    )
    for what, slowdowns in groups:
        if slowdowns:
            rows = [
                (name, f"{slowdown:.4f}")
                for name, slowdown in zip(_labels(list(slowdowns)), slowdowns.values(), strict=True)
            ]
            shown = rows[:SHOWN] if what == "operation" else rows
            output.show("", rows_table(f"by one {what}", (what, "slowdown"), shown))
            if rest := rows[len(shown) :]:
                output.show(f"and {len(rest):,} more, of {rest[-1][1]} to {rest[0][1]} (all with --json)")


def _labels(names: Sequence[str]) -> list[str]:
    """Short names, numbered where several would read the same."""
    short = [_short(name) for name in names]
    total, seen, out = Counter(short), Counter[str](), []
    for name in short:
        seen[name] += 1
        out.append(f"{name} #{seen[name]}" if total[name] > 1 else name)
    return out


def _short(name: str) -> str:
    """Names of kernels may be pages long."""
    from prismcore.report.words import kernel_label

    label = name if len(name) <= LONG_NAME else kernel_label(name)
    return label if len(label) <= LONG_NAME else f"{label[: LONG_NAME - 3]}..."
