"""Where a command writes: results to stdout, progress to stderr and to a terminal only."""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as Bar

PLAIN_WIDTH = 110
"""Columns of a table that is written to a file or a pipe."""

MOST_WIDTH = 1000
_PADDING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$")

_bars: list[Bar] = []  # that is drawn now
Progress = Callable[[int, int, str], None]
"""Called with (steps done, steps in all, what is being done)."""


def show(*parts: RenderableType) -> None:
    """Print tables and lines to stdout: with colours on a terminal, as plain text elsewhere.

    Lines end where their text ends. A table whose numbers need more room than there is gets it: too
    wide is better than cut.
    """
    from rich.console import Console
    from rich.table import Table

    terminal = sys.stdout.isatty()
    buffer = io.StringIO()
    width = Console().width if terminal else PLAIN_WIDTH
    for part in parts:
        room = MOST_WIDTH if isinstance(part, Table) and part.show_header else width
        console = Console(
            file=buffer,
            width=room,
            highlight=False,
            emoji=False,
            force_terminal=terminal,
            no_color=None if terminal else True,  # None: as NO_COLOR says
        )
        if isinstance(part, str):
            console.print(part, markup=False, soft_wrap=True)
        else:
            console.print(part)
    write("".join(_PADDING.sub(r"\1", line) + "\n" for line in buffer.getvalue().splitlines()))


def terminal() -> Console | None:
    """The terminal that stdout is, where that can be drawn on over and over; None elsewhere."""
    from rich.console import Console

    if not sys.stdout.isatty():
        return None
    console = Console(highlight=False, emoji=False)
    return None if console.is_dumb_terminal else console


def show_warnings(warnings: Iterable[str]) -> None:
    """A paragraph each: wrapped between words on a terminal, one line elsewhere."""
    from rich.text import Text

    terminal = sys.stdout.isatty()
    for warning in map(escaped, warnings):
        line: RenderableType = f"warning: {warning}"
        show("", Text.assemble(("warning: ", "yellow"), warning) if terminal else line)


def escaped(text: str, *, lines: bool = False) -> str:
    """`text` without what a terminal would obey: names of files and of what traces hold are others' bytes.

    ``lines``: keeps line breaks and tabs, of texts that have several lines of their own.
    """
    kept = " \n\t" if lines else " "
    return "".join(c if c.isprintable() or c in kept else _escape(c) for c in text)


def _escape(character: str) -> str:
    byte = ord(character) - 0xDC00  # of a name that is not UTF-8, as Python holds it
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else character.encode("unicode_escape").decode()


def show_lines(lines: Iterable[str]) -> None:
    """A line each, wrapped between words on a terminal."""
    from rich.text import Text

    show(*(Text(line) if sys.stdout.isatty() else line for line in lines))


def show_json(result: dict[str, Any]) -> None:
    """The machine output of a command: one JSON object on stdout, nothing else."""
    from prismcore.report.json import dumps

    write(dumps(result))


class StdoutError(Exception):
    """A result could not be written; `errno` says why. EPIPE: whoever read it has gone."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror)
        self.errno = error.errno


def write(text: str) -> None:
    """`text` to stdout, all of it, or StdoutError."""
    try:
        _write(sys.stdout, text)
    except OSError as error:
        raise StdoutError(error) from error


def complain(text: str, *, patience_s: float | None = None) -> None:
    """`text` to stderr, as far as somebody reads that, so soon; above the progress bar where there is
    one."""
    if sys.stderr is None:  # the caller has closed it
        return
    with contextlib.suppress(OSError, ValueError):
        if patience_s is not None and not _takes(sys.stderr, patience_s):
            return
        if _bars:
            _bars[-1].console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
        else:
            _write(sys.stderr, text)


def note(text: str, *, patience_s: float | None = None) -> None:
    """One line for people, on stderr."""
    complain(f"prism: {text}\n", patience_s=patience_s)


def _takes(stream: TextIO, patience_s: float) -> bool:
    """Whether a write would not block within that time."""
    try:
        return bool(select.select((), (stream,), (), patience_s)[1])
    except (OSError, ValueError):  # no descriptor behind it
        return True


def _write(stream: TextIO, text: str) -> None:
    # Python's text layer alone would not do. Where nothing buffers below it (PYTHONUNBUFFERED, usual in
    # containers), it loses without a word what a short write leaves over: a full disk or a closed pipe
    # would look like success. And a pipe that does not block is an error to it.
    below = getattr(stream, "buffer", None)
    below = getattr(below, "raw", below)
    if not isinstance(below, io.FileIO):  # replaced by the caller, as in a notebook
        stream.write(text)
        return
    stream.flush()
    # What this encoding lacks becomes a question mark: the text is for people, JSON is ASCII.
    left = memoryview(text.encode(stream.encoding, "replace"))
    while left:
        written = below.write(left)
        if written is None:
            select.select((), (below,), ())
        else:
            left = left[written:]


@contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """What anything in this process or its children writes to stdout goes to stderr."""
    sys.stdout.flush()
    kept = os.dup(1)
    if sys.stderr is None:  # the caller has closed it
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)
    else:
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
    if sys.stderr is None or not sys.stderr.isatty():
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
    with Bar(*columns, console=Console(stderr=True, emoji=False), transient=True) as bar:
        task = bar.add_task("", total=None)

        def step(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total or None, description=text)

        _bars.append(bar)
        try:
            yield step
        finally:
            _bars.pop()
