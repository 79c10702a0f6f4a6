"""Runs the engine and hands its result over."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prismcore import _core
from prismcore.errors import MismatchError
from prismcore.graph import Graph, Provenance
from prismcore.graph.values import u32, whole
from prismcore.profiles.cluster import ClusterProfile, parse_cluster
from prismcore.profiles.device import DeviceProfile
from prismcore.replay.failure import report_of
from prismcore.replay.ghosts import ghost_hint
from prismcore.replay.perturbation import Perturbation
from prismcore.replay.result import ReplayResult, Timeline

__all__ = ["MemoryCurve", "memory_curve", "recorded_eager_bytes", "replay"]


@dataclass(kw_only=True, slots=True, frozen=True)
class MemoryCurve:
    """Allocated bytes of a rank; ``live_bytes`` has shape [allocations and frees]."""

    live_bytes: npt.NDArray[np.int64]
    peak_bytes: int


def replay(
    graph: Graph,
    *,
    threads: int = 1,
    perturbation: Perturbation | None = None,
    cluster: ClusterProfile | None = None,
    device: DeviceProfile | None = None,
    eager_bytes: int | None = None,
    timeline_ranks: Sequence[int] = (),
    keep_stuck: bool = False,
) -> ReplayResult:
    """Replays a graph in virtual time (``docs/architecture.md``, clocks).

    Args:
        graph: must hold every rank that its ranks communicate with.
        threads: for loading; the result does not depend on it.
        perturbation: what is slower, uneven or lost; None: nothing. Slow links need to know how ranks
            are wired: as in ``cluster``, else as on the cluster that the graph was collected for. A job
            that cannot go on without a rank that fails is a result (``failure``), of the iterations that
            all ranks ended.
        cluster: costs communication anew for this cluster; None keeps the recorded durations.
        device: costs kernels, copies and sets anew for this device, and host times of calls too in a
            graph that was collected with those of a profile (``host="profile"``); None keeps the
            recorded ones.
        eager_bytes: without ``cluster``, a send of at most this many bytes does not wait for its
            receive; 0: every send does. None: as on the cluster that the graph was collected for,
            and 0 for a graph that was not.
        timeline_ranks: ranks to record every interval of.
        keep_stuck: a deadlock or mismatch is a result as well: ``failure`` says who waits where.

    Raises:
        DeadlockError: ranks wait for others that never come, without ``keep_stuck``.
        MismatchError: ranks meet in a communication op that they disagree about, without ``keep_stuck``.
        GraphError: ranks or profiles that the graph does not allow.
        ProfileError: a figure of a profile cannot be.
    """
    whole(threads, "threads", low=1)
    if eager_bytes is None:
        eager_bytes = recorded_eager_bytes(graph) if cluster is None else 0
    whole(eager_bytes, "eager_bytes")
    kept: dict[str, Any] = {"keep_stuck": True} if keep_stuck else {}
    begin = time.perf_counter()
    try:
        raw = _core.replay(
            graph.core,
            threads=min(threads, 256),
            perturbation=(perturbation or Perturbation()).to_core(),
            cluster=None if cluster is None else cluster.to_core(),
            **_device_of(graph, device),
            wiring=wiring_of(graph) if cluster is None and perturbation and perturbation.slow_links else None,
            eager_bytes=eager_bytes,
            timeline_ranks=sorted({u32(r, "timeline rank") for r in timeline_ranks}),
            **kept,
        )
    except MismatchError as error:
        error.args = (f"{error}{ghost_hint(graph, error)}",)
        raise
    return result_of(
        raw, graph, wall_time_s=time.perf_counter() - begin, has_timeline=len(timeline_ranks) > 0
    )


def _device_of(graph: Graph, device: DeviceProfile | None) -> dict[str, Any]:
    """What is costed anew: host times only where they were a profile's."""
    if device is None:
        return {"device": None}
    return {"device": device.to_core(), "host": graph.metadata.get("host") == "profile"}


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
        memory_known="imported_from" not in graph.metadata or bool(raw["peak_allocated_bytes"].any()),
        events=raw["events"],
        device_time_ns={source: raw["device_time_ns"][source] for source in Provenance},
        wall_time_s=wall_time_s,
        first_counted=1 if isinstance(warm_up, int) and warm_up >= 1 and iterations > 1 else 0,
        timeline=Timeline(
            **{key.removeprefix("timeline_"): raw[key] for key in raw if key.startswith("timeline_")}
        )
        if has_timeline
        else None,
        failure=None if raw["failure"] is None else report_of(raw["failure"], raw["ranks"].tolist()),
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
    cluster = _recorded_cluster(graph)
    return 0 if cluster is None else cluster.p2p.eager_bytes


def wiring_of(graph: Graph) -> _core.ClusterProfile | None:
    """The cluster that the graph was collected for, as the core takes it; None where it was not."""
    cluster = _recorded_cluster(graph)
    return None if cluster is None else cluster.to_core()


def _recorded_cluster(graph: Graph) -> ClusterProfile | None:
    text = graph.metadata.get("cluster")
    return parse_cluster(text, "the graph's cluster profile") if isinstance(text, str) else None
