"""The options of exports with a file a rank: where they go, and which ranks are written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.cli import parsing
from prismcore.cli.graphs import check_ranks
from prismcore.errors import PrismError
from prismcore.rank_list import format_ranks

if TYPE_CHECKING:
    from prismcore.graph import Graph

MOST_FILES = 512
"""Ranks that are written without being asked for: a file each."""


def classes_or_list(text: str) -> str | list[int]:
    """``classes`` or a rank list."""
    return text if text == "classes" else parsing.rank_list(text)


def any_choice(text: str) -> str | list[int]:
    """``all``, ``classes`` or a rank list."""
    return text if text == "all" else classes_or_list(text)


def add_rank_files(parser: argparse.ArgumentParser) -> None:
    """``-o FOLDER`` and ``--ranks`` of formats with a file a rank."""
    parser.add_argument(
        "-o",
        "--output",
        type=parsing.output_path,
        required=True,
        metavar="FOLDER",
        help="the folder to make; may be there if it is empty",
    )
    parser.add_argument(
        "--ranks",
        type=any_choice,
        default=None,
        metavar="all|classes|LIST",
        help="which ranks, a file each; classes: the lowest rank of each rank class; default: all, of a "
        f"graph of at most {MOST_FILES}",
    )


def chosen(graph: Graph, choice: str | list[int] | None, path: Path) -> list[int]:
    """The ranks of a choice. Raises PrismError where the graph lacks one, holds none, or holds more than are
    written unasked (None)."""
    held = graph.ranks.tolist()
    if choice is None and len(held) > MOST_FILES:
        raise PrismError(
            f"{path}: {len(held):,} ranks found, at most {MOST_FILES} are written unasked, a file each; "
            f"choose with --ranks: classes, a list such as {format_ranks(held[:16])}, or all"
        )
    if choice == "classes":
        ranks = lowest_of_classes(graph)
    elif choice is None or choice == "all":
        ranks = held
    else:
        ranks = [int(rank) for rank in choice]
        check_ranks(graph, ranks, "--ranks")
    if not ranks:
        raise PrismError(f"{path}: holds no rank, expected at least one to show")
    return ranks


def lowest_of_classes(graph: Graph) -> list[int]:
    """The lowest rank of each rank class."""
    lowest: dict[int, int] = {}
    for rank in graph.ranks.tolist():
        lowest.setdefault(graph.rank(rank).rank_class, rank)
    return sorted(lowest.values())
