"""``prism doctor``: what this machine can do, and what is missing."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from prismcore.cli import output

STATUS_STYLE = {"ok": "green", "limited": "yellow", "missing": "red"}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="what this machine can do and what is missing",
        description="Say what this machine can do and what is missing, without importing torch. "
        "Exit 0 if graphs can be read and replayed here.",
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from prismcore.cli.machine import machine_checks
    from prismcore.cli.software import software_checks

    checks = machine_checks() + software_checks()
    abilities = {
        ability: all(c.status != "missing" for c in checks if ability in c.needed_for)
        for ability in ("replay", "collect", "gpu")
    }
    if args.json:
        output.show_json({"ok": abilities["replay"], "can": abilities, "checks": checks})
    else:
        _show(checks, abilities)
    return 0 if abilities["replay"] else 1


def _show(checks: list[Any], abilities: dict[str, bool]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for style in ("", "cyan", ""):
        table.add_column(style=style, no_wrap=style != "", overflow="fold")
    for check in checks:
        told = check.found if not check.advice else f"{check.found}\n-> {check.advice}"
        optional = check.status == "missing" and check.needed_for == ("gpu",)  # nothing to worry about
        style = STATUS_STYLE["limited" if optional else check.status]
        table.add_row(Text(check.status, style=style), check.name, Text(told))
    counts = Counter(c.status for c in checks)
    words = {True: "yes", False: "no"}
    output.show(
        table,
        "",
        f"{counts['ok']} ok, {counts['limited']} limited, {counts['missing']} missing",
        f"read and replay graphs: {words[abilities['replay']]}; "
        f"collect on a virtual GPU: {words[abilities['collect']]}; "
        f"real GPU: {words[abilities['gpu']]}",
    )
