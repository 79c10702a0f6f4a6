"""``prism export perfetto``: the timeline of a replay in Perfetto's native format."""

from __future__ import annotations

import argparse
import dataclasses

from prismcore.cli import export_ranks, output, parsing
from prismcore.cli.graphs import check_output, open_graph
from prismcore.cli.written import whole_file
from prismcore.rank_list import format_ranks


def add_format(formats: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = formats.add_parser(
        "perfetto",
        help="Perfetto's native trace: open it in https://ui.perfetto.dev",
        description="Write a Perfetto trace: a process per rank, a track per stream and for the host, slices "
        "for kernels, copies, communication and waiting, and a counter of allocated memory.",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=parsing.output_path,
        required=True,
        metavar="OUT.pftrace",
        help="the trace to write",
    )
    parser.add_argument(
        "--ranks",
        type=export_ranks.classes_or_list,
        default="classes",
        metavar="classes|LIST",
        help="classes: the lowest rank of each rank class (default)",
    )
    parser.add_argument(
        "--iteration",
        type=parsing.natural_int,
        default=None,
        metavar="N",
        help="only this iteration, counted from 0; default: the last",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    from prismcore.replay import replay
    from prismcore.report.timeline import write_timeline

    check_output(args.output, source=args.graph)
    graph = open_graph(args.graph)
    ranks = export_ranks.chosen(graph, args.ranks, args.graph)
    result = replay(graph, timeline_ranks=ranks)
    with whole_file(args.output) as out:
        size = write_timeline(out, graph, result, iteration=args.iteration)
    report = {
        "output": str(args.output),
        **dataclasses.asdict(size),
        "ranks": ranks,
        "file_bytes": args.output.stat().st_size,
    }
    if args.json:
        output.show_json(report)
        return 0
    from prismcore.report.units import format_bytes, plural

    output.show(
        f"{args.output}: iteration {size.iteration}; {plural(size.ranks, 'rank')} ({format_ranks(ranks)}); "
        f"{plural(size.slices, 'slice')}; {format_bytes(report['file_bytes'])}",
        "open it in https://ui.perfetto.dev",
    )
    return 0
