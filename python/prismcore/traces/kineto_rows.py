"""The rows of a rank's trace that belong to its steps, and those of all ranks together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prismcore.errors import TraceError
from prismcore.graph import OpKind
from prismcore.rank_list import format_ranks
from prismcore.stitch.rows import Ints, Rows
from prismcore.traces.kineto_file import KinetoTrace
from prismcore.traces.kineto_ops import HOST, RankOps, Step, rank_ops, steps_of

__all__ = ["NoWorkError", "RankRows", "common_steps", "join_rows", "rows_of", "waited_rows"]

MOST_NS = 2**61  # of all traces together: 73 years
MOST_CELLS = 2**26  # rows times streams: some GiB while they are stitched
NAMED = 20  # ranges of steps in a warning


class NoWorkError(TraceError):
    """A trace in which no device worked during the steps."""


@dataclass(kw_only=True, slots=True)
class RankRows:
    """Rows of one rank that belong to the steps, and one more at the end of each step."""

    rank: int
    trace: KinetoTrace
    ops: RankOps
    kept: Ints  #: rows of ``ops``, -1 at ends of steps
    start_ns: Ints
    end_ns: Ints
    lane: Ints
    kind: Ints
    step: Ints  #: of each row
    spans: list[Step]


def common_steps(traces: Sequence[KinetoTrace], warnings: list[str]) -> tuple[list[int], list[list[Step]]]:
    """Numbers of the steps that all traces have, and their spans in each."""
    spans = [steps_of(trace) for trace in traces]
    for trace, of in zip(traces, spans, strict=True):
        if not of:
            raise TraceError(f"{trace.path}: no kernels, copies or steps found, {_expected(trace)}")
    common = set.intersection(*({step.number for step in of} for of in spans))
    if not common:
        seen = "; ".join(
            f"rank {trace.rank}: {', '.join(str(s.number) for s in of)}"
            for trace, of in list(zip(traces, spans, strict=True))[:4]
        )
        raise TraceError(f"no profiled step is in all traces ({seen}); expected traces of the same steps")
    left_out = sorted({step.number for of in spans for step in of} - common)
    if left_out:
        warnings.append(f"steps {format_ranks(left_out, most=NAMED)} are not in all traces, and are left out")
    kept = [[step for step in of if step.number in common] for of in spans]
    order = [step.number for step in kept[0]]
    for trace, of in zip(traces, kept, strict=True):
        if [step.number for step in of] != order:
            raise TraceError(f"{trace.path}: its steps come in another order than those of {traces[0].path}")
    return order, kept


def _expected(trace: KinetoTrace) -> str:
    """What a trace without device work lacks, and why, as far as it says."""
    info = trace.header.get("distributedInfo")
    backend = info.get("backend") if isinstance(info, dict) else None
    devices = trace.header.get("deviceProperties")
    reasons = []
    if devices == []:
        reasons.append("the profiler saw no GPU (deviceProperties is empty)")
    elif devices:
        reasons.append("the profiler saw a GPU, and needs ProfilerActivity.CUDA to record it")
    if isinstance(backend, str) and "nccl" not in backend:
        reasons.append(f"the job's backend was {backend[:40]}, not nccl (distributedInfo)")
    return "expected a trace with GPU activity" + (f": {', and '.join(reasons)}" if reasons else "")


def rows_of(trace: KinetoTrace, spans: list[Step], warnings: list[str]) -> RankRows:
    """Rows of one trace. Raises NoWorkError where no device op belongs to the steps."""
    ops = rank_ops(trace)
    if not len(ops.streams):
        raise NoWorkError(f"{trace.path}: no kernels or copies found, {_expected(trace)}")
    if ops.orphans:
        warnings.append(
            f"rank {trace.rank}: {ops.orphans:,} device ops without the call that launched them; they are "
            "placed by their own begin"
        )
    if ops.early:
        warnings.append(
            f"rank {trace.rank}: {ops.early:,} device ops begin before the call that launched them; their "
            "calls are taken to end where they begin"
        )
    if ops.unknown:
        warnings.append(
            f"rank {trace.rank}: {ops.unknown:,} kernels of NCCL of a kind that neither their name nor the "
            "trace tells are taken as kernels that wait for nobody"
        )
    came = ops.came_ns
    begins = np.array([step.start_ns for step in spans])
    ends = np.array([step.end_ns for step in spans])
    step = np.searchsorted(begins, came, "right") - 1
    inside = (step >= 0) & (came <= ends[np.maximum(step, 0)])
    if not (inside & (ops.lane != HOST)).any():
        raise NoWorkError(
            f"{trace.path}: none of its device ops belongs to a step; expected steps with GPU activity"
        )
    outside = int((~inside & (ops.lane != HOST)).sum())
    if outside:
        warnings.append(f"rank {trace.rank}: {outside:,} device ops outside of all steps are left out")
    kept = np.concatenate([np.flatnonzero(inside), np.full(len(spans), -1)])
    step = np.concatenate([step[inside], np.arange(len(spans))])
    order = np.lexsort((kept < 0, step))
    kept, step = kept[order], step[order]
    at_end = kept < 0
    start = np.where(at_end, ends[step], ops.start_ns[kept])
    return RankRows(
        rank=trace.rank or 0,
        trace=trace,
        ops=ops,
        kept=kept,
        start_ns=start,
        end_ns=np.where(at_end, start, ops.end_ns[kept]),
        lane=np.where(at_end, HOST, ops.lane[kept]),
        kind=np.where(at_end, int(OpKind.MARK), ops.kind[kept]),
        step=step,
        spans=spans,
    )


def waited_rows(parts: Sequence[RankRows]) -> Ints:
    """Pairs (row, row it waited for) of all ranks; shape [pairs, 2]."""
    found = []
    offset = 0
    for part in parts:
        place = np.full(len(part.ops.lane), -1, dtype=np.int64)
        rows = np.flatnonzero(part.kept >= 0)
        place[part.kept[rows]] = rows
        pairs = place[part.ops.waited]
        found.append(pairs[(pairs >= 0).all(axis=1)] + offset)
        offset += len(part.kept)
    return np.concatenate(found)


def join_rows(parts: Sequence[RankRows]) -> Rows:
    """Times from the earliest begin of a first step on."""
    begin = min(part.spans[0].start_ns for part in parts)
    first = min(int(part.start_ns.min()) for part in parts)
    last = max(int(part.end_ns.max()) for part in parts)
    if max(last, begin) - min(first, begin) > MOST_NS:
        raise TraceError(f"times from {first:,} to {last:,} ns found, expected ranks on clocks of one time")
    lengths = [len(part.kept) for part in parts]
    lanes = max(int(part.lane.max()) for part in parts)
    if sum(lengths) * (lanes + 1) > MOST_CELLS:
        raise TraceError(
            f"{sum(lengths):,} ops on up to {lanes:,} streams a rank found, expected at most {MOST_CELLS:,} "
            "for the product; import fewer ranks, or traces of fewer steps"
        )
    return Rows(
        rank=np.repeat([part.rank for part in parts], lengths),
        step=np.zeros(sum(lengths), dtype=np.int64),
        lane=np.concatenate([part.lane for part in parts]),
        launch=np.arange(sum(lengths)),
        start_ns=np.concatenate([part.start_ns for part in parts]) - begin,
        end_ns=np.concatenate([part.end_ns for part in parts]) - begin,
    )
