"""Which durations of a job rest on models that nobody has compared with measurements.

A profile says so itself: ``compared_with`` of a device profile (its kernels) and of the two channel
graphs of a cluster profile (communication on one node, between nodes). ``docs/accuracy.md`` has the
comparisons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prismcore.errors import ProfileError
from prismcore.graph import Graph, Provenance

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
    if device is not None:
        return [] if device.compared_with else [f"kernels of {device.name}"]
    name = graph.metadata.get("device")
    if not isinstance(name, str):
        return []
    from prismcore.profiles.device import load_device

    try:
        compared = load_device(name).compared_with
    except ProfileError:  # a file that is not here any more
        compared = None
    return [] if compared else [f"kernels of {name}"]


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
    if on_one and not cluster.one_node.compared_with:
        parts.append(f"communication on a node of {cluster.name}")
    if between and not cluster.multi_node.compared_with:
        parts.append(f"communication between nodes of {cluster.name}")
    return parts
