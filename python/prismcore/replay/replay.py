"""Runs the engine and hands its result over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prismcore import _core
from prismcore.errors import GraphError
from prismcore.graph import Graph, Provenance
from prismcore.profiles.cluster import ClusterProfile, parse_cluster
from prismcore.profiles.device import DeviceProfile
from prismcore.replay.result import ReplayResult, Timeline

__all__ = ["MemoryCurve", "SlowRank", "memory_curve", "recorded_eager_bytes", "replay"]

_FOREVER = 2**63 - 1


@dataclass(kw_only=True, slots=True, frozen=True)
class SlowRank:
    """Kernels of ``rank`` that start within [from_ns, to_ns) of its device time take
    floor(duration * factor + 0.5) ns; None: without end. Several for one rank multiply."""

    rank: int
    factor: float
    from_ns: int | None = None
    to_ns: int | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class MemoryCurve:
    """Allocated bytes of a rank; ``live_bytes`` has shape [allocations and frees]."""

    live_bytes: npt.NDArray[np.int64]
    peak_bytes: int


def replay(
    graph: Graph,
    *,
    threads: int = 1,
    slow_ranks: Sequence[SlowRank] = (),
    cluster: ClusterProfile | None = None,
    device: DeviceProfile | None = None,
    eager_bytes: int | None = None,
    timeline_ranks: Sequence[int] = (),
) -> ReplayResult:
    """Replays a graph in virtual time (``docs/architecture.md``, clocks).

    Args:
        graph: must hold every rank that its ranks communicate with.
        threads: for loading; the result does not depend on it.
        slow_ranks: ranks whose kernels take longer.
        cluster: costs communication anew for this cluster; None keeps the recorded durations.
        device: costs kernels, copies and sets anew for this device; None keeps the recorded ones.
        eager_bytes: without ``cluster``, a send of at most this many bytes does not wait for its
            receive; 0: every send does. None: as on the cluster that the graph was collected for,
            and 0 for a graph that was not.
        timeline_ranks: ranks to record every interval of.

    Raises:
        DeadlockError: ranks wait for others that never come.
        MismatchError: ranks meet in a communication op that they disagree about.
        GraphError: ranks or profiles that the graph does not allow.
        ProfileError: a figure of a profile cannot be.
    """
    if threads < 1:
        raise GraphError(f"{threads} threads found, expected at least 1")
    if eager_bytes is None:
        eager_bytes = recorded_eager_bytes(graph) if cluster is None else 0
    if eager_bytes < 0:
        raise GraphError(f"eager_bytes is {eager_bytes}, expected at least 0")
    slow = [
        (_rank(s.rank), s.factor, s.from_ns or 0, _FOREVER if s.to_ns is None else s.to_ns)
        for s in slow_ranks
    ]
    begin = time.perf_counter()
    raw = _core.replay(
        graph.core,
        threads=min(threads, 256),
        slow_ranks=slow,
        cluster=None if cluster is None else cluster.to_core(),
        device=None if device is None else device.to_core(),
        eager_bytes=eager_bytes,
        timeline_ranks=sorted({_rank(r) for r in timeline_ranks}),
    )
    wall_time_s = time.perf_counter() - begin
    iterations: int = raw["iterations"]
    warm_up = graph.metadata.get("warmup_iterations", 0)
    shape = (len(raw["ranks"]), iterations)
    return ReplayResult(
        iteration_time_ns=raw["iteration_time_ns"],
        ranks=raw["ranks"],
        splits=raw["splits"].reshape(*shape, 6),
        iteration_end_ns=raw["iteration_end_ns"].reshape(shape),
        peak_allocated_bytes=raw["peak_allocated_bytes"],
        events=raw["events"],
        device_time_ns={source: raw["device_time_ns"][source] for source in Provenance},
        wall_time_s=wall_time_s,
        first_counted=1 if isinstance(warm_up, int) and warm_up >= 1 and iterations > 1 else 0,
        timeline=Timeline(
            **{key.removeprefix("timeline_"): raw[key] for key in raw if key.startswith("timeline_")}
        )
        if timeline_ranks
        else None,
        warnings=raw["warnings"],
    )


def memory_curve(graph: Graph, rank: int) -> MemoryCurve:
    """Allocated bytes of a rank after each allocation and free, in program order.

    Raises GraphError if the graph does not hold the rank.
    """
    live_bytes, peak_bytes = _core.memory_curve(graph.core, _rank(rank))
    return MemoryCurve(live_bytes=live_bytes, peak_bytes=peak_bytes)


def recorded_eager_bytes(graph: Graph) -> int:
    """Messages up to this size did not wait for their receiver on the cluster that the graph was
    collected for; 0 where it was not collected."""
    text = graph.metadata.get("cluster")
    if not isinstance(text, str):
        return 0
    return parse_cluster(text, "the graph's cluster profile").p2p.eager_bytes


def _rank(rank: int) -> int:
    if not 0 <= rank < 2**32:
        raise GraphError(f"rank {rank} found, expected one of the graph's")
    return int(rank)
