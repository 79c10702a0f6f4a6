"""``prism spare watch``: a training that runs, group by group."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from prismcore.cli import output, parsing
from prismcore.errors import SpareError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from prismcore.spare.runtime.follow import Follower
    from prismcore.spare.runtime.progress import Progress

PLAIN_ROWS = 40
MOST_ROWS = 1_000_000
HEAD_ROWS = 4  # an empty line, the head of the table, and the line that the prompt takes


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "watch",
        help="a training that runs, group by group",
        description="Follow the event logs of a training until Ctrl-C: what each group does, what was lost "
        "and what it cost. Prints one table where stdout is no terminal.",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="event log, folder of *.jsonl, pattern, or path with {group}; need not exist yet",
    )
    parser.add_argument("--once", action="store_true", help="print one table and end")
    parser.add_argument(
        "--rows",
        type=parsing.whole_number(1, MOST_ROWS),
        default=None,
        metavar="N",
        help="rows for groups; where they are too few, groups of one state share one; default: what fits the "
        f"terminal, {PLAIN_ROWS} elsewhere",
    )
    parser.add_argument(
        "--refresh-s",
        type=parsing.positive_seconds,
        default=0.5,
        metavar="SECONDS",
        help="between two looks at the logs (%(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="machine output on stdout, once")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from prismcore.spare.runtime.follow import Follower
    from prismcore.spare.runtime.progress import Progress

    follower, progress = Follower(args.paths), Progress()
    console = output.terminal()
    if console is not None and not args.once and not args.json:
        with output.terminated_as_interrupt():
            _follow(args, console, follower, progress)
    else:
        for event in follower.poll():
            progress.add(event)
        _expect_events(follower, progress)
    if args.json:
        from prismcore.report.spare_watch import summary

        output.show_json(summary(progress, follower, time.time_ns()))
    else:
        output.show(*_picture(args, console, follower, progress))
    return 0


def _follow(args: argparse.Namespace, console: Console, follower: Follower, progress: Progress) -> None:
    """Draw until Ctrl-C or SIGTERM."""
    from rich.console import Group
    from rich.live import Live

    def draw() -> None:
        live.update(Group(*_picture(args, console, follower, progress)), refresh=True)

    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                drawn = time.monotonic()
                for event in follower.poll():
                    progress.add(event)
                    if time.monotonic() - drawn > args.refresh_s:  # long logs are read for a while
                        draw()
                        drawn = time.monotonic()
                draw()
                time.sleep(args.refresh_s)
    except KeyboardInterrupt:  # how it is meant to end
        pass
    except OSError as error:
        if error.filename is not None:
            raise
        raise output.StdoutError(error) from error


def _picture(
    args: argparse.Namespace, console: Console | None, follower: Follower, progress: Progress
) -> list[RenderableType]:
    """What is to be said now; on a terminal, as much as it has room for."""
    from rich.text import Text

    from prismcore.report.spare_watch import groups_table, status_lines
    from prismcore.report.units import format_bytes

    now_ns = time.time_ns()
    lines = status_lines(progress, follower, now_ns)
    if follower.behind:  # drawn while a long log is read
        lines.append(Text(f"{format_bytes(follower.behind)} are still to be read", "cyan"))
    if not progress.groups:
        return list(lines)
    rows, width = PLAIN_ROWS, None
    if console is not None:
        width = console.width
        rows = max(1, console.height - HEAD_ROWS - sum(len(line.wrap(console, width)) for line in lines))
    return [*lines, "", groups_table(progress, now_ns, args.rows or rows, width)]


def _expect_events(follower: Follower, progress: Progress) -> None:
    """Raises SpareError where there is nothing to show, with the reason."""
    if progress.events:
        return
    for path, why in follower.problems.items():
        raise SpareError(f"{path}: {why}, expected an event log")
    places = ", ".join(follower.places)
    if follower.damaged:
        raise SpareError(f"{places}: found lines but no event among them, expected the log of an EventLog")
    if not follower.files:
        raise SpareError(
            f"no event log found at {places}, expected a file, a folder of *.jsonl, or a pattern"
        )
