"""Tables of a replay: where time goes, and whom the others wait for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from prismcore.graph import Graph
from prismcore.replay import ReplayResult
from prismcore.report.table import rows_table
from prismcore.report.units import format_ns, format_share

#: The parts that add up to a rank's span, and what they are called.
PARTS = (
    ("compute_ns", "compute"),
    ("exposed_communication_ns", "exposed communication"),
    ("waiting_ns", "waiting for other ranks"),
    ("host_ns", "waiting for the host"),
    ("idle_ns", "idle"),
)


def split_table(result: ReplayResult) -> Table:
    """Where the time of a rank goes: means over ranks and iterations."""
    split = result.split
    whole = sum(getattr(split, key) for key, _ in PARTS)

    def share(value: float) -> str:
        return format_share(value / whole) if whole else "-"

    rows = [(name, getattr(split, key), share(getattr(split, key))) for key, name in PARTS]
    rows.append(("sum: a rank's iteration", whole, share(whole)))
    rows.append(("communication, overlapped or not", split.communication_ns, share(split.communication_ns)))
    return rows_table("time of a rank per iteration, mean over ranks", ("part", "time_ns", "share"), rows)


def sum_note(result: ReplayResult) -> str:
    """Why the parts' sum and the job's iteration time differ; empty where they do not."""
    split = result.split
    whole = sum(getattr(split, key) for key, _ in PARTS)
    job = result.median_iteration_time_ns
    if abs(whole - job) < 0.0005 * job:
        return ""
    return (
        f"A rank's iteration lasts from its own end to its own next end (mean {format_ns(whole)}), the job's "
        f"from the end of the last rank to the next such end (median {format_ns(job)})."
    )


def class_table(graph: Graph, result: ReplayResult, count: int) -> Table:
    """The rank classes that wait least: the others wait for these. Each with its least waiting rank."""
    waiting = result.splits[:, result.first_counted :, 3].sum(axis=1)
    classes: dict[int, list[int]] = {}  # positions in result.ranks, least waiting first
    for i in np.argsort(waiting, kind="stable").tolist():
        classes.setdefault(graph.rank(int(result.ranks[i])).rank_class, []).append(i)
    shown = list(classes.items())[:count]
    rows = [(c, len(members), *_row(result, int(result.ranks[members[0]]))) for c, members in shown]
    title = "rank classes, those that wait least first"
    if len(shown) < len(classes):
        title += f" ({len(shown)} of {len(classes)})"
    return rows_table(title, ("class", "ranks", *_columns(result)), rows)


def rank_table(title: str, result: ReplayResult, ranks: Sequence[int]) -> Table:
    """One line a rank: means per iteration."""
    return rows_table(title, _columns(result), [_row(result, rank) for rank in ranks])


def _columns(result: ReplayResult) -> tuple[str, ...]:
    return _COLUMNS if result.memory_known else _COLUMNS[:-1]


_COLUMNS = ("rank", "compute_ns", "exposed_ns", "waiting_ns", "host_ns", "idle_ns", "peak_bytes")


def _row(result: ReplayResult, rank: int) -> tuple[object, ...]:
    split = result.rank_split(rank)
    peak = int(result.peak_allocated_bytes[result.index(rank)])
    times = (getattr(split, key) for key, _ in PARTS)
    return (rank, *times, peak) if result.memory_known else (rank, *times)
