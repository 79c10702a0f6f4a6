"""Rows of the accuracy table, and the files they are written to."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BANDS = "accuracy_bands.json"
FILES = ("results.json", "results.md", BANDS)


class AbsentError(Exception):
    """A data set that is not there; says which."""


@dataclass(kw_only=True, slots=True)
class Row:
    """Absolute errors of one comparison, in percent of the true value where ``unit`` says nothing else."""

    data_set: str
    what: str
    points: int
    mean: float
    median: float
    worst: float
    provenance: Mapping[str, float]  #: shares of device time behind the predictions
    note: str = ""
    unit: str = "%"  #: or us
    covers: Mapping[str, Any] | None = None
    """The predictions of an iteration's time that this comparison stands for, in the words of
    ``prismcore.report.case.Case`` and the sizes ``least_steps`` (that a typical step was learned from) and
    ``within_ms`` (least and most that an iteration took); None: none."""


def row(
    data_set: str,
    what: str,
    pairs: Sequence[tuple[float, float]],
    *,
    provenance: Mapping[str, float],
    note: str = "",
    unit: str = "%",
    covers: Mapping[str, Any] | None = None,
) -> Row:
    """A row from pairs (predicted, true), of another unit than percent: in that unit."""
    if unit == "%":
        errors = [100 * abs(predicted / true - 1) for predicted, true in pairs]
    else:
        errors = [abs(predicted - true) for predicted, true in pairs]
    return Row(
        data_set=data_set,
        what=what,
        points=len(errors),
        mean=statistics.fmean(errors),
        median=statistics.median(errors),
        worst=max(errors),
        provenance={k: v for k, v in provenance.items() if v},
        note=note,
        unit=unit,
        covers=covers,
    )


def as_markdown(rows: Sequence[Row], skipped: Mapping[str, str], command: str) -> str:
    """The table, and what was not compared and why."""
    lines = [
        f"`{command}`: absolute errors, in percent of the true value where no unit stands.",
        "",
        "| data set | what | points | mean | median | worst | rests on | note |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        shares = ", ".join(f"{100 * share:.0f} % {name}" for name, share in r.provenance.items()) or "-"
        figures = " | ".join(shown(value, r.unit) for value in (r.mean, r.median, r.worst))
        lines.append(f"| {r.data_set} | {r.what} | {r.points} | {figures} | {shares} | {r.note} |")
    lines += [f"\nNot compared: {name}: {reason}." for name, reason in skipped.items()]
    return "\n".join(lines) + "\n"


def shown(value: float, unit: str) -> str:
    """A figure of the table."""
    return f"{value:.3f}" if unit == "%" else f"{value:.3f} {unit}"


def bands(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of rows as ``results.json`` holds them, what reports say of predictions like theirs."""
    keys = ("data_set", "what", "points", "mean", "worst", "covers")
    return [{key: r[key] for key in keys} for r in rows if r["covers"] is not None and r["unit"] == "%"]


def write(
    folder: Path, rows: Sequence[Row], skipped: Mapping[str, str], command: str, *, shipped: Path
) -> None:
    """``results.json`` and ``results.md``, and in the folder ``shipped`` what reports take from them."""
    kept = [dataclasses.asdict(r) for r in rows]
    content = {"command": command, "rows": kept, "skipped": dict(skipped)}
    (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / "results.md").write_text(as_markdown(rows, skipped, command))
    (shipped / BANDS).write_text(json.dumps(bands(kept), indent=1) + "\n")
