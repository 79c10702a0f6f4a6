"""``prism check``: is a graph whole, and can its ranks meet?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from prismcore.cli import output
from prismcore.cli.graphs import open_graph
from prismcore.errors import DeadlockError, MismatchError


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "check",
        help="verify a graph: file, communication of all ranks, deadlocks",
        description="Open a .prism file, verify its checksums and replay it to find mismatches, missing "
        "arrivals and deadlocks. Exit 3 if there is one.",
    )
    parser.add_argument("graph", type=Path, metavar="JOB.prism")
    parser.add_argument("--json", action="store_true", help="machine output on stdout")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from prismcore.replay import replay

    graph = open_graph(args.graph)  # raises GraphFormatError where bytes are damaged
    found: DeadlockError | MismatchError | None = None
    events = 0
    try:
        events = replay(graph).events
    except (DeadlockError, MismatchError) as error:
        found = error
    report: dict[str, Any] = {
        "ok": found is None,
        "file_bytes": graph.file_bytes,
        "world_size": graph.world_size,
        "ranks": len(graph.ranks),
        "blocks": graph.num_blocks,
        "communicators": graph.num_communicators,
        "events": events,
        "error": None if found is None else {"kind": type(found).__name__, "message": str(found)},
    }
    if args.json:
        output.show_json(report)
    else:
        _show(str(args.graph), report)
    if found is not None:
        raise found
    return 0


def _show(title: str, report: dict[str, Any]) -> None:
    from prismcore.report.table import fields_table
    from prismcore.report.units import format_bytes, plural

    fields = [
        ("file", f"{format_bytes(report['file_bytes'])}, structure and checksums are right"),
        (
            "content",
            f"{report['ranks']:,} of {plural(report['world_size'], 'rank')}, "
            f"{plural(report['blocks'], 'block')}, "
            f"{plural(report['communicators'], 'communicator')}",
        ),
    ]
    replayed = f"all ranks met and ended: {report['events']:,} events, no deadlock, no mismatch"
    if not report["ok"]:
        replayed = f"{report['error']['kind']}, see below"
    fields.append(("replay", replayed))
    output.show(fields_table(title, fields))
