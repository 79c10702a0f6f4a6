"""Runs the engine and hands its result over."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prismcore import _core
from prismcore.errors import GraphError
from prismcore.graph import Graph, Provenance
from prismcore.graph.values import u32, whole
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
    whole(threads, "threads", low=1)
    if eager_bytes is None:
        eager_bytes = recorded_eager_bytes(graph) if cluster is None else 0
    whole(eager_bytes, "eager_bytes")
    begin = time.perf_counter()
    raw = _core.replay(
        graph.core,
        threads=min(threads, 256),
        slow_ranks=[slow_to_core(s) for s in slow_ranks],
        cluster=None if cluster is None else cluster.to_core(),
        device=None if device is None else device.to_core(),
        eager_bytes=eager_bytes,
        timeline_ranks=sorted({u32(r, "timeline rank") for r in timeline_ranks}),
    )
    return result_of(raw, graph, wall_time_s=time.perf_counter() - begin, has_timeline=bool(timeline_ranks))


def result_of(
    raw: Mapping[str, Any], graph: Graph, *, wall_time_s: float, has_timeline: bool = False
) -> ReplayResult:
    """What the engine found over `graph`, under the names of the core's ``ReplayResult``."""
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
        if has_timeline
        else None,
        warnings=raw["warnings"],
    )


def memory_curve(graph: Graph, rank: int) -> MemoryCurve:
    """Allocated bytes of a rank after each allocation and free, in program order.

    Raises GraphError if the graph does not hold the rank.
    """
    live_bytes, peak_bytes = _core.memory_curve(graph.core, u32(rank, "rank"))
    return MemoryCurve(live_bytes=live_bytes, peak_bytes=peak_bytes)


def recorded_eager_bytes(graph: Graph) -> int:
    """Messages up to this size did not wait for their receiver on the cluster that the graph was
    collected for; 0 where it was not collected."""
    text = graph.metadata.get("cluster")
    if not isinstance(text, str):
        return 0
    return parse_cluster(text, "the graph's cluster profile").p2p.eager_bytes


def slow_to_core(slow: SlowRank) -> tuple[int, float, int, int]:
    """As the core takes it; raises GraphError."""
    what = f"slow rank {slow.rank!r}:"
    rank = u32(slow.rank, "slow rank")
    try:
        factor = float(slow.factor)
    except (TypeError, ValueError, OverflowError):
        raise GraphError(f"{what} factor {slow.factor!r} found, expected a number from 0 on") from None
    begin = 0 if slow.from_ns is None else whole(slow.from_ns, f"{what} from_ns")
    end = _FOREVER if slow.to_ns is None else whole(slow.to_ns, f"{what} to_ns")
    if begin > end:
        raise GraphError(f"{what} from {begin} to {end} ns found, expected an end not before the begin")
    return rank, factor, begin, end
