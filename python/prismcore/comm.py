"""What a collective or a message costs: algorithm, protocol, channels, duration.

The model is NCCL 2.30.7's own tuning model (public source), which NCCL chooses its algorithm by:
T = latency + bytes / bandwidth over every algorithm and protocol, minimum taken. Send/recv and the
all-to-all family have no model in NCCL; ours stands in ``csrc/comm/p2p.cc``. Durations are those of
the transfer alone: launch cost on the host and waiting for peers come on top. How close they are to
measurements: ``docs/accuracy.md``.

Everything here is a pure function of its arguments; nothing needs a GPU or torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from prismcore import _core
from prismcore.errors import GraphError
from prismcore.graph.values import u32_array, whole
from prismcore.profiles.cluster import ClusterProfile, load_cluster

if TYPE_CHECKING:
    from typing import TypeAlias

    from prismcore._core import ClusterProfile as CoreProfile

    Cluster: TypeAlias = str | ClusterProfile | CoreProfile

__all__ = [
    "CommCost",
    "Edge",
    "candidates",
    "collective_cost",
    "communicator_bytes",
    "p2p_cost",
    "ring_order",
    "traffic",
    "tree_parents",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommCost:
    """``duration_ns`` is rounded to the nearest ns; ``channels`` are those the size really uses."""

    algorithm: str
    protocol: str
    channels: int
    duration_ns: int


class Edge(NamedTuple):
    """``nbytes`` of payload from global rank ``source`` to ``target``; protocol overhead not counted."""

    source: int
    target: int
    nbytes: int


def _core_profile(cluster: Cluster) -> CoreProfile:
    if isinstance(cluster, _core.ClusterProfile):
        return cluster
    profile = cluster if isinstance(cluster, ClusterProfile) else load_cluster(cluster)
    return profile.to_core()


def _members(members: Sequence[int]) -> list[int]:
    array = u32_array(members, "members")
    if array.ndim != 1:
        raise GraphError(f"members: {array.ndim} dimensions found, expected 1")
    ranks: list[int] = array.tolist()
    if len(set(ranks)) != len(ranks):
        twice = next(rank for i, rank in enumerate(ranks) if rank in ranks[:i])
        raise GraphError(f"members: rank {twice} is named twice, expected distinct ranks")
    return ranks


def _cost(found: tuple[str, str, int, int]) -> CommCost:
    algorithm, protocol, channels, duration_ns = found
    return CommCost(algorithm=algorithm, protocol=protocol, channels=channels, duration_ns=duration_ns)


def collective_cost(
    kind: str,
    nbytes: int,
    members: Sequence[int],
    *,
    cluster: Cluster = "h100-8x",
    dtype: str = "bfloat16",
    reduction: str = "sum",
) -> CommCost:
    """Cost of one collective.

    Args:
        kind: ``all_reduce``, ``all_gather``, ``reduce_scatter``, ``broadcast``, ``reduce``,
            ``all_to_all``, ``gather`` or ``scatter``.
        nbytes: the larger of the send and receive buffer of a rank (of the root for gather and
            scatter), in bytes. 0 costs the latency alone.
        members: global ranks of the communicator; rank r sits on node ``r // gpus_per_node``.
        cluster: a profile's name or path, a profile, or what its ``to_core()`` gave (checked and
            converted once, for many calls).
        dtype: as ``prismcore`` names types; fp8 and averages limit the algorithms.
        reduction: ``sum``, ``prod``, ``max``, ``min``, ``avg`` or ``premul_sum``.

    Raises:
        GraphError: a size that is no whole number from 0 to 2^63 - 1, members that are no distinct ranks,
            an unknown kind, type or reduction.
        ProfileError: the cluster profile cannot be read.
    """
    core = _core_profile(cluster)
    shape = _core.shape_of(_members(members), core)
    size = whole(nbytes, "nbytes")
    return _cost(_core.collective_cost(kind, size, dtype, reduction, shape, core))


def candidates(
    kind: str,
    nbytes: int,
    members: Sequence[int],
    *,
    cluster: Cluster = "h100-8x",
    dtype: str = "bfloat16",
    reduction: str = "sum",
) -> list[CommCost]:
    """Every algorithm and protocol that could do it, fastest first; arguments as above."""
    core = _core_profile(cluster)
    shape = _core.shape_of(_members(members), core)
    size = whole(nbytes, "nbytes")
    found = _core.collective_candidates(kind, size, dtype, reduction, shape, core)
    return sorted(map(_cost, found), key=lambda cost: cost.duration_ns)


def p2p_cost(nbytes: int, *, same_node: bool, cluster: Cluster = "h100-8x") -> CommCost:
    """Cost of one message of ``nbytes`` bytes between two ranks.

    Raises:
        GraphError: a size that is no whole number from 0 to 2^63 - 1.
        ProfileError: the cluster profile cannot be read.
    """
    return _cost(_core.p2p_cost(whole(nbytes, "nbytes"), same_node, _core_profile(cluster)))


def communicator_bytes(members: Sequence[int], *, cluster: Cluster = "h100-8x") -> int:
    """Device memory in bytes that the communicator takes on each member; model in ``memory.cc``.

    Raises:
        GraphError: members that are no distinct ranks, or none.
        ProfileError: the cluster profile cannot be read.
    """
    core = _core_profile(cluster)
    return _core.communicator_bytes(_core.shape_of(_members(members), core), core)


def ring_order(members: Sequence[int], channel: int = 0, *, cluster: Cluster = "h100-8x") -> list[int]:
    """Global ranks in the order of a channel's ring, starting at the first member.

    The order inside a node is the topology search's, which is not run: see ``csrc/comm/layout.h``.

    Raises:
        GraphError: members that are no distinct ranks, or none.
        ProfileError: the cluster profile cannot be read.
    """
    ranks = _members(members)
    at_channel = whole(channel, "channel", high=2**32 - 1)
    return [ranks[at] for at in _core.ring_order(ranks, at_channel, _core_profile(cluster))]


def tree_parents(
    members: Sequence[int], channel: int = 0, *, cluster: Cluster = "h100-8x"
) -> dict[int, int | None]:
    """Parent of each global rank in the double binary tree of a channel; None at the root.

    The first half of the communicator's channels uses one tree, the second the other.

    Raises:
        GraphError: members that are no distinct ranks, or none.
        ProfileError: the cluster profile cannot be read.
    """
    ranks = _members(members)
    core = _core_profile(cluster)
    channels = _core.communicator_channels("tree", _core.shape_of(ranks, core), core)
    parents = _core.tree_parents(ranks, whole(channel, "channel") % channels, channels, core)
    return {rank: None if up < 0 else ranks[up] for rank, up in zip(ranks, parents, strict=True)}


def traffic(
    kind: str,
    nbytes: int,
    members: Sequence[int],
    *,
    algorithm: str = "ring",
    root: int | None = None,
    cluster: Cluster = "h100-8x",
) -> list[Edge]:
    """Bytes over each edge of a collective, exact and conserved, by sending and receiving rank.

    Args:
        kind: as in :func:`collective_cost`.
        nbytes: the larger of the send and receive buffer of a rank (of the root), in bytes.
        members: global ranks of the communicator.
        algorithm: ``ring``; ``tree`` for all_reduce; ``pat`` for all_gather and reduce_scatter with
            one rank a node; ``p2p`` for all_to_all, gather and scatter.
        root: global rank, for broadcast, reduce, gather and scatter (default: the first member).

    Raises:
        GraphError: another pair of kind and algorithm, negative bytes, a root that is no member.
        ProfileError: the cluster profile cannot be read.
    """
    ranks = _members(members)
    core = _core_profile(cluster)
    place = 0 if root is None else _place(root, ranks)
    channels = _core.communicator_channels("ring", _core.shape_of(ranks, core), core)
    found = _core.traffic(kind, algorithm, whole(nbytes, "nbytes"), place, channels, ranks, core)
    return [Edge(ranks[source], ranks[target], size) for source, target, size in found]


def _place(root: int, ranks: list[int]) -> int:
    if root not in ranks:
        raise GraphError(f"traffic: found root {root}, expected a member of the communicator")
    return ranks.index(root)
