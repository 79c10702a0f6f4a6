"""Cluster profiles: how nodes and links are wired.

Shipped as ``profiles/clusters/<name>.toml``, each figure with its source. Units: GB/s = 1e9 bytes a
second in one direction, us, bytes. The figures are what NCCL's topology search reports (``nChannels
8, bw 45/45``) and what its tuning model needs (NCCL 2.30.7); :mod:`prismcore.comm` turns them into
durations.
"""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from prismcore.errors import ProfileError
from prismcore.profiles.reader import (
    Range,
    known_profiles,
    problem,
    profile_files,
    profile_table,
    read_mapping,
    read_profile,
    read_text,
)
from prismcore.profiles.toml_text import toml_text

if TYPE_CHECKING:
    from prismcore import _core

__all__ = [
    "Calibration",
    "ChannelGraph",
    "ChannelGraphs",
    "ClusterProfile",
    "PointToPoint",
    "cluster_files",
    "cluster_names",
    "cluster_text",
    "default_cluster_for",
    "load_cluster",
    "parse_cluster",
]

FOLDER = Path(__file__).parent / "clusters"

# Virtual device -> the machine it is usually sold in.
_DEFAULTS = {
    "a100": "a100-8x",
    "a100-megatron-deepspeed": "a100-8x",
    "h100": "h100-8x",
    "h200": "h200-8x",
    "b200": "b200-8x",
}

_BASE = re.compile(r"^\s*[\"']?base[\"']?\s*=", re.MULTILINE)

Gbps = Annotated[float, Range(above=0, maximum=1e5, unit="GB/s")]
Microseconds = Annotated[float, Range(maximum=1e6, unit="us")]
Share = Annotated[float, Range(above=0, maximum=1)]
Channels = Annotated[int, Range(minimum=1, maximum=64)]


@dataclass(kw_only=True, slots=True)
class ChannelGraph:
    """Result of NCCL's topology search for one family of algorithms.

    ``inter_gbps`` has a meaning between nodes only, where it must stand.
    """

    channels: Annotated[int, Range(minimum=1, maximum=32)]
    intra_gbps: Gbps
    inter_gbps: Gbps | None = None


@dataclass(kw_only=True, slots=True)
class Efficiency:
    """Share of NCCL's modelled bandwidth that transfers reach, by protocol."""

    ll: Share = 1.0
    ll128: Share = 1.0
    simple: Share = 1.0


@dataclass(kw_only=True, slots=True)
class ExtraLatency:
    """Time beyond NCCL's modelled latency, by protocol, us."""

    ll: Microseconds = 0.0
    ll128: Microseconds = 0.0
    simple: Microseconds = 0.0


@dataclass(kw_only=True, slots=True)
class Calibration:
    """How measured transfers differ from NCCL's own model; the defaults are that model as it is.

    Scales durations, never the choice of algorithm. ``ring_fill_steps``: the s steps of a ring of the
    Simple protocol take the time of s + this many, because it fills and drains.
    """

    bandwidth_efficiency: Efficiency = field(default_factory=Efficiency)
    extra_latency_us: ExtraLatency = field(default_factory=ExtraLatency)
    ring_fill_steps: Annotated[float, Range(maximum=10)] = 0.0


@dataclass(kw_only=True, slots=True)
class ChannelGraphs:
    """``tree`` also serves PAT and CollNetChain, ``nvls`` NVLSTree and CollNetDirect.

    ``same_channels``: every channel visits a node's ranks in the same order. ``compared_with``: the
    measurements that durations were compared with; None: nothing. ``fitted_to``: those that a calibration
    of the profile's own comes from.
    """

    ring: ChannelGraph
    tree: ChannelGraph
    nvls: ChannelGraph
    same_channels: bool = True
    compared_with: str | None = None
    fitted_to: str | None = None
    calibration: Calibration = field(default_factory=Calibration)


@dataclass(kw_only=True, slots=True)
class PointToPoint:
    """Send/recv, and what is made of it: all-to-all, gather, scatter.

    The latencies are added to NCCL's own constants. A send of at most ``eager_bytes`` does not wait
    for its receiver.
    """

    nvlink_gbps: Gbps
    nic_gbps: Gbps
    intra_latency_us: Microseconds = 0.0
    inter_latency_us: Microseconds = 0.0
    channels: Channels = 32
    channels_per_peer: Channels = 32
    channels_multi_node: Channels = 16
    channels_per_peer_multi_node: Channels = 2
    eager_bytes: Annotated[int, Range(unit="bytes")] = 1 << 20


