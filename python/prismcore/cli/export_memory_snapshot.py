"""``prism export memory-snapshot``: a rank's allocator for torch's memory_viz."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from prismcore.cli import output, parsing
from prismcore.cli.graphs import check_output, check_ranks, open_graph
from prismcore.cli.written import whole_file
from prismcore.errors import PrismError


def add_format(formats: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    parser = formats.add_parser(
        "memory-snapshot",
        help="a rank's allocator as torch's memory snapshot",
        description="Replay the graph and write what torch.cuda.memory._snapshot() would hold of one rank: "
        "segments, blocks, and every allocation and free with its time. Open it in "
        "https://pytorch.org/memory_viz.",
    )
    parser.add_argument(
        "--rank",
        type=parsing.natural_int,
        default=None,
        metavar="R",
        help="which rank; default: the one with the largest recorded peak",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=parsing.output_path,
        default=None,
        metavar="FILE.pickle",
        help="the snapshot to write; default: JOB_rankR.pickle in the current folder",
    )
    return parser


def run(args: argparse.Namespace) -> int:
    from prismcore.exports.memory_snapshot import write_memory_snapshot

    graph = open_graph(args.graph)
    ranks = graph.ranks.tolist()
    if not ranks:
        raise PrismError(f"{args.graph}: holds no rank, expected at least one to show")
    rank = args.rank
    if rank is None:
        rank = max(ranks, key=lambda r: graph.rank(r).peaks.allocated_bytes)
    check_ranks(graph, [rank], "--rank")
    path = args.output or Path(f"{args.graph.stem}_rank{rank}.pickle")
    check_output(path, source=args.graph)
    with whole_file(path) as out:
        size = write_memory_snapshot(out, graph, rank)
    report = {"output": str(path), **dataclasses.asdict(size), "file_bytes": path.stat().st_size}
    if args.json:
        output.show_json(report)
        return 0
    from prismcore.report.units import format_bytes, plural

    output.show(
        f"{path}: rank {rank}; {plural(size.allocations, 'allocation')}; {plural(size.segments, 'segment')}; "
        f"peak {size.peak_allocated_bytes:,} bytes allocated, {size.peak_reserved_bytes:,} reserved; "
        f"{format_bytes(report['file_bytes'])}"
    )
    output.show_warnings(size.warnings)
    output.show("open it in https://pytorch.org/memory_viz")
    return 0
