"""Rows of the accuracy table, and the files they are written to."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class AbsentError(Exception):
    """A data set that is not there; says which."""


@dataclass(kw_only=True, slots=True)
class Row:
    """Absolute errors of one comparison, in percent of the true value."""

    data_set: str
    what: str
    points: int
    mean: float
    median: float
    worst: float
    provenance: Mapping[str, float]  #: shares of device time behind the predictions
    note: str = ""


def row(
    data_set: str,
    what: str,
    pairs: Sequence[tuple[float, float]],
    *,
    provenance: Mapping[str, float],
    note: str = "",
) -> Row:
    """A row from pairs (predicted, true)."""
    errors = [100 * abs(predicted / true - 1) for predicted, true in pairs]
    return Row(
        data_set=data_set,
        what=what,
        points=len(errors),
        mean=statistics.fmean(errors),
        median=statistics.median(errors),
        worst=max(errors),
        provenance={k: v for k, v in provenance.items() if v},
        note=note,
    )


def as_markdown(rows: Sequence[Row], skipped: Mapping[str, str], command: str) -> str:
    """The table, and what was not compared and why."""
    lines = [
        f"`{command}`: absolute errors in percent of the true value.",
        "",
        "| data set | what | points | mean | median | worst | rests on | note |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        shares = ", ".join(f"{100 * share:.0f} % {name}" for name, share in r.provenance.items()) or "-"
        lines.append(
            f"| {r.data_set} | {r.what} | {r.points} | {r.mean:.3f} | {r.median:.3f} | {r.worst:.3f} "
            f"| {shares} | {r.note} |"
        )
    lines += [f"\nNot compared: {name}: {reason}." for name, reason in skipped.items()]
    return "\n".join(lines) + "\n"


def write(folder: Path, rows: Sequence[Row], skipped: Mapping[str, str], command: str) -> None:
    """``results.json`` and ``results.md``."""
    content = {"command": command, "rows": [dataclasses.asdict(r) for r in rows], "skipped": dict(skipped)}
    (folder / "results.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / "results.md").write_text(as_markdown(rows, skipped, command))