@dataclass(kw_only=True, slots=True)
class ClusterProfile:
    """A cluster of equal nodes; see the comments in the shipped files for each figure's source.

    ``overlap_slowdown`` (1.0: not modelled) is the factor on kernel time under overlapping
    communication.
    """

    name: str
    gpus_per_node: Annotated[int, Range(minimum=1, maximum=1024)]
    compute_capability: Annotated[int, Range(minimum=70, maximum=199)]
    cpu: Literal["intel", "amd", "other"] = "intel"
    intra_link: Literal["nvlink", "pci"] = "nvlink"
    tree_pattern: Literal["tree", "balanced", "split"] = "balanced"
    ll128: bool = True
    nvls: bool = False
    collnet: bool = False
    nvls_channels: Annotated[int, Range(maximum=64)] = 16
    nvls_channels_multi_node: Annotated[int, Range(maximum=64)] = 16
    network_latency_us: Microseconds = 0.0
    overlap_slowdown: Annotated[float, Range(minimum=1, maximum=100)] = 1.0
    one_node: ChannelGraphs
    multi_node: ChannelGraphs
    p2p: PointToPoint

    def __post_init__(self) -> None:
        for kind in ("ring", "tree", "nvls"):
            graph: ChannelGraph = getattr(self.multi_node, kind)
            if graph.inter_gbps is None:
                raise problem(f"multi_node.{kind}.inter_gbps", "nothing", "a number above 0 (GB/s)")
        if self.nvls and min(self.nvls_channels, self.nvls_channels_multi_node) < 1:
            raise problem("nvls_channels", "0 with nvls = true", "an integer at least 1")

    def to_core(self) -> _core.ClusterProfile:
        """The C++ core's profile, after the figures passed the same checks as a file's.

        Raises:
            ProfileError: a figure was set to what it cannot be.
        """
        from prismcore import _core

        checked = read_mapping(ClusterProfile, _without_none(asdict(self)), f"cluster profile {self.name}")
        out = _core.ClusterProfile()
        nested = {"one_node", "multi_node", "p2p", "cpu", "intra_link", "tree_pattern"}
        for key in set(ClusterProfile.__slots__) - nested:
            setattr(out, key, getattr(checked, key))
        out.cpu = getattr(_core.CpuVendor, checked.cpu)
        out.intra_link = getattr(_core.IntraLink, checked.intra_link)
        out.tree_pattern = getattr(_core.TreePattern, checked.tree_pattern)
        out.one_node = _core_graphs(checked.one_node)
        out.multi_node = _core_graphs(checked.multi_node)
        for key in PointToPoint.__slots__:
            core_key = key if key in ("nvlink_gbps", "nic_gbps", "eager_bytes") else f"p2p_{key}"
            setattr(out, core_key, getattr(checked.p2p, key))
        return out


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in table.items()
        if value is not None
    }


def _core_graphs(graphs: ChannelGraphs) -> _core.ChannelGraphs:
    from prismcore import _core

    out = _core.ChannelGraphs()
    for kind in ("ring", "tree", "nvls"):
        graph: ChannelGraph = getattr(graphs, kind)
        core = _core.ChannelGraph()
        core.channels = graph.channels
        core.intra_gbps = graph.intra_gbps
        core.inter_gbps = graph.intra_gbps if graph.inter_gbps is None else graph.inter_gbps
        setattr(out, kind, core)
    out.same_channels = graphs.same_channels
    calibration = _core.Calibration()
    efficiency = graphs.calibration.bandwidth_efficiency
    extra = graphs.calibration.extra_latency_us
    calibration.bandwidth_efficiency = [efficiency.ll, efficiency.ll128, efficiency.simple]
    calibration.extra_latency_us = [extra.ll, extra.ll128, extra.simple]
    calibration.ring_fill_steps = graphs.calibration.ring_fill_steps
    out.calibration = calibration
    return out


def cluster_names() -> list[str]:
    """Names of the shipped cluster profiles, sorted."""
    return known_profiles(FOLDER)


def load_cluster(name_or_path: str | os.PathLike[str]) -> ClusterProfile:
    """Reads a shipped profile by name (``"h100-8x"``) or a TOML file by path.

    Raises:
        ProfileError: an unknown name (the message lists the known ones), an unreadable file, or a
            figure that is missing, unknown or out of range (file, key, found, expected).
    """
    return read_profile(ClusterProfile, name_or_path, FOLDER, kind="cluster")


def cluster_files(name_or_path: str | os.PathLike[str]) -> list[Path]:
    """The files that :func:`load_cluster` reads: the profile and those that it extends.

    Raises:
        ProfileError: one of them cannot be read.
    """
    return profile_files(name_or_path, FOLDER, kind="cluster")


def parse_cluster(text: str, source: str) -> ClusterProfile:
    """Reads a profile from TOML text, as a graph's metadata holds it; ``source`` stands in messages."""
    return read_text(ClusterProfile, text, source)


def cluster_text(name_or_path: str | os.PathLike[str]) -> str:
    """The TOML text of a profile that :func:`load_cluster` accepts, to be kept with a result: whole, also
    where the file extends another one."""
    load_cluster(name_or_path)
    text = os.fspath(name_or_path)
    path = FOLDER / f"{text}.toml" if text in cluster_names() else Path(text)
    _, table = profile_table(name_or_path, FOLDER, kind="cluster")
    own = path.read_text(encoding="utf-8")
    return own if _BASE.search(own) is None else toml_text(table)


def default_cluster_for(device_name: str) -> str:
    """Name of the cluster profile that goes with a device profile (``"h100"``, ``"virtual:h100"``).

    Raises:
        ProfileError: no shipped cluster belongs to that device.
    """
    device = device_name.removeprefix("virtual:")
    if device not in _DEFAULTS:
        raise ProfileError(
            f"device {device!r}: found no cluster profile that goes with it, expected one of "
            f"{', '.join(sorted(_DEFAULTS))}; name a cluster profile (--cluster)"
        )
    return _DEFAULTS[device]
