"""What kind of prediction the replay of a graph is, as comparisons with measurements tell them apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prismcore.graph import Graph
from prismcore.report.summary import ops_and_provenance

if TYPE_CHECKING:
    from prismcore.profiles.cluster import ClusterProfile
    from prismcore.profiles.device import DeviceProfile

__all__ = ["Case", "case_of"]

#: Of device time, how much may rest on something else.
NEGLIGIBLE = 0.01
OWN_STEPS = "own steps"
OTHER_STEPS = "other steps"
MAPPED_JOB = "mapped job"


@dataclass(kw_only=True, slots=True, frozen=True)
class Case:
    """A kind of prediction. None: it does not apply."""

    prediction: str
    """``own steps``: measured steps as they were; ``other steps``: by typical ones of the job; ``mapped
    job``: by profiles, without a run."""
    source: str  #: format of the trace; of a mapped job: its trainer
    steps: int | None = None  #: that a typical one was learned from
    device: str | None = None  #: profile of a mapped job, as it ships
    cluster: str | None = None  #: the same
    nodes: str | None = None  #: that a mapped job's communicators need: ``one`` or ``several``

    def is_covered_by(self, covers: Mapping[str, Any]) -> bool:
        """Whether a comparison of these cases is one of this one; sizes (``least_steps``, ``within_ms``)
        are looked at apart."""
        named = {field.name for field in dataclasses.fields(self)} & set(covers)
        return {"prediction", "source"} <= named and all(getattr(self, k) == covers[k] for k in named)

    def __str__(self) -> str:
        if self.prediction != MAPPED_JOB:
            return f"import of {self.source} ({self.prediction})"
        nodes = "one node" if self.nodes == "one" else "several nodes"
        return f"mapped job ({self.source}, {self.device}, {self.cluster}, {nodes})"


def case_of(
    graph: Graph, *, device: DeviceProfile | None = None, cluster: ClusterProfile | None = None
) -> Case | str:
    """The kind of prediction that a replay is; a text where it is none that could have been compared: why.

    ``device`` and ``cluster`` are those that a replay costs anew with; None: as recorded.
    """
    shares = ops_and_provenance(graph)[1]
    metadata = graph.metadata
    source = metadata.get("times_from", metadata.get("imported_from"))
    if "exported_from" in metadata:
        return f"the traces are of a replay (exported, from {metadata['exported_from']}), not of a run"
    if isinstance(source, str):
        if device is not None or cluster is not None:
            return "no measured job was compared with its run under another profile"
        if shares["measured"] < 1 - NEGLIGIBLE:
            return f"only {100 * shares['measured']:.1f} % of the device time of this import is measured"
        if source != "straggler" and len(graph.ranks) < graph.world_size:
            return "ranks are missing, and measured transfers may hold waiting for them"
        steps = metadata.get("typical_of_steps")
        if isinstance(steps, int):
            return Case(prediction=OTHER_STEPS, source=source, steps=steps)
        return Case(prediction=OWN_STEPS, source=source)
    if not isinstance(metadata.get("device"), str) or not isinstance(metadata.get("cluster"), str):
        return "the graph was neither measured nor mapped"
    return _mapped(graph, shares, device, cluster)


def _mapped(
    graph: Graph,
    shares: Mapping[str, float],
    device: DeviceProfile | None,
    cluster: ClusterProfile | None,
) -> Case | str:
    metadata = graph.metadata
    if device is None and shares["model"] + shares["table"] < 1 - NEGLIGIBLE:
        return f"{100 * (1 - shares['model'] - shares['table']):.1f} % of device time are not modelled"
    if metadata.get("host") != "profile":
        return "host time of this machine, not of the profile"
    if metadata.get("partial"):
        return "the graph is partial"
    names = _device_name(metadata["device"], device), _cluster_name(metadata["cluster"], cluster)
    if names[0] is None or names[1] is None:
        return "a profile that is not as it ships"
    return Case(
        prediction=MAPPED_JOB,
        source=_trainer(graph),
        device=names[0],
        cluster=names[1],
        nodes=_nodes(graph, cluster),
    )


def _device_name(recorded: str, device: DeviceProfile | None) -> str | None:
    from prismcore.profiles.device import device_profiles, load_device

    if device is None:
        name = recorded.removeprefix("virtual:")
        return name if name in device_profiles() else None
    return next((name for name in device_profiles() if load_device(name) == device), None)


def _cluster_name(recorded: str, cluster: ClusterProfile | None) -> str | None:
    from prismcore.profiles.cluster import cluster_names, load_cluster, parse_cluster

    of = cluster or parse_cluster(recorded, "the graph's cluster profile")
    return next((name for name in cluster_names() if load_cluster(name) == of), None)


def _trainer(graph: Graph) -> str:
    from prismcore.adapters.megatron_groups import is_megatron

    if graph.metadata.get("routing") is not None:
        return "mixture of experts"
    names = {graph.communicator(i).name.partition(":")[0] for i in range(graph.num_communicators)}
    return "megatron" if is_megatron(names) else "other trainer"


def _nodes(graph: Graph, cluster: ClusterProfile | None) -> str:
    from prismcore.profiles.cluster import parse_cluster

    of = cluster or parse_cluster(graph.metadata["cluster"], "the graph's cluster profile")
    return "one" if graph.world_size <= of.gpus_per_node else "several"
