"""Meetings that a trace does not hold but its times show: ranks go on after their last message or compute
only when others have come that far too.

Megatron reduces the loss over the data-parallel ranks of the last stage, which artifacts of the straggler
analysis have no type of op for. Without it the wait for a slow worker would be a gap, and stay where
that worker is no longer slow.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from prismcore.stitch.meetings import TOLERANCE_NS
from prismcore.stitch.waits import EARLY
from prismcore.traces.straggler import UNRECORDED, Operation, StragglerTrace

__all__ = ["add_unrecorded"]

#: How many times, over the trace, a rank of a group must have come before the last one.
LEAST_SEEN = 8
#: Of the time from there to its next op, how much must be waiting, in the median.
LEAST_WAITING = 0.5

_NEXT = (
    Operation.LAYERNORM_GRADS_ALL_REDUCE,
    Operation.EMBEDDING_GRADS_ALL_REDUCE,
    Operation.OPTIMIZER_CLIP_MAIN_GRAD,
    Operation.OPTIMIZER,
)


def add_unrecorded(trace: StragglerTrace, warnings: list[str]) -> StragglerTrace:
    """The trace with an op of no length where the ranks of a stage (then: of a pipeline) meet between
    their last compute or message and what follows it: where over all steps none, 1 in 100 excepted, goes
    on before the last has come, and most of the time in between is that wait."""
    place = trace.rank * len(trace.steps) + trace.step
    _, first, at = np.unique(place, return_index=True, return_inverse=True)
    at = at.reshape(-1)
    arrive, follow = np.zeros(len(first), dtype=np.int64), np.full(len(first), 2**62)
    before, behind = trace.operation <= Operation.BACKWARD_RECV, np.isin(trace.operation, _NEXT)
    np.maximum.at(arrive, at[before], trace.end_ns[before])
    np.minimum.at(follow, at[behind], trace.start_ns[behind])
    known = (arrive > 0) & (follow < 2**62)
    first, follow = first[known], follow[known]
    arrive = np.minimum(arrive[known], follow - len(UNRECORDED))
    step = trace.step[first]
    if trace.sizes.tp == 1 or len(trace.ranks) <= trace.sizes.dp * trace.sizes.pp:
        groupings = ((UNRECORDED[0], trace.stage[first]), (UNRECORDED[1], trace.dp_rank[first]))
    else:  # several ranks at a place: who meets whom among them is not seen
        return trace
    parts = []
    for operation, group in groupings:
        for which in np.unique(group).tolist():
            of = np.flatnonzero(group == which)
            latest = np.zeros(len(trace.steps), dtype=np.int64)
            np.maximum.at(latest, step[of], arrive[of])
            met = latest[step[of]]
            early = met - arrive[of] > TOLERANCE_NS
            broken = early & (follow[of] < met - TOLERANCE_NS)
            if early.sum() < LEAST_SEEN or broken.sum() > EARLY * early.sum():
                continue
            waiting = (met - arrive[of])[early] / np.maximum(follow[of] - arrive[of], 1)[early]
            if np.median(waiting) < LEAST_WAITING:
                continue
            left = np.isin(step[of], step[of][broken])
            of, met = of[~left], met[~left]
            parts.append((int(operation), first[of], arrive[of].copy(), met))
            arrive[of] = np.minimum(met, follow[of] - 1)
            warnings.append(_told(operation, which, int(early.sum())))
    if not parts:
        return trace
    rows = np.concatenate([p[1] for p in parts])
    start, end = (np.concatenate([p[i] for p in parts]) for i in (2, 3))
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(trace, name), getattr(trace, name)[rows]])
        for name in ("step", "rank", "dp_rank", "stage")
    }
    columns["operation"] = np.concatenate(
        [trace.operation, *(np.full(len(p[1]), p[0], dtype=np.int64) for p in parts)]
    )
    for name, value in (("number", 0), ("chunk", -1), ("model_chunk", -1)):
        columns[name] = np.append(getattr(trace, name), np.full(len(rows), value, dtype=np.int64))
    columns["start_ns"] = np.append(trace.start_ns, start)
    columns["end_ns"] = np.append(trace.end_ns, np.maximum(end, start))
    return replace(trace, **columns)


def _told(operation: Operation, which: int, seen: int) -> str:
    ranks = f"the ranks of stage {which}" if operation == UNRECORDED[0] else f"pipeline {which}"
    return (
        f"{ranks}: an unrecorded meeting after the last backward, as none went on before all had come "
        f"({seen:,} times in the trace); kept as one of no length"
    )
