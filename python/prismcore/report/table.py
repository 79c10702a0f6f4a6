"""Results as tables for a terminal (rich)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rich import box
from rich.table import Table
from rich.text import Text

from prismcore.report.units import column_scale, format_field


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
    """One line a row. All times share one unit, sizes one a column; units stand in the heads."""
    table = _table(title, show_header=True)
    values = list(zip(*rows, strict=True)) or [() for _ in columns]
    longest = max(
        (
            abs(n)
            for name, column in zip(columns, values, strict=True)
            if name.endswith("_ns")
            for n in _numbers(column)
        ),
        default=0,
    )
    texts, heads = [], []
    for name, column in zip(columns, values, strict=True):
        largest = longest if name.endswith("_ns") else max(map(abs, _numbers(column)), default=0)
        scale, unit = column_scale(name, largest)
        heads.append((label(name), unit, all(_numbers([v]) or _AMOUNT.fullmatch(str(v)) for v in column)))
        digits = 0 if scale == 1 else 3 if name.endswith("_ns") else 2
        texts.append(
            [f"{v / scale:,.{digits}f}" if unit and _numbers([v]) else format_field(name, v) for v in column]
        )
    units = any(unit for _, unit, _ in heads)
    for name, unit, right in heads:
        table.add_column(f"{name}\n{unit}" if units else name, justify=_SIDE[right], no_wrap=True)
    for cells in zip(*texts, strict=True):
        table.add_row(*(Text(cell) for cell in cells))
    return table


# A number, or words such as "under 1 ms", with a unit.
_AMOUNT = re.compile(r"(?:under |[<>] )?-?[\d,.]+(?: ± [\d,.]+)?(?: \S+)?|-")
_SIDE: dict[bool, Literal["left", "right"]] = {False: "left", True: "right"}


def _numbers(values: Iterable[object]) -> list[int | float]:
    return [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]


def label(name: str) -> str:
    """``peak_allocated_bytes`` as ``peak allocated``."""
    for unit in ("_ns", "_bytes", "_s"):
        name = name.removesuffix(unit)
    return name.replace("_", " ")


def _table(title: str, *, show_header: bool) -> Table:
    return Table(
        title=Text(title, style="bold"),
        title_justify="left",
        title_style="",
        show_header=show_header,
        box=box.SIMPLE_HEAD if show_header else None,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0) if show_header else (0, 2, 0, 0),
    )
