"""What commands share that read a graph or a profile."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prismcore.errors import PrismError
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
    if path.is_dir():
        raise PrismError(f"{path}: is a folder, expected the name of a file to write")
    if source is not None and path.exists() and source.exists() and path.samefile(source):
        raise PrismError(f"{path}: is also what would be read, expected another name for the output")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise PrismError(f"{path}: its folder does not exist; create it first: mkdir -p {path.parent}")
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{path.name}."):
            pass
    except OSError as error:
        raise PrismError(f"{path}: cannot be written: {error.strerror}") from error


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
