"""Clock curves: how fast the kernels of a rank run over time (thermal throttling, power caps)."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from prismcore.errors import ProfileError
from prismcore.replay.perturbation import SlowRank

__all__ = ["read_clock_curve"]

_TIME_COLUMNS = {"time_ns": 1, "time_us": 10**3, "time_ms": 10**6, "time_s": 10**9}
_VALUE_COLUMNS = ("factor", "clock_mhz")
_MOST_ROWS = 1_000_000
_MOST_FACTOR = 1e6


def read_clock_curve(path: str | os.PathLike[str], rank: int) -> list[SlowRank]:
    """The curve of a CSV file, for `rank`: a row holds from its time to that of the next, the last one
    to the end, and a kernel takes what holds when it starts.

    The first line names the columns, in any order; others are ignored. ``time_ns``, ``time_us``,
    ``time_ms`` or ``time_s``: time of the job, 0 in the first row, then rising. ``factor``: kernels
    take so many times as long; or ``clock_mhz``: kernels take (highest clock of the file) / clock times
    as long, so that the durations in the graph are those at the highest clock.

    Raises:
        ProfileError: the file cannot be read, or a line or column of it cannot be.
    """
    path = Path(path)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(_rows(path, csv.reader(file, strict=True)))
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: is not UTF-8 text (byte {error.start}); expected a CSV file") from error
    ends: list[int | None] = [time for time, _ in rows[1:]]
    return [
        SlowRank(rank=rank, factor=factor, from_ns=time, to_ns=end)
        for (time, factor), end in zip(rows, [*ends, None], strict=True)
    ]


def _rows(path: Path, reader: Iterator[list[str]]) -> Iterator[tuple[int, float]]:
    """Time in ns and factor of each row, checked."""
    lines = _lines(path, reader)
    _, header = next(lines, (1, []))
    names = [name.strip().lower() for name in header]
    time_at = _column(path, names, tuple(_TIME_COLUMNS))
    value_at = _column(path, names, _VALUE_COLUMNS)
    unit = _TIME_COLUMNS[names[time_at]]
    found: list[tuple[int, float, int]] = []
    for line, cells in lines:
        if len(cells) != len(names):
            raise ProfileError(
                f"{path}, line {line}: {len(cells)} columns found, expected {len(names)} as in line 1"
            )
        time = _time_ns(path, line, names[time_at], cells[time_at], unit)
        if not found and time != 0:
            raise ProfileError(
                f"{path}, line {line}, column {names[time_at]}: {cells[time_at]!r} found, expected 0: "
                "the first row says what holds from the beginning"
            )
        if found and time <= found[-1][0]:
            raise ProfileError(
                f"{path}, line {line}, column {names[time_at]}: {cells[time_at]!r} found, expected a time "
                "after that of the row before"
            )
        if len(found) == _MOST_ROWS:
            raise ProfileError(f"{path}, line {line}: expected at most {_MOST_ROWS} rows")
        found.append((time, _value(path, line, names[value_at], cells[value_at]), line))
    if not found:
        raise ProfileError(f"{path}: no row found, expected at least one below the names of the columns")
    if names[value_at] == "factor":
        yield from ((time, value) for time, value, _ in found)
        return
    highest = max(value for _, value, _ in found)
    for time, value, line in found:
        if highest / value > _MOST_FACTOR:
            raise ProfileError(
                f"{path}, line {line}, column clock_mhz: {value:g} found beside {highest:g}, expected at "
                f"least a {_MOST_FACTOR:g}th of it"
            )
        yield time, highest / value


def _lines(path: Path, reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells, empty lines left out."""
    line = 0
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise ProfileError(f"{path}, line {line + 1}: is not CSV: {error}") from error
        if cells is None:
            return
        line = int(reader.line_num)  # type: ignore[attr-defined]
        if cells:
            yield line, cells


def _column(path: Path, names: list[str], known: tuple[str, ...]) -> int:
    at = [i for i, name in enumerate(names) if name in known]
    if len(at) != 1:
        found = ", ".join(names[:8]) or "nothing"
        raise ProfileError(f"{path}, line 1: columns {found} found, expected one of {', '.join(known)}")
    return at[0]


def _time_ns(path: Path, line: int, column: str, text: str, unit: int) -> int:
    try:
        value = Decimal(text.strip()) * unit
        if value.is_finite() and 0 <= value < 2**63 and value == value.to_integral_value():
            return int(value)
    except ArithmeticError:  # no number, or one past all bounds
        pass
    raise ProfileError(
        f"{path}, line {line}, column {column}: {text!r} found, expected a time from 0 to 292 years, a "
        "whole number of ns"
    )


def _value(path: Path, line: int, column: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if 0 < value <= _MOST_FACTOR:
        return value
    raise ProfileError(
        f"{path}, line {line}, column {column}: {text!r} found, expected a number above 0, at most "
        f"{_MOST_FACTOR:g}"
    )
