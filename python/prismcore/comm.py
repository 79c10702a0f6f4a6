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
from typing import TYPE_CHECKING

from prismcore import _core
from prismcore.profiles.cluster import ClusterProfile, load_cluster

if TYPE_CHECKING:
    from typing import TypeAlias

    from prismcore._core import ClusterProfile as CoreProfile

    Cluster: TypeAlias = str | ClusterProfile | CoreProfile

__all__ = ["CommCost", "candidates", "collective_cost", "communicator_bytes", "p2p_cost"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CommCost:
    """``duration_ns`` is rounded to the nearest ns; ``channels`` are those the size really uses."""

    algorithm: str
    protocol: str
    channels: int
    duration_ns: int


def _core_profile(cluster: Cluster) -> CoreProfile:
    if isinstance(cluster, _core.ClusterProfile):
        return cluster
    profile = cluster if isinstance(cluster, ClusterProfile) else load_cluster(cluster)
    return profile.to_core()


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
        GraphError: negative size, no members, an unknown kind, type or reduction.
        ProfileError: the cluster profile cannot be read.
    """
    core = _core_profile(cluster)
    shape = _core.shape_of(list(members), core)
    return _cost(_core.collective_cost(kind, nbytes, dtype, reduction, shape, core))


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
    shape = _core.shape_of(list(members), core)
    found = _core.collective_candidates(kind, nbytes, dtype, reduction, shape, core)
    return sorted(map(_cost, found), key=lambda cost: cost.duration_ns)


def p2p_cost(nbytes: int, *, same_node: bool, cluster: Cluster = "h100-8x") -> CommCost:
    """Cost of one message of ``nbytes`` bytes between two ranks.

    Raises:
        GraphError: negative size.
        ProfileError: the cluster profile cannot be read.
    """
    return _cost(_core.p2p_cost(nbytes, same_node, _core_profile(cluster)))


def communicator_bytes(members: Sequence[int], *, cluster: Cluster = "h100-8x") -> int:
    """Device memory in bytes that the communicator takes on each member; model in ``memory.cc``.

    Raises:
        GraphError: no members.
        ProfileError: the cluster profile cannot be read.
    """
    core = _core_profile(cluster)
    return _core.communicator_bytes(_core.shape_of(list(members), core), core)
