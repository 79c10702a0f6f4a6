"""Reads the op-level traces of the straggler analysis (parquet, one row an op) into plain columns.

Layout: ByteDance-Seed/StragglerAnalysis, the artifact of "Understanding Stragglers in Large Model
Training Using What-if Analysis" (OSDI 2025). Times of a row are float32 seconds from the first op of
its step.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from prismcore.errors import TraceError
from prismcore.rank_list import format_ranks
from prismcore.traces.job_sizes import JobSizes
from prismcore.traces.trace_formats import format_of, other_format

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["OPERATIONS", "UNRECORDED", "Operation", "StragglerTrace", "read_straggler"]


class Operation(IntEnum):
    """Types of ops, numbered as in ``StragglerTrace.operation``."""

    FORWARD_COMPUTE = 0
    BACKWARD_COMPUTE = 1
    FORWARD_SEND = 2
    FORWARD_RECV = 3
    BACKWARD_SEND = 4
    BACKWARD_RECV = 5
    PARAMS_ALL_GATHER = 6
    GRADS_REDUCE_SCATTER = 7
    LAYERNORM_GRADS_ALL_REDUCE = 8
    EMBEDDING_GRADS_ALL_REDUCE = 9
    OPTIMIZER_CLIP_MAIN_GRAD = 10
    OPTIMIZER = 11
    GC = 12
    SEPARATE_GRADS_ALL_REDUCE = 13
    STAGE_MEETING = 14  # these two are in no file: straggler_unrecorded.py
    PIPELINE_MEETING = 15

    @property
    def label(self) -> str:
        """As files spell it."""
        return self.name.lower().replace("_", "-")


#: Meetings that no file holds, in the order in which ranks come to them.
UNRECORDED = (Operation.STAGE_MEETING, Operation.PIPELINE_MEETING)
#: As files name them, by number.
OPERATIONS = tuple(o.label for o in Operation if o not in UNRECORDED)

MOST_SECONDS = 1e6  # 11 days; a step is far below, and sums of many stay far below 2^63 ns
MOST_RANK = 2**24 - 1  # what a graph may hold
MOST_INDEX = 2**20  # of stages, chunks, micro-batches, ops of a type in a step
_WHOLE_COLUMNS = ("dp_rank", "stage", "rank", "step", "seq_id", "mc", "gmc")
_COLUMNS = (*_WHOLE_COLUMNS, "optype", "start_ts", "duration")

_Ints = npt.NDArray[np.int64]


@dataclass(kw_only=True, slots=True)
class StragglerTrace:
    """Rows of a trace; all arrays have shape [rows], in the order of the file."""

    sizes: JobSizes
    steps: list[int]  #: ids of the steps, in the order in which the file names them
    step: _Ints  #: index into ``steps``
    rank: _Ints
    dp_rank: _Ints
    stage: _Ints
    operation: _Ints  #: ``Operation``
    number: _Ints  #: of the op among those of its type, rank and step
    chunk: _Ints  #: model chunk of the stage; -1 where it does not apply
    model_chunk: _Ints  #: of the model; -1 where it does not apply
    start_ns: _Ints  #: from the first op of the step
    end_ns: _Ints
    warnings: list[str] = field(default_factory=list)

    def step_time_ns(self) -> _Ints:
        """What was measured: latest end less earliest start of each step; shape [steps]."""
        begin = np.full(len(self.steps), np.iinfo(np.int64).max)
        end = np.zeros(len(self.steps), dtype=np.int64)
        np.minimum.at(begin, self.step, self.start_ns)
        np.maximum.at(end, self.step, self.end_ns)
        length: _Ints = end - begin
        return length

    def only(self, positions: Sequence[int]) -> StragglerTrace:
        """These steps alone, by position in ``steps``, in this order. Raises TraceError for positions
        that are not there, and where none is asked for."""
        absent = [p for p in positions if not 0 <= p < len(self.steps)]
        if absent or not len(positions):
            found = f"step {absent[0]}" if absent else "no step"
            raise TraceError(f"{found} found, expected positions from 0 to {len(self.steps) - 1}")
        place = np.full(len(self.steps), -1, dtype=np.int64)
        place[list(positions)] = np.arange(len(positions))
        kept = place[self.step] >= 0
        columns = {
            f.name: getattr(self, f.name)[kept]
            for f in fields(self)
            if isinstance(getattr(self, f.name), np.ndarray)
        }
        columns["step"] = place[columns["step"]]
        return replace(self, steps=[self.steps[p] for p in positions], **columns)

    @property
    def ranks(self) -> list[int]:
        """The ranks that the trace holds, rising."""
        return [int(r) for r in np.unique(self.rank)]


def read_straggler(path: str | os.PathLike[str], sizes: JobSizes | None = None) -> StragglerTrace:
    """Reads a trace. ``sizes``: of the job; None: as far as the trace itself shows them.

    Raises TraceError where the file cannot be read, lacks columns, holds values that cannot be (NaN,
    negative or endless durations, a rank at two places), holds the same op twice, or holds no ops.
    Ranks and types of ops that are missing or not known become ``warnings``.
    """
    name = os.fspath(path)
    table = _table(name)
    columns = {c: _whole(name, table, c) for c in _WHOLE_COLUMNS}
    columns["start"], columns["duration"] = (_times(name, table, c) for c in ("start_ts", "duration"))
    columns["operation"], unknown = _operations(name, table)
    warnings = []
    if unknown:
        listed = ", ".join(f"{n} ({count:,})" for n, count in sorted(unknown.items()))
        warnings.append(f"ops of unknown types are left out: {listed}")
    kept = columns["operation"] >= 0
    if not kept.any():
        raise TraceError(f"{name}: no ops found, expected rows of {', '.join(OPERATIONS[:4])}, ...")
    columns = {c: values[kept] for c, values in columns.items()}
    found, first, step = np.unique(columns["step"], return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    trace = StragglerTrace(
        sizes=sizes
        or JobSizes.seen(
            dp_rank=columns["dp_rank"],
            stage=columns["stage"],
            rank=columns["rank"],
            model_chunk=columns["gmc"],
        ),
        steps=[int(s) for s in found[order]],
        step=place[step.reshape(-1)],
        rank=columns["rank"],
        dp_rank=columns["dp_rank"],
        stage=columns["stage"],
        operation=columns["operation"],
        number=columns["seq_id"],
        chunk=columns["mc"],
        model_chunk=columns["gmc"],
        start_ns=columns["start"],
        end_ns=columns["start"] + columns["duration"],
        warnings=warnings,
    )
    _check_places(name, trace)
    _check_twice(name, trace)
    trace.warnings += _missing(trace, known=sizes is not None)
    return trace


def _table(name: str) -> pa.Table:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise TraceError(
            f"{name}: parquet files need pyarrow ({error}); install it: pip install 'prismcore[parquet]'"
        ) from error
    if os.path.isdir(name):
        raise TraceError(f"{name}: is a folder, expected a trace in parquet: one file for all ranks")
    if not os.path.isfile(name):
        raise TraceError(f"{name}: no such file, expected a trace in parquet")
    found = format_of(name)
    if found is not None and found != "straggler":
        raise other_format(name, found, "straggler")
    try:
        # Opened here: pyarrow takes names in UTF-8 alone.
        with open(name, "rb") as raw, parquet.ParquetFile(raw) as file:
            absent = [c for c in _COLUMNS if c not in file.schema_arrow.names]
            if absent:
                raise TraceError(
                    f"{name}: columns {', '.join(file.schema_arrow.names) or 'none'} found, "
                    f"{', '.join(absent)} expected too"
                )
            return file.read(columns=list(_COLUMNS), use_threads=False)
    except (pa.ArrowException, OSError, ValueError) as error:
        text = " ".join(str(error).split())
        raise TraceError(f"{name}: not a readable parquet file: {text}") from error


def _column(name: str, table: pa.Table, column: str) -> pa.Array:
    chunks = table.column(column)
    if chunks.null_count:
        raise TraceError(f"{name}: {chunks.null_count:,} rows without {column} found, expected none")
    return chunks.combine_chunks()


def _whole(name: str, table: pa.Table, column: str) -> _Ints:
    values = _numbers(name, table, column)
    if values.dtype.kind not in "iu":
        raise TraceError(f"{name}: column {column} of {values.dtype} found, expected whole numbers")
    # -1: does not apply, which only some columns may say.
    low = {"mc": -1, "gmc": -1, "step": -(2**62)}.get(column, 0)
    high = {"rank": MOST_RANK, "step": 2**62}.get(column, MOST_INDEX)
    _check_range(name, column, values, low, high)
    return values.astype(np.int64)


def _times(name: str, table: pa.Table, column: str) -> _Ints:
    values = _numbers(name, table, column)
    if values.dtype.kind not in "iuf":
        raise TraceError(f"{name}: column {column} of {values.dtype} found, expected seconds")
    _check_range(name, column, values, 0, MOST_SECONDS)
    return np.rint(values.astype(np.float64) * 1e9).astype(np.int64)


def _numbers(name: str, table: pa.Table, column: str) -> npt.NDArray[Any]:
    array = _column(name, table, column)
    try:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    except (TypeError, ValueError, NotImplementedError) as error:
        raise TraceError(f"{name}: column {column} of {array.type} found, expected numbers") from error


def _check_range(name: str, column: str, values: npt.NDArray[Any], low: float, high: float) -> None:
    wrong = np.flatnonzero(~((values >= low) & (values <= high)))
    if len(wrong):
        at = int(wrong[0])
        raise TraceError(f"{name}: row {at}: {column} {values[at]} found, expected {low:g} to {high:g}")


def _operations(name: str, table: pa.Table) -> tuple[_Ints, dict[str, int]]:
    """Numbers of the types, -1 for unknown ones, and how many rows each unknown type has."""
    import pyarrow as pa

    array = _column(name, table, "optype")
    try:
        coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        texts: Sequence[Any] = coded.dictionary.to_pylist()
        codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False)).astype(np.int64)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise TraceError(f"{name}: column optype of {array.type} found, expected names") from error
    numbers = {text: i for i, text in enumerate(OPERATIONS)}
    table_of = np.array([numbers.get(t, -1) for t in texts] or [-1], dtype=np.int64)
    operation = table_of[codes]
    counts = np.bincount(codes[operation < 0], minlength=len(texts))
    return operation, {str(texts[i]): int(counts[i]) for i in np.flatnonzero(counts).tolist()}


def _check_places(name: str, trace: StragglerTrace) -> None:
    """Each rank is at one place of a job of these sizes."""
    sizes = trace.sizes
    ranks, first, of = np.unique(trace.rank, return_index=True, return_inverse=True)
    dp_rank, stage = trace.dp_rank[first], trace.stage[first]
    wrong = (dp_rank[of] != trace.dp_rank) | (stage[of] != trace.stage)
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise TraceError(
            f"{name}: rank {trace.rank[at]} at data-parallel rank {dp_rank[of[at]]}, stage {stage[of[at]]} "
            f"and at {trace.dp_rank[at]}, {trace.stage[at]} found, expected one place"
        )
    for what, values, count in (
        ("rank", ranks, sizes.world),
        ("data-parallel rank", dp_rank, sizes.dp * sizes.dsp),
        ("stage", stage, sizes.pp),
    ):
        if int(values.max()) >= count:
            raise TraceError(
                f"{name}: {what} {int(values.max())} found, expected one below {count} as in the job's sizes "
                f"({sizes})"
            )


def _check_twice(name: str, trace: StragglerTrace) -> None:
    order = np.lexsort((trace.number, trace.operation, trace.step, trace.rank))
    same = np.ones(len(order) - 1, dtype=bool)
    for column in (trace.number, trace.operation, trace.step, trace.rank):
        sorted_column = column[order]
        same &= sorted_column[1:] == sorted_column[:-1]
    if same.any():
        at = order[int(np.flatnonzero(same)[0])]
        raise TraceError(
            f"{name}: {OPERATIONS[trace.operation[at]]} {trace.number[at]} of rank {trace.rank[at]} in step "
            f"{trace.steps[trace.step[at]]} found twice, expected once"
        )


def _missing(trace: StragglerTrace, *, known: bool) -> list[str]:
    warnings = []
    sizes = trace.sizes
    if not known:
        warnings.append(
            f"the job's sizes are taken from the trace ({sizes}): ranks that it lacks cannot be named"
        )
    places = np.unique(trace.dp_rank * sizes.pp + trace.stage)
    # Replicas of sequence parallelism are counted in dp_rank, or share one.
    replicas = sizes.dp * (sizes.dsp if int(trace.dp_rank.max()) >= sizes.dp else 1)
    absent = replicas * sizes.pp - len(places)
    if absent:
        here = set(places.tolist())
        first = itertools.islice((p for p in range(replicas * sizes.pp) if p not in here), 8)
        named = ", ".join(f"dp {p // sizes.pp} stage {p % sizes.pp}" for p in first)
        more = f" and {absent - 8:,} more" if absent > 8 else ""
        warnings.append(
            f"no rank is there of {named}{more}; messages and collectives with them keep their "
            "measured time, waiting included"
        )
    ranks = np.unique(trace.rank)
    if len(ranks) < sizes.world:
        warnings.append(
            f"{len(ranks)} of {sizes.world} ranks are in the trace ({format_ranks(ranks.tolist())}); "
            "the others are left out"
        )
    cells = np.unique(trace.rank * len(trace.steps) + trace.step)
    lacking = len(ranks) * len(trace.steps) - len(cells)
    if lacking:
        warnings.append(f"{lacking} of {len(ranks) * len(trace.steps)} steps of ranks have no ops")
    return warnings
