"""``prism export chakra``: execution traces for simulators such as ASTRA-sim."""

from __future__ import annotations

import argparse
import dataclasses

from prismcore.cli import export_ranks, output
from prismcore.cli.graphs import open_graph
from prismcore.cli.written import check_folder, whole_folder
from prismcore.rank_list import format_ranks


def add_format(formats: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = formats.add_parser(
        "chakra",
        help="MLCommons Chakra execution traces, one file a rank",
        description="Write a folder of Chakra execution traces (protobuf), chakra.RANK.et for each rank, and "
        "comm_groups.json with their communicators. Durations are those of the graph, in ns beside us.",
    )
    export_ranks.add_rank_files(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    from prismcore.exports.chakra import write_chakra

    check_folder(args.output)
    graph = open_graph(args.graph)
    ranks = export_ranks.chosen(graph, args.ranks, args.graph)
    with whole_folder(args.output) as folder:
        size = write_chakra(folder, graph, ranks)
    if args.json:
        output.show_json({"output": str(args.output), **dataclasses.asdict(size), "ranks": ranks})
        return 0
    from prismcore.report.units import format_bytes, plural

    output.show(
        f"{args.output}: {plural(size.ranks, 'rank')} ({format_ranks(ranks)}); {plural(size.nodes, 'node')}; "
        f"{format_bytes(size.file_bytes)}",
        f"for ASTRA-sim: --workload-configuration={args.output}/chakra "
        f"--comm-group-configuration={args.output}/comm_groups.json",
    )
    return 0
