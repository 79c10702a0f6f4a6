"""What commands share that read a graph or a profile."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.errors import PrismError
from prismcore.outputs import check_file
from prismcore.rank_list import format_ranks, named_ranks

if TYPE_CHECKING:
    from prismcore.graph import Graph
    from prismcore.profiles.cluster import ClusterProfile
    from prismcore.profiles.device import DeviceProfile


def open_graph(path: Path) -> Graph:
    """The graph of a ``.prism`` file."""
    from prismcore.graph import Graph

    return Graph.open(path)


def check_ranks(graph: Graph, ranks: Iterable[int], flag: str) -> None:
    """Raises PrismError when the graph does not hold one of the `ranks` that `flag` gave."""
    held_ranks = graph.ranks.tolist()
    absent = set(ranks).difference(held_ranks)
    if absent:
        held = format_ranks(held_ranks) or "none"
        raise PrismError(f"{flag}: {named_ranks(absent)} found, expected ranks that the graph holds: {held}")


def check_output(path: Path, *, source: Path | None = None) -> None:
    """Raises PrismError when `path` cannot become a file; better now than after the work.

    ``source``: what the command reads, which it must not write over.
    """
    check_file(path, sources=() if source is None else (source,))


def device_profile(name: str | None) -> DeviceProfile | None:
    """The device profile of a name or a TOML file; None for None."""
    if name is None:
        return None
    from prismcore.profiles.device import load_device

    return load_device(name)


def cluster_profile(name: str | None) -> ClusterProfile | None:
    """The cluster profile of a name or a TOML file; None for None."""
    if name is None:
        return None
    from prismcore.profiles.cluster import load_cluster

    return load_cluster(name)


def recorded_eager_bytes(graph: Graph) -> int:
    """Messages up to this size did not wait for their receiver where the graph was collected."""
    from prismcore.replay import recorded_eager_bytes

    return recorded_eager_bytes(graph)


def cluster_path(name: str | None) -> Path | None:
    """File of a cluster profile that was named by name or file.

    Raises ProfileError where it cannot be read.
    """
    from prismcore.profiles import cluster

    if name is None:
        return None
    cluster.load_cluster(name)  # an unknown name is answered with the known ones
    return cluster.FOLDER / f"{name}.toml" if name in cluster.cluster_names() else Path(name)
