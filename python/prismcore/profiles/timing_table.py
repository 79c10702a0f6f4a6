"""Timing tables: kernels measured on a real device, one CSV row each (``docs/profiles.md``)."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prismcore.cost import DTYPES, KernelShape
from prismcore.errors import ProfileError

__all__ = ["COLUMNS", "TimingRow", "read_table", "table_text", "write_table"]

#: Columns of a timing table, in order. Numbers are integers; an empty cell is the default.
COLUMNS: Final = (
    "name",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "shared_bytes",
    "dtype",
    "transposes",
    "m",
    "n",
    "k",
    "batch",
    "duration_ns",
)
_DEFAULTS: Final = {"grid": 1, "bloc": 1}
_LIMITS: Final = {"transposes": 3, "duration_ns": 2**53}


@dataclass(frozen=True, kw_only=True, slots=True)
class TimingRow:
    """A kernel of this name and launch shape took ``duration_ns`` on the device."""

    name: str
    shape: KernelShape
    duration_ns: int


def _number(row: dict[str, str], column: str, where: str) -> int:
    text = (row[column] or "").strip()
    if not text and column != "duration_ns":
        return _DEFAULTS.get(column[:4], 0)
    wide = column in ("m", "n", "k", "batch")
    limit = _LIMITS.get(column, 2**62 if wide else 2**32 - 1)
    if not text.isascii() or not text.isdigit() or int(text) > limit:
        raise ProfileError(f"{where}: {column}: found {text!r}, expected an integer from 0 to {limit}")
    return int(text)


def read_table(path: Path) -> list[TimingRow]:
    """Reads a timing table.

    Raises:
        ProfileError: the file cannot be read, a column is missing or unknown, a cell cannot be, or two
            rows are of one kernel and shape; the message names file and line.
    """
    rows: list[TimingRow] = []
    seen: dict[tuple[str, KernelShape], int] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream, strict=True)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise ProfileError(
                    f"{path.name}: found columns {list(reader.fieldnames or ())}, expected {list(COLUMNS)}"
                )
            for row in reader:
                where = f"{path.name}:{reader.line_num}"
                if None in row or None in row.values():
                    raise ProfileError(f"{where}: found another number of cells, expected {len(COLUMNS)}")
                dtype = row["dtype"].strip() or "none"
                if dtype not in DTYPES:
                    raise ProfileError(
                        f"{where}: dtype: found {dtype!r}, expected one of {', '.join(DTYPES)}"
                    )
                if not row["name"]:
                    raise ProfileError(f"{where}: name: found nothing, expected a kernel's name")
                figures = {
                    column: _number(row, column, where)
                    for column in COLUMNS
                    if column not in ("name", "dtype")
                }
                shape = KernelShape(
                    grid=(figures["grid_x"], figures["grid_y"], figures["grid_z"]),
                    block=(figures["block_x"], figures["block_y"], figures["block_z"]),
                    shared_bytes=figures["shared_bytes"],
                    dtype=dtype,
                    transposes=figures["transposes"],
                    m=figures["m"],
                    n=figures["n"],
                    k=figures["k"],
                    batch=figures["batch"],
                )
                key = (row["name"], shape)
                if key in seen:
                    raise ProfileError(
                        f"{where}: found the kernel of line {seen[key]} again, expected one row each"
                    )
                seen[key] = reader.line_num
                rows.append(TimingRow(name=row["name"], shape=shape, duration_ns=figures["duration_ns"]))
    except OSError as error:
        raise ProfileError(f"{path}: found {error.strerror}, expected a readable CSV file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ProfileError(f"{path.name}: found {error}, expected CSV in UTF-8") from error
    return rows


def table_text(rows: list[TimingRow]) -> str:
    """``rows`` as CSV from which :func:`read_table` gives them back."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        shape = row.shape
        launch = (*shape.grid, *shape.block, shape.shared_bytes, shape.dtype, shape.transposes)
        writer.writerow((row.name, *launch, shape.m, shape.n, shape.k, shape.batch, row.duration_ns))
    return stream.getvalue()


def write_table(path: Path, rows: list[TimingRow]) -> None:
    """Writes ``rows`` so that :func:`read_table` gives them back."""
    path.write_text(table_text(rows), encoding="utf-8", newline="")
