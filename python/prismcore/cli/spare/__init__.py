"""``prism spare``: train through failures without restarting. One module a subcommand."""

from __future__ import annotations

import argparse

from prismcore.cli.spare import place, plan, simulate, watch

SUBCOMMANDS = (place, plan, simulate, watch)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "spare",
        help="plan a fleet that trains through failures (SPARe)",
        description="SPARe (ICML 2026, arXiv 2603.00357): every data-parallel group hosts a stack of "
        "redundant data shards; when a group dies, the others re-order their stacks and go on.",
    )
    subcommands = parser.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for subcommand in SUBCOMMANDS:
        subcommand.add_parser(subcommands)
