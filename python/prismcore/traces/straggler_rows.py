"""Ops of a straggler-analysis trace in the order in which each rank began them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from prismcore.stitch.rows import Ints, Rows, ordinals
from prismcore.traces.job_sizes import JobSizes
from prismcore.traces.straggler import Operation, StragglerTrace

__all__ = ["LANES", "StragglerRows", "order_rows"]

#: Streams of a rank.
LANES = ("compute", "forward-send", "forward-recv", "backward-send", "backward-recv", "dp-comm")
_LANE = np.array([0, 0, 1, 2, 3, 4, 5, 5, 0, 0, 0, 0, 0, 5, 0, 0])  # by Operation


@dataclass(kw_only=True, slots=True)
class StragglerRows:
    """``rows`` and what the trace says of them; arrays have shape [rows]."""

    sizes: JobSizes
    rows: Rows
    operation: Ints  #: ``Operation``
    number: Ints  #: of the op among those of its type, rank and step
    dp_rank: Ints
    stage: Ints
    twin: Ints  #: which of the ranks at this dp_rank and stage (tensor parallel), from 0
    chunk: Ints
    model_chunk: Ints

    def of(self, *operations: Operation) -> Ints:
        """Rows of these types, in order."""
        return np.flatnonzero(np.isin(self.operation, operations))

    def some(self, chosen: Ints, *, launch: Ints) -> StragglerRows:
        """These rows alone; ``launch``: of each, among them."""
        return StragglerRows(
            sizes=self.sizes,
            rows=replace(self.rows.some(chosen), launch=launch),
            operation=self.operation[chosen],
            number=self.number[chosen],
            dp_rank=self.dp_rank[chosen],
            stage=self.stage[chosen],
            twin=self.twin[chosen],
            chunk=self.chunk[chosen],
            model_chunk=self.model_chunk[chosen],
        )


def order_rows(trace: StragglerTrace) -> StragglerRows:
    """Rows by rank, step and begin; times from the earliest begin of the step on.

    Left out are ops of no length that only note what could have been (``gc``). Sends and receives of a
    rank with the same begin and end are one launch.
    """
    order = np.lexsort((trace.number, trace.operation, trace.start_ns, trace.step, trace.rank))
    order = order[(trace.operation[order] != Operation.GC) | (trace.end_ns[order] > trace.start_ns[order])]
    step, start, end = trace.step[order], trace.start_ns[order], trace.end_ns[order]
    operation, rank = trace.operation[order], trace.rank[order]
    begin = np.full(len(trace.steps), np.iinfo(np.int64).max)
    np.minimum.at(begin, trace.step, trace.start_ns)
    message = (operation >= Operation.FORWARD_SEND) & (operation <= Operation.BACKWARD_RECV)
    joined = np.zeros(len(order), dtype=bool)
    joined[1:] = message[1:] & message[:-1] & (operation[1:] != operation[:-1])
    for column in (start, end, step, rank):
        joined[1:] &= column[1:] == column[:-1]
    rows = Rows(
        rank=rank,
        step=step,
        lane=_LANE[operation],
        launch=np.maximum.accumulate(np.where(joined, 0, np.arange(len(order)))),
        start_ns=start - begin[step],
        end_ns=end - begin[step],
    )
    dp_rank, stage = trace.dp_rank[order], trace.stage[order]
    return StragglerRows(
        sizes=trace.sizes,
        rows=rows,
        operation=operation,
        number=trace.number[order],
        dp_rank=dp_rank,
        stage=stage,
        twin=_twins(rows, dp_rank, stage),
        chunk=trace.chunk[order],
        model_chunk=trace.model_chunk[order],
    )


def _twins(rows: Rows, dp_rank: Ints, stage: Ints) -> Ints:
    """Ranks at one data-parallel rank and stage: 0, 1, ... by rank."""
    _, first, of = np.unique(rows.rank, return_index=True, return_inverse=True)
    place = dp_rank[first] * (int(stage.max()) + 1) + stage[first]
    twin: Ints = ordinals(place)[of.reshape(-1)]
    return twin
