"""``prism export kineto``: traces as torch's profiler writes them."""

from __future__ import annotations

import argparse
import dataclasses

from prismcore.cli import export_ranks, output
from prismcore.cli.graphs import open_graph
from prismcore.cli.written import check_folder, whole_folder
from prismcore.rank_list import format_ranks


def add_format(formats: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = formats.add_parser(
        "kineto",
        help="traces as torch's profiler writes them, one file a rank",
        description="Replay the graph and write what torch's profiler would have seen of each rank, "
        "rankRANK_trace.json.gz (Chrome's JSON): for HolisticTraceAnalysis, chrome://tracing, prism import.",
    )
    export_ranks.add_rank_files(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    from prismcore.exports.kineto import write_kineto

    check_folder(args.output)
    graph = open_graph(args.graph)
    ranks = export_ranks.chosen(graph, args.ranks, args.graph)
    with whole_folder(args.output) as folder:
        size = write_kineto(folder, graph, ranks)
    if args.json:
        output.show_json({"output": str(args.output), **dataclasses.asdict(size), "ranks": ranks})
        return 0
    from prismcore.report.units import format_bytes, plural

    output.show(
        f"{args.output}: {plural(size.ranks, 'rank')} ({format_ranks(ranks)}); "
        f"{plural(size.iterations, 'iteration')}; {plural(size.events, 'event')}; "
        f"{format_bytes(size.file_bytes)}"
    )
    return 0
