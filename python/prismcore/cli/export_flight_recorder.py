"""``prism export flight-recorder``: dumps that torch's own analyser reads."""

from __future__ import annotations

import argparse
import shlex

from prismcore.cli import export_ranks, output
from prismcore.cli.graphs import open_graph
from prismcore.cli.perturbation import add_perturbations, perturbation_of
from prismcore.cli.written import check_folder, whole_folder
from prismcore.errors import StoppedError
from prismcore.rank_list import format_ranks


def add_format(formats: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = formats.add_parser(
        "flight-recorder",
        help="dumps of torch's flight recorder, one file a rank",
        description="Replay the graph and write what torch's flight recorder would hold on each rank: "
        "rank_RANK, for python -m torch.distributed.flight_recorder.fr_trace. A job that cannot go on is "
        "dumped as it stands then, and the exit code is 3.",
    )
    export_ranks.add_rank_files(parser)
    add_perturbations(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    from prismcore.exports.flight_recorder import PREFIX, write_flight_recorder

    check_folder(args.output)
    graph = open_graph(args.graph)
    ranks = export_ranks.chosen(graph, args.ranks, args.graph)
    perturbation = perturbation_of(args, graph)
    with whole_folder(args.output) as folder:
        size = write_flight_recorder(folder, graph, ranks, perturbation=perturbation)
    failure = size.failure
    if args.json:
        report = {
            "output": str(args.output),
            "ranks": ranks,
            "entries": size.entries,
            "unfinished": size.unfinished,
            "file_bytes": size.file_bytes,
        }
        output.show_json(report if failure is None else report | {"failure": failure.to_json()})
    else:
        from prismcore.report.units import format_bytes, plural

        unfinished = f", {size.unfinished:,} of them not completed" if size.unfinished else ""
        output.show(
            f"{args.output}: {plural(size.ranks, 'rank')} ({format_ranks(ranks)}); "
            f"{size.entries:,} entries{unfinished}; {format_bytes(size.file_bytes)}"
        )
        if failure is not None:
            output.show_lines(failure.lines())
        partly = " --allow-incomplete-ranks" if len(ranks) < graph.world_size else ""
        output.show(
            "next: python -m torch.distributed.flight_recorder.fr_trace "
            f"{shlex.quote(str(args.output))} -p {PREFIX}{partly}"
        )
        output.show("it names what is wrong, and nothing else; its -j lists all calls: pip install tabulate")
    return StoppedError.exit_code if failure is not None and failure.stopped else 0
