"""``prism info``: what a graph holds."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prismcore.cli import output, parsing
from prismcore.cli.graphs import check_ranks, open_graph

if TYPE_CHECKING:
    from prismcore.graph import Graph
    from prismcore.report.summary import RankSummary


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "info", help="what a graph holds", description="Say what a .prism file holds, without replaying it."
    )
    parser.add_argument("graph", type=Path, metavar="JOB.prism")
    parser.add_argument(
        "--ranks",
        type=parsing.rank_list,
        default=None,
        metavar="LIST",
        help="also each of these ranks: 0,8,16-31",
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from prismcore.report.summary import summarize_rank

    graph = open_graph(args.graph)
    check_ranks(graph, args.ranks or (), "--ranks")
    ranks = None if args.ranks is None else [summarize_rank(graph, r) for r in args.ranks]
    if args.json:
        output.show_json(info_json(graph, ranks))
    else:
        show_info(str(args.graph), graph, ranks)
    return 0


def info_json(graph: Graph, ranks: list[RankSummary] | None = None) -> dict[str, Any]:
    """The keys of ``prism info --json``."""
    from prismcore.report.expected_error import expected_error
    from prismcore.report.summary import summarize

    out = expected_error(graph).beside_provenance(dataclasses.asdict(summarize(graph)))
    if ranks is not None:
        out["ranks"] = {r.rank: r.to_json() for r in ranks}
    return out


def show_info(
    title: str, graph: Graph, ranks: list[RankSummary] | None = None, more_warnings: Sequence[str] = ()
) -> None:
    """The table of ``prism info``."""
    from prismcore.report.expected_error import expected_error
    from prismcore.report.launches import launches
    from prismcore.report.summary import summarize
    from prismcore.report.table import fields_table, rows_table
    from prismcore.report.warnings import graph_warnings
    from prismcore.report.words import provenance_words, rule_words, spread_words

    summary = summarize(graph)
    expected = expected_error(graph)
    metadata = graph.metadata
    left_out = launches(graph).provenance_words(imported="imported_from" in metadata)
    fields: list[tuple[str, object]] = []
    if summary.command is not None:
        fields.append(("program", shlex.join(summary.command)))
    fields += [
        ("device", summary.device or "not known"),
        (
            "ranks",
            f"{summary.world_size:,} in {_classes(summary.classes)}: {summary.ranks_run:,} ran "
            f"({summary.ranks_checked:,} of them to check), {summary.ranks_inferred:,} inferred",
        ),
        ("iterations", summary.iterations),
        ("communicators", summary.communicators),
        ("ops", f"{summary.ops:,} in {summary.blocks:,} different blocks of {graph.num_ops:,} ops"),
        ("file_bytes", summary.file_bytes),
        ("provenance of device time", provenance_words(summary.provenance) + left_out),
        ("expected error", expected.words()),
        ("spread among like ranks", spread_words(summary.spread)),
    ]
    if routing := metadata.get("routing"):
        fields.append(("routing", str(routing)))
    if summary.rules is not None:
        fields.append(("rules", rule_words(summary.rules, metadata.get("rules_file"))))
    if switched_off := metadata.get("switched_off"):
        fields.append(("torch does without", ", ".join(map(str, switched_off))))
    fields += [
        ("digest", summary.digest),
        ("communication digest", summary.communication_digest),
    ]
    output.show(fields_table(title, fields))
    if ranks:
        columns = (
            *("rank", "class", "ran", "ops", "collectives", "sent_bytes"),
            *("requested_bytes", "allocated_bytes", "reserved_bytes", "device_bytes"),
        )
        rows = [
            (
                *(r.rank, r.rank_class, not r.inferred, r.ops, r.collectives, r.bytes_sent),
                *(r.peak_requested_bytes, r.peak_allocated_bytes),
                *(r.peak_reserved_bytes, r.peak_device_bytes),
            )
            for r in ranks
        ]
        output.show("", rows_table("ranks; the last four columns are peaks", columns, rows))
    output.show_warnings([*more_warnings, *graph_warnings(graph), *expected.warnings])


def _classes(count: int) -> str:
    return "1 class" if count == 1 else f"{count:,} classes"
