"""Where a command writes: results to stdout, progress to stderr and to a terminal only."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PLAIN_WIDTH = 110
"""Columns of a table that is written to a file or a pipe."""

Progress = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, what is being done)."""


def show(*parts: RenderableType) -> None:
    """Print tables and lines to stdout: with colours on a terminal, as plain text elsewhere."""
    from rich.console import Console

    if sys.stdout.isatty():
        _print(Console(highlight=False), parts)
        return
    console = Console(highlight=False, no_color=True, width=PLAIN_WIDTH, file=io.StringIO())
    _print(console, parts)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for line in text.splitlines():
        sys.stdout.write(f"{line.rstrip()}\n")


def _print(console: Console, parts: tuple[RenderableType, ...]) -> None:
    for part in parts:
        if isinstance(part, str):
            console.print(part, markup=False, soft_wrap=True)
        else:
            console.print(part)


def show_json(result: dict[str, Any]) -> None:
    """The machine output of a command: one JSON object on stdout, nothing else."""
    from prismcore.report.json import dumps

    sys.stdout.write(dumps(result))


def note(text: str) -> None:
    """One line for people, on stderr."""
    print(f"prism: {text}", file=sys.stderr)


@contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """What anything in this process or its children writes to stdout goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def terminated_as_interrupt() -> Iterator[None]:
    """SIGTERM becomes KeyboardInterrupt, so that what was started is cleaned up."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A progress bar on stderr when that is a terminal; None otherwise."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)

        def step(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=text)

        yield step
