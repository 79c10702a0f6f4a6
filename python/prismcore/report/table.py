"""Results as tables for a terminal (rich)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from prismcore.report.units import format_field


def fields_table(title: str, fields: Mapping[str, object] | Iterable[tuple[str, object]]) -> Table:
    """One line a field: its name without the unit, and its value with it."""
    table = _table(title, show_header=False)
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(overflow="fold")
    items = fields.items() if isinstance(fields, Mapping) else fields
    for name, value in items:
        table.add_row(label(name), Text(format_field(name, value)))
    return table


def rows_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """One line a row; the unit of a column stands in its name, numbers are right-aligned."""
    table = _table(title, show_header=True)
    cells = [[format_field(name, value) for name, value in zip(columns, row, strict=True)] for row in rows]
    for i, name in enumerate(columns):
        right = all(row[i][:1].isdigit() or row[i][:1] in "-<" for row in cells)
        table.add_column(label(name), justify="right" if right else "left", no_wrap=right, overflow="fold")
    for row in cells:
        table.add_row(*(Text(text) for text in row))
    return table


def label(name: str) -> str:
    """``peak_allocated_bytes`` as ``peak allocated``."""
    for unit in ("_ns", "_bytes", "_s"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def _table(title: str, *, show_header: bool) -> Table:
    return Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        show_header=show_header,
        box=box.SIMPLE_HEAD if show_header else None,
        pad_edge=False,
        show_edge=False,
        padding=(0, 2, 0, 0) if not show_header else (0, 1),
    )
