"""Which durations of a job rest on models that nobody has compared with measurements.

A profile says so itself: ``compared_with`` of a device profile (its kernels) and of the two channel
graphs of a cluster profile (communication on one node, between nodes). A calibrated profile
(``fitted_to``) says there what its base says: measured is what its table holds. ``docs/accuracy.md`` has the
comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismcore.graph import Graph, Provenance
from prismcore.report.table_use import profile_of, table_use

if TYPE_CHECKING:
    from prismcore.profiles.cluster import ClusterProfile
    from prismcore.profiles.device import DeviceProfile

__all__ = ["uncompared"]


def uncompared(
    graph: Graph, *, device: DeviceProfile | None = None, cluster: ClusterProfile | None = None
) -> list[str]:
    """A phrase for each; empty where no duration is modelled or every model in use was compared.

    ``device`` and ``cluster`` are those that a replay costs anew with; None: those of the collection.
    """
    if device is None and cluster is None and not _has_models(graph):
        return []
    return [*_kernels(graph, device), *_communication(graph, cluster)]


def _has_models(graph: Graph) -> bool:
    return any(graph.program_statistics(p).device_ns[Provenance.MODEL] for p in graph.rank_classes)


def _kernels(graph: Graph, device: DeviceProfile | None) -> list[str]:
    name = graph.metadata.get("device") if device is None else device.name
    if not isinstance(name, str):
        return []
    profile = profile_of(graph, device)
    if profile is None:  # a file that is not here any more
        return [f"kernels of {name}"]
    if profile.compared_with:
        return []
    if profile.fitted_to is None or not profile.rows:
        return [f"kernels of {name}"]
    use = table_use(graph, profile)
    return [f"kernels of {name} without a row in its table"] if use.found < use.kernels else []


def _communication(graph: Graph, cluster: ClusterProfile | None) -> list[str]:
    if cluster is None:
        text = graph.metadata.get("cluster")
        if not isinstance(text, str):
            return []
        from prismcore.profiles.cluster import parse_cluster

        cluster = parse_cluster(text, "the graph's cluster profile")
    on_one = between = False
    for id in range(graph.num_communicators):
        members = graph.communicator(id).members
        if len(members) > 1:
            nodes = members // cluster.gpus_per_node
            crosses = bool((nodes != nodes[0]).any())
            between, on_one = between or crosses, on_one or not crosses
    parts = []
    for needed, graphs, where in (
        (on_one, cluster.one_node, "on a node"),
        (between, cluster.multi_node, "between nodes"),
    ):
        if needed and not graphs.compared_with:
            fitted = f" (but for {graphs.fitted_to}, which it was fitted to)" if graphs.fitted_to else ""
            parts.append(f"communication {where} of {cluster.name}{fitted}")
    return parts
