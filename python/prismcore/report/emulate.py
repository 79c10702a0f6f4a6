"""Tables of an emulation: the ranks that ran beside what the replay says of them."""

from __future__ import annotations

import numpy as np
from rich.table import Table

from prismcore.emulate import EmulateResult, ReleaseErrors
from prismcore.graph import Graph, RankOrigin
from prismcore.report.table import rows_table
from prismcore.report.units import format_ns, format_wall, plural
from prismcore.report.words import provenance_words

__all__ = ["emulate_fields", "sandbox_table"]


def emulate_fields(result: EmulateResult) -> list[tuple[str, object]]:
    """The job as a whole, for ``fields_table``."""
    job = result.job
    counted = len(job.iteration_time_ns) - job.first_counted
    times = ", ".join(format_ns(int(t)) for t in job.iteration_time_ns[:8])
    note = " (the first holds the set-up)" if job.first_counted else ""
    fields: list[tuple[str, object]] = [
        ("iteration time", f"{format_ns(job.median_iteration_time_ns)} (median of {counted})"),
        ("iterations", f"{times}{note}"),
        ("replay of the graph", _against_replay(result)),
        ("ranks", f"{len(result.sandbox):,} ran, {plural(result.ghosts, 'ghost')}"),
        ("provenance of device time", provenance_words(result.job.provenance)),
        ("messages", f"{result.messages:,} between the ranks that ran and the ghosts"),
        ("wall time", f"{format_wall(result.wall_time_s)}, of it {format_wall(result.bootstrap_s)} to start"),
    ]
    if result.release_errors is not None:
        fields.append(("wall clock", _wall_clock(result, result.release_errors)))
    return fields


def _against_replay(result: EmulateResult) -> str:
    replayed = result.replay_median_iteration_time_ns
    if replayed is None:
        return "no iteration ended on all ranks"
    difference = result.job.median_iteration_time_ns - replayed
    against = "longer" if difference > 0 else "shorter"
    return f"{format_ns(replayed)}: " + (
        f"{format_ns(abs(difference))} {against} here" if difference else "the same"
    )


def _wall_clock(result: EmulateResult, errors: ReleaseErrors) -> str:
    rank, found = max(result.sandbox.items(), key=lambda item: item[1].late_ns or 0)
    return (
        f"{plural(errors.paced, 'answer')} given {format_ns(errors.p50_ns)} (median), "
        f"{format_ns(errors.p99_ns)} (p99) after their time; {errors.overdue:,} known too late; "
        f"rank {rank} was latest, {format_ns(found.late_ns or 0)} behind its host clock in all"
    )


def sandbox_table(graph: Graph, result: EmulateResult, count: int) -> Table:
    """One line a sandbox rank: its median iteration, peaks, and how it stands in the graph."""
    ranks = list(result.sandbox)[:count]
    rows = []
    for rank in ranks:
        found = result.sandbox[rank]
        times = found.iteration_time_ns[result.job.first_counted :]
        view = graph.rank(rank)
        rows.append(
            (
                rank,
                view.program,
                "no" if view.origin == RankOrigin.INFERRED else "yes",
                int(np.median(times)) if len(times) else 0,
                round(result.job.rank_split(rank).waiting_ns),
                found.peak_allocated_bytes,
                found.peak_reserved_bytes,
            )
        )
    title = "ranks that ran" + (f" ({count} of {len(result.sandbox)})" if count < len(result.sandbox) else "")
    columns = (
        "rank",
        "class",
        "collected",
        "iteration_ns",
        "waiting_ns",
        "allocated_bytes",
        "reserved_bytes",
    )
    return rows_table(title, columns, rows)
