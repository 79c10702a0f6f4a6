"""What to distrust in the figures of a graph or of its replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from prismcore.errors import PrismError
from prismcore.graph import Graph
from prismcore.replay import SPLIT_KEYS, ReplayResult, replay
from prismcore.report.launches import Launches, launches
from prismcore.report.units import format_ns

if TYPE_CHECKING:
    from prismcore.profiles.cluster import ClusterProfile
    from prismcore.profiles.device import DeviceProfile

__all__ = ["collection_warnings", "gap_warnings", "graph_warnings", "iteration_warnings"]

_ALIKE = 0.05
_GAPS = 0.05  # of a rank's time
_PARTS = {
    "compute_ns": "compute",
    "exposed_communication_ns": "exposed communication",
    "waiting_ns": "waiting for other ranks",
    "host_ns": "waiting for the host",
    "idle_ns": "idle time",
}
_SPAN = [SPLIT_KEYS.index(part) for part in _PARTS]  # add up to a rank's iteration

NAMED = 5


def graph_warnings(
    graph: Graph, *, device: DeviceProfile | None = None, cluster: ClusterProfile | None = None
) -> list[str]:
    """One line each: launches that nobody knows the duration of, calls that nobody answered, ranks that
    are not there. ``device``, ``cluster``: that a replay costs anew with; None: as recorded."""
    warnings = _launch_warnings(graph, launches(graph, device), device)
    metadata = graph.metadata
    modelled = metadata.get("modelled_communication")
    if modelled and cluster is None:
        by = f" of cluster {metadata['modelled_by']}" if "modelled_by" in metadata else ""
        warnings.append(
            f"{modelled:,} communication ops have no duration in the traces, and take that of the model{by}"
        )
    missed = metadata.get("unimplemented")
    if isinstance(missed, Mapping) and missed:
        warnings.append(f"calls that the virtual GPU does not implement: {_named(Counter(missed))}")
    if metadata.get("partial") or len(graph.ranks) < graph.world_size:
        warnings.append(f"the graph is partial: it holds {len(graph.ranks):,} of {graph.world_size:,} ranks")
    notes = metadata.get("notes")
    if isinstance(notes, list):
        warnings.extend(str(note) for note in notes)
    return warnings


def _launch_warnings(graph: Graph, found: Launches, device: DeviceProfile | None) -> list[str]:
    unknown = found.unknown.total()
    if device is not None and not found.count and graph.metadata.get("host") != "profile":
        return ["the graph holds no kernels, so that a device profile (--profile) changes nothing of it"]
    if device is not None and unknown:
        return [
            f"{unknown:,} of {found.kernels:,} kernel launches are not known to this profile, and take its "
            f"shortest time of {format_ns(device.kernel_floor_ns)} each: {_named(found.unknown)}"
        ]
    if found.untimed:
        named = f": {_named(found.unknown)}" if found.unknown else ""
        kineto = graph.metadata.get("imported_from") == "pytorch-et"
        also = ", or import the Kineto traces of the same run too (--kineto)" if kineto else ""
        return [
            f"{found.untimed:,} of {found.count:,} launches on the device have no duration in the traces and "
            f"count as 0{named}; replay with a device profile (--profile), which costs what it knows by "
            f"name{also}"
        ]
    if device is None and unknown:
        table = "; add these kernels to the device profile's timing table"
        cure = "" if "imported_from" in graph.metadata else table
        return [f"the duration of {unknown:,} kernel launches is unknown: {_named(found.unknown)}{cure}"]
    return []


def iteration_warnings(result: ReplayResult) -> list[str]:
    """One line where most of the iterations that count lie more than 5 % from their median: set-up may
    reach into them. For results without perturbation."""
    times = result.iteration_time_ns[result.first_counted :]
    if len(times) < 2:
        return []
    median = result.median_iteration_time_ns
    near = np.abs(times - median) <= _ALIKE / 2 * median
    if 2 * int(near.sum()) > len(times) or times.max() <= (1 + _ALIKE) * times.min():
        return []
    longest, shortest = int(np.argmax(times)), int(np.argmin(times))
    shown = [result.first_counted + at for at in (longest, shortest)]
    split = result.splits.mean(axis=0)
    parts = {key: split[:, SPLIT_KEYS.index(key)] for key in _PARTS}
    part = max(parts, key=lambda key: abs(parts[key][shown[0]] - parts[key][shown[1]]))
    first, second = (format_ns(float(parts[part][at])) for at in shown)
    return [
        f"the iterations that the median is of differ: iteration {shown[0] + 1} takes "
        f"{format_ns(int(times[longest]))}, iteration {shown[1] + 1} {format_ns(int(times[shortest]))}, "
        f"above all in {_PARTS[part]} ({first} and {second}, mean over ranks); where set-up reaches into the "
        "second (DDP rebuilds its buckets there), collect more: prism collect --iterations N"
    ]


def gap_warnings(graph: Graph, result: ReplayResult) -> list[str]:
    """Of a perturbed replay of an import: how much of it are gaps, which no perturbation changes."""
    total = result.splits[:, :, _SPAN].sum(axis=(1, 2))
    if "imported_from" not in graph.metadata or not result.splits.size or not total.all():
        return []
    shares = result.splits[:, :, SPLIT_KEYS.index("idle_ns")].sum(axis=1) / total
    worst = int(np.argmax(shares))
    if shares[worst] < _GAPS:
        return []
    return [
        f"{100 * shares[worst]:.1f} % of the time of rank {int(result.ranks[worst])} "
        f"({100 * shares.mean():.1f} % in the mean over ranks) are gaps kept as measured; one that was a "
        "wait for what the trace does not hold stays whatever the perturbation (docs/traces.md, Gaps)"
    ]


def collection_warnings(graph: Graph) -> list[str]:
    """Of a graph that was just collected: whether its ranks can run together, and whether its iterations
    are alike. Replays it; nothing where ranks are left out."""
    if graph.metadata.get("partial") or len(graph.ranks) < graph.world_size:
        return []
    try:
        return iteration_warnings(replay(graph))
    except PrismError as error:  # the graph is saved, and the command that needs more fails
        return [f"the ranks of this graph cannot run together, so that it cannot be replayed: {error}"]


def _named(found: Counter[str]) -> str:
    named = ", ".join(f"{name} ({count:,})" for name, count in found.most_common(NAMED))
    return named if len(found) <= NAMED else f"{named} and {len(found) - NAMED} more"
