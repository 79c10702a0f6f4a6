"""Rows of the benchmark: each by itself, within its time, told as soon as it is known."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["FailedError", "NotBuiltError", "Report", "Row", "Runner"]


class FailedError(Exception):
    """A row cannot be had; the text says why, in one line."""


class NotBuiltError(Exception):
    """What a row needs is not there yet."""


@dataclass(kw_only=True)
class Row:
    """``status``: ``ok``, ``failed: ...``, ``not built: ...``, ``not run: ...``."""

    name: str
    status: str = "ok"
    figures: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class Runner:
    """Starts commands, each within what is left of the row's time and of all of it."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.row_deadline = deadline

    @property
    def left_s(self) -> float:
        return min(self._deadline, self.row_deadline) - time.monotonic()

    def run(self, command: list[str], *, check: bool = True) -> str:
        """Output of a command. Raises FailedError where it fails or takes longer than is left."""
        if self.left_s <= 1:
            raise FailedError("over its time")
        running = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            out, said = running.communicate(timeout=self.left_s)
        except subprocess.TimeoutExpired:
            raise FailedError(f"over its time: {_short(command)}") from None
        finally:
            if running.poll() is None:
                os.killpg(running.pid, signal.SIGKILL)
                running.communicate()
        if check and running.returncode != 0:
            lines = [line for line in said.strip().splitlines() if line.strip()] or ["it said nothing"]
            raise FailedError(f"{_short(command)}: {lines[-1][:300]}")
        return out

    def prism(self, *arguments: str) -> dict[str, Any]:
        """What a command of prism tells as JSON."""
        found: dict[str, Any] = json.loads(self.run([sys.executable, "-m", "prismcore", *arguments]))
        return found


class Report:
    """The table and the file; the file is whole after each row."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self._path = path
        self._facts = facts
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        self.rows.append(row)
        beside = self._path.with_suffix(".part")
        told = {**self._facts, "rows": [asdict(r) for r in self.rows]}
        beside.write_text(json.dumps(told, indent=1, default=str))
        os.replace(beside, self._path)
        figures = ", ".join(f"{key} {_shown(value)}" for key, value in row.figures.items())
        print(
            f"{row.name:<34} {row.seconds:6.1f} s  {row.status}{'  ' + figures if figures else ''}",
            flush=True,
        )

    def row(self, name: str, runner: Runner, budget_s: float, make: Callable[[], dict[str, Any]]) -> Row:
        """Makes a row within ``budget_s``; whatever happens in it, the next goes on."""
        begin = time.monotonic()
        row = Row(name=name)
        runner.row_deadline = begin + budget_s
        if runner.left_s < 2:
            row.status = "not run: no time left"
        else:
            with _caught(row):
                row.figures = make()
        row.seconds = round(time.monotonic() - begin, 2)
        self.add(row)
        return row


@contextmanager
def _caught(row: Row) -> Iterator[None]:
    try:
        yield
    except NotBuiltError as missing:
        row.status = f"not built: {missing}"
    except FailedError as failed:
        row.status = f"failed: {failed}"
    except Exception as error:  # of a part: the others go on
        row.status = f"failed: {type(error).__name__}: {str(error)[:200]}"


def _short(command: list[str]) -> str:
    words = [Path(word).name if "/" in word else word for word in command[1:]]
    return " ".join(words)[:80]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 90 else text[:87] + "..."
