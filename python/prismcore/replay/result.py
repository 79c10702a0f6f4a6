"""What a replay found out, as arrays over ranks and iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from prismcore.errors import GraphError
from prismcore.graph import Provenance
from prismcore.replay.failure import FailureReport

__all__ = ["SPLIT_KEYS", "ReplayResult", "TimeSplit", "Timeline"]

#: What the last axis of ``ReplayResult.splits`` holds, in this order.
SPLIT_KEYS = (
    "compute_ns",
    "communication_ns",
    "exposed_communication_ns",
    "waiting_ns",
    "host_ns",
    "idle_ns",
)


@dataclass(kw_only=True, slots=True, frozen=True)
class TimeSplit:
    """Where time goes, per rank and iteration, ns. All but ``communication_ns`` add up to the rank's
    span: an instant counts as the first of compute, transfer, waiting (arrived, partner has not),
    host callback (``idle_ns``), and host (nothing runs, nothing waits: the host is behind)."""

    compute_ns: float
    communication_ns: float
    exposed_communication_ns: float
    waiting_ns: float
    host_ns: float
    idle_ns: float


@dataclass(kw_only=True, slots=True, frozen=True)
class Timeline:
    """Intervals of the ranks asked for, by rank, then start; all arrays have shape [intervals].

    ``stream`` 65535 is the host. ``op`` indexes the graph's stored ops, ``block_position`` the rank's
    program; communication starts at ``start_ns``, its rank had arrived at ``arrive_ns``.
    """

    rank: npt.NDArray[np.uint32]
    stream: npt.NDArray[np.uint16]
    op: npt.NDArray[np.uint64]
    block_position: npt.NDArray[np.uint32]
    arrive_ns: npt.NDArray[np.int64]
    start_ns: npt.NDArray[np.int64]
    end_ns: npt.NDArray[np.int64]


@dataclass(kw_only=True, slots=True)
class ReplayResult:
    """Times in ns. R ranks, I iterations: those that every rank ends; a graph without iteration
    marks is one iteration."""

    iteration_time_ns: npt.NDArray[np.int64]  #: of the job: shape [I]
    ranks: npt.NDArray[np.uint32]  #: rising: shape [R]
    splits: npt.NDArray[np.int64]  #: by ``SPLIT_KEYS``: shape [R, I, 6]
    iteration_end_ns: npt.NDArray[np.int64]  #: of each rank: shape [R, I]
    peak_allocated_bytes: npt.NDArray[np.int64]  #: of the allocate/free curve: shape [R]; 0: see memory_known
    events: int  #: ops that took effect, over all ranks
    device_time_ns: dict[Provenance, float]  #: of all kernels, copies and transfers
    wall_time_s: float  #: of the replay itself
    memory_known: bool = True  #: False: an import, whose trace says nothing of memory; peaks are 0
    first_counted: int = 0  #: iterations before it (the warm-up) count in no median or mean
    timeline: Timeline | None = None
    failure: FailureReport | None = None  #: where ranks were to fail, or stuck ranks were kept
    warnings: list[str] = field(default_factory=list)

    @property
    def median_iteration_time_ns(self) -> int:
        """Of the job, warm-up left out, rounded half up."""
        return _median(self.iteration_time_ns[self.first_counted :])

    @property
    def split(self) -> TimeSplit:
        """Means over ranks, per iteration, warm-up left out."""
        return self._split(self.splits)

    @property
    def provenance(self) -> dict[str, float]:
        """Share of device time by where its durations come from; they add up to 1."""
        total = sum(self.device_time_ns.values())
        return {
            source.name.lower(): self.device_time_ns[source] / total if total else 0.0
            for source in (Provenance.MEASURED, Provenance.TABLE, Provenance.MODEL, Provenance.UNKNOWN)
        }

    @property
    def peak_rank(self) -> int:
        """The first of the ranks with the largest peak."""
        return int(self.ranks[int(np.argmax(self.peak_allocated_bytes))])

    def index(self, rank: int) -> int:
        """Where a rank stands in the arrays. Raises GraphError if it is absent."""
        i = int(np.searchsorted(self.ranks, rank))
        if i == len(self.ranks) or self.ranks[i] != rank:
            raise GraphError(f"rank {rank} found, expected one of the {len(self.ranks)} ranks of the graph")
        return i

    def rank_split(self, rank: int) -> TimeSplit:
        """Means of one rank, per iteration, warm-up left out."""
        return self._split(self.splits[self.index(rank)][np.newaxis])

    def rank_iteration_time_ns(self, rank: int) -> npt.NDArray[np.int64]:
        """From one own iteration end to the next: shape [I]."""
        ends: npt.NDArray[np.int64] = self.iteration_end_ns[self.index(rank)]
        spans: npt.NDArray[np.int64] = ends.copy()
        spans[1:] -= ends[:-1]
        return spans

    def to_json(self, ranks: Sequence[int] | None = None) -> dict[str, Any]:
        """The keys of ``prism replay --json``; with ``ranks`` also the same of each of them."""
        out: dict[str, Any] = {
            "iteration_time_ns": self.iteration_time_ns.tolist(),
            **self._averages(self.iteration_time_ns, self.splits),
            "peak_allocated_bytes": {
                "max": int(self.peak_allocated_bytes.max()),
                "rank": self.peak_rank,
            }
            if self.memory_known
            else None,
            "events": self.events,
            "wall_time_s": self.wall_time_s,
            "provenance": self.provenance,
            "warnings": list(self.warnings),
        }
        if self.failure is not None:
            out["failure"] = self.failure.to_json()
        if ranks is not None:
            out["ranks"] = {str(rank): self._rank_json(rank) for rank in ranks}
        return out

    def _rank_json(self, rank: int) -> dict[str, Any]:
        times = self.rank_iteration_time_ns(rank)
        at = self.index(rank)
        return {
            "iteration_time_ns": times.tolist(),
            **self._averages(times, self.splits[at : at + 1]),
            "peak_allocated_bytes": int(self.peak_allocated_bytes[at]) if self.memory_known else None,
        }

    def _averages(self, times: npt.NDArray[np.int64], splits: npt.NDArray[np.int64]) -> dict[str, Any]:
        """Median and means over iterations; None where a failure left none."""
        if not len(times):
            return dict.fromkeys(("median_iteration_time_ns", *SPLIT_KEYS))
        split = self._split(splits)
        return {
            "median_iteration_time_ns": _median(times[self.first_counted :]),
            **{key: getattr(split, key) for key in SPLIT_KEYS},
        }

    def _split(self, splits: npt.NDArray[np.int64]) -> TimeSplit:
        counted = splits[:, self.first_counted :]
        if not counted.size:
            raise _no_iteration()
        cells = counted.shape[0] * counted.shape[1]
        # Exact sums: int64 ns of many ranks would overflow, their Python sums do not.
        sums = [sum(column.tolist()) for column in counted.sum(axis=1).T]
        return TimeSplit(**{key: sums[i] / cells for i, key in enumerate(SPLIT_KEYS)})


def _no_iteration() -> GraphError:
    return GraphError("no iteration ended on all ranks, expected one; let ranks fail later")


def _median(values: npt.NDArray[np.int64]) -> int:
    ordered = sorted(values.tolist())
    if not ordered:
        raise _no_iteration()
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return int(ordered[middle])
    return int((ordered[middle - 1] + ordered[middle] + 1) // 2)
