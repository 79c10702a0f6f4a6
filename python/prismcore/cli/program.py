"""The program behind ``--``, and the flags of collect and emulate that say how it runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from prismcore.cli import parsing
from prismcore.cli.usage import UsageError


def add_program_flags(parser: argparse.ArgumentParser, *, routing_help: str) -> None:
    parser.add_argument(
        "--routing",
        type=parsing.routing_rule,
        default=None,
        metavar="PRESET[:k=v,...]",
        help=routing_help,
    )
    parser.add_argument(
        "--rules",
        type=Path,
        default=None,
        metavar="FILE",
        help="Python file that says what ranks that do not run send (prismcore.rules)",
    )
    parser.add_argument(
        "--preload",
        type=parsing.module_name,
        action="append",
        default=[],
        metavar="MODULE",
        help="import MODULE once, before ranks are forked; may be given again",
    )


def check_program(args: argparse.Namespace) -> None:
    """Raises UsageError where there is no program behind ``--``."""
    program = [word for word in (args.program or [])[:2] if word]
    if not program or program == ["-m"]:
        found = "-m without a module" if program else "no program"
        raise UsageError(f"{found}: expected -- script.py ARGS, or -- -m module ARGS, at the end")
