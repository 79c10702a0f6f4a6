"""``prism export``: timelines of a replay for other tools."""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from prismcore.cli import output, parsing
from prismcore.cli.graphs import check_output, check_ranks, open_graph
from prismcore.errors import PrismError
from prismcore.rank_list import format_ranks

if TYPE_CHECKING:
    from prismcore.graph import Graph


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        help="timelines for other tools",
        description="Write the timeline of a replay in another tool's format.",
    )
    formats = parser.add_subparsers(dest="format", metavar="FORMAT", required=True)
    perfetto = formats.add_parser(
        "perfetto",
        help="Perfetto's native trace: open it in https://ui.perfetto.dev",
        description="Write a Perfetto trace: a process per rank, a track per stream and for the host, slices "
        "for kernels, copies, communication and waiting, and a counter of allocated memory.",
    )
    perfetto.add_argument("graph", type=Path, metavar="JOB.prism")
    perfetto.add_argument(
        "-o",
        "--output",
        type=parsing.output_path,
        required=True,
        metavar="OUT.pftrace",
        help="the trace to write",
    )
    perfetto.add_argument(
        "--ranks",
        type=ranks_choice,
        default="classes",
        metavar="classes|LIST",
        help="classes: the lowest rank of each rank class (default)",
    )
    perfetto.add_argument(
        "--iteration",
        type=parsing.natural_int,
        default=None,
        metavar="N",
        help="only this iteration, counted from 0; default: the last",
    )
    perfetto.add_argument("--json", action="store_true", help="machine output on stdout")
    perfetto.set_defaults(run=run)


def ranks_choice(text: str) -> str | list[int]:
    """``classes`` or a rank list."""
    return text if text == "classes" else parsing.rank_list(text)


def run(args: argparse.Namespace) -> int:
    from prismcore.replay import replay
    from prismcore.report.timeline import write_timeline

    check_output(args.output, source=args.graph)
    graph = open_graph(args.graph)
    ranks = lowest_of_classes(graph) if args.ranks == "classes" else args.ranks
    check_ranks(graph, ranks, "--ranks")
    if not ranks:
        raise PrismError(f"{args.graph}: holds no rank, expected at least one to show")
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


def lowest_of_classes(graph: Graph) -> list[int]:
    """The lowest rank of each rank class."""
    lowest: dict[int, int] = {}
    for rank in graph.ranks.tolist():
        lowest.setdefault(graph.rank(rank).rank_class, rank)
    return sorted(lowest.values())


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name when it is complete, or not at all."""
    with output.terminated_as_interrupt():
        handle, name = tempfile.mkstemp(dir=path.resolve().parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as out:
                yield out
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(name, 0o666 & ~umask)
            os.replace(name, path)
        except OSError as error:
            os.unlink(name)
            raise PrismError(f"{path}: cannot be written: {error.strerror}") from error
        except BaseException:
            os.unlink(name)
            raise
