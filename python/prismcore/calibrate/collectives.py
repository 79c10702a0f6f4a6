"""Figures of a cluster profile from measured collectives.

Durations of the model are linear in what is fitted: ``d = A + H * u + T * v`` with u the extra latency
(``extra_latency_us`` of a protocol, ``*_latency_us`` of messages, H how often it counts) and v the inverse
of a bandwidth (``bandwidth_efficiency``; ``nvlink_gbps``, ``nic_gbps``). A, H and T come from the model
itself, by costing the same collective with other figures; algorithm and protocol do not depend on them.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from prismcore.calibrate.samples import CollectiveKey, Ints, Spread
from prismcore.comm import CommCost, collective_cost
from prismcore.graph import OpKind
from prismcore.profiles.cluster import ChannelGraphs, ClusterProfile

__all__ = ["LEAST_FITTED", "CollectiveRow", "LinkFit", "collective_rows", "fit_links"]

_Floats = npt.NDArray[np.float64]

#: What all_to_all, gather and scatter cost stands in [p2p].
_MESSAGES: Final = (OpKind.ALL_TO_ALL, OpKind.GATHER, OpKind.SCATTER)
#: Samples that a fit needs: medians of a few meetings differ by as much as a latency.
LEAST_FITTED: Final = 10
_APART: Final = 3.0  #: ratio of sizes that tells latency from bandwidth
_PASSES: Final = 50
_PROBE_US: Final = 1000.0
_MOST_US: Final = 1e6  # what a profile takes
_LEAST_RATE: Final = 1e-4


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveRow:
    """One kind, size and group. ``bus_gbps``: bytes over the median, of the larger buffer (1e9 bytes/s)."""

    key: CollectiveKey
    nodes: int
    measured: Spread
    base: CommCost
    fitted_ns: int
    used: bool  #: there are samples enough

    @property
    def gbps(self) -> float:
        return self.key.bytes / max(self.measured.median_ns, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkFit:
    """A protocol on one node or between nodes, or messages there. Figures: None where the base's stays."""

    where: str  #: ``one_node`` or ``multi_node``
    protocol: str  #: ``ll``, ``ll128``, ``simple``; ``messages``
    samples: int
    sizes: int
    latency_us: float | None
    base_latency_us: float
    bandwidth: float | None  #: share of the modelled one; of messages GB/s
    base_bandwidth: float

    @property
    def is_fitted(self) -> bool:
        """Whether anything of it is not the base's."""
        return self.latency_us is not None or self.bandwidth is not None


def fit_links(
    collectives: Mapping[CollectiveKey, Ints], profile: ClusterProfile, least: int
) -> tuple[ClusterProfile, list[LinkFit]]:
    """A copy of ``profile`` with fitted figures, and what was fitted.

    Medians of each kind, size and group weigh alike; the sum of relative errors is made least. Sizes that
    are not apart by a factor of 3 in transfer over latency tell one figure: the bandwidth where the
    transfer is the larger half, else the latency. ``least``: samples that a median needs; figures of a
    protocol need ``LEAST_FITTED`` in all.
    """
    fitted = copy.deepcopy(profile)
    fits = []
    groups: dict[tuple[str, str], list[tuple[CollectiveKey, int]]] = defaultdict(list)
    for key, durations in collectives.items():
        median = Spread.of(durations).median_ns
        if len(durations) >= least and median > 0:
            groups[_where(key, profile), _protocol(key, profile)].append((key, median))
    for (where, protocol), medians in sorted(groups.items(), key=lambda g: (g[0][1] == "messages", g[0])):
        count = sum(len(collectives[key]) for key, _ in medians)
        fits.append(_fit(fitted, _knob(where, protocol), medians, count))
    return fitted, fits


def collective_rows(
    collectives: Mapping[CollectiveKey, Ints], base: ClusterProfile, fitted: ClusterProfile, least: int
) -> list[CollectiveRow]:
    """What was measured, beside both profiles; by kind, size and group."""
    core, core_fitted = base.to_core(), fitted.to_core()
    return [
        CollectiveRow(
            key=key,
            nodes=len({member // base.gpus_per_node for member in key.members}),
            measured=Spread.of(durations),
            base=_cost(key, core),
            fitted_ns=_cost(key, core_fitted).duration_ns,
            used=len(durations) >= least,
        )
        for key, durations in sorted(
            collectives.items(), key=lambda item: (item[0].kind, item[0].bytes, item[0].members)
        )
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Knob:
    """The two figures of a group: how to read and to set latency (us) and bandwidth of a profile."""

    where: str
    protocol: str
    get: Callable[[ClusterProfile], tuple[float, float]]
    set: Callable[[ClusterProfile, float, float], None]
    most_bandwidth: float


def _graphs(profile: ClusterProfile, where: str) -> ChannelGraphs:
    return profile.one_node if where == "one_node" else profile.multi_node


def _knob(where: str, protocol: str) -> _Knob:
    if protocol == "messages":
        latency, rate = (
            ("intra_latency_us", "nvlink_gbps") if where == "one_node" else ("inter_latency_us", "nic_gbps")
        )

        def set_messages(profile: ClusterProfile, latency_us: float, gbps: float) -> None:
            setattr(profile.p2p, latency, latency_us)
            setattr(profile.p2p, rate, gbps)

        return _Knob(
            where=where,
            protocol=protocol,
            get=lambda profile: (getattr(profile.p2p, latency), getattr(profile.p2p, rate)),
            set=set_messages,
            most_bandwidth=1e5,
        )

    def get(profile: ClusterProfile) -> tuple[float, float]:
        calibration = _graphs(profile, where).calibration
        return (
            getattr(calibration.extra_latency_us, protocol),
            getattr(calibration.bandwidth_efficiency, protocol),
        )

    def set_protocol(profile: ClusterProfile, latency_us: float, share: float) -> None:
        calibration = _graphs(profile, where).calibration
        setattr(calibration.extra_latency_us, protocol, latency_us)
        setattr(calibration.bandwidth_efficiency, protocol, share)

    return _Knob(where=where, protocol=protocol, get=get, set=set_protocol, most_bandwidth=1.0)


def _fit(
    profile: ClusterProfile, knob: _Knob, medians: Sequence[tuple[CollectiveKey, int]], samples: int
) -> LinkFit:
    """Sets the figures of ``profile`` that the medians tell."""
    base_latency, base_bandwidth = knob.get(profile)
    if samples < LEAST_FITTED:
        return LinkFit(
            where=knob.where,
            protocol=knob.protocol,
            samples=samples,
            sizes=len(medians),
            latency_us=None,
            base_latency_us=base_latency,
            bandwidth=None,
            base_bandwidth=base_bandwidth,
        )
    measured = np.array([median / 1e3 for _, median in medians])
    reference = knob.most_bandwidth if knob.protocol != "messages" else base_bandwidth
    fixed, hops, transfer = _terms(profile, knob, [key for key, _ in medians], reference)
    v_base = reference / base_bandwidth
    ratio = transfer / np.maximum(hops, 1e-9)
    both = ratio.max() >= _APART * max(ratio.min(), 1e-9) and len(measured) > 1
    modelled = fixed + hops * base_latency + transfer * v_base
    transfers = float(np.median(transfer * v_base / modelled)) >= 0.5
    knows_latency, knows_bandwidth = both or not transfers, both or transfers
    least_v = reference / knob.most_bandwidth
    terms = measured - fixed, hops, transfer, measured
    u, v = _solve(
        *terms,
        fixed_u=None if knows_latency else base_latency,
        fixed_v=None if knows_bandwidth else v_base,
        least_v=least_v,
    )
    # One figure at its bound that is not enough: the other is told as well.
    if not knows_latency and v <= least_v:
        knows_latency = True
        u, v = _solve(*terms, fixed_u=None, fixed_v=least_v, least_v=least_v)
    elif not knows_bandwidth and u <= 0:
        knows_bandwidth = True
        u, v = _solve(*terms, fixed_u=0.0, fixed_v=None, least_v=least_v)
    latency = min(round(u, 3), _MOST_US) if knows_latency else base_latency
    rate = min(max(round(reference / v, 4), _LEAST_RATE), knob.most_bandwidth)
    bandwidth = rate if knows_bandwidth else base_bandwidth
    knob.set(profile, latency, bandwidth)
    return LinkFit(
        where=knob.where,
        protocol=knob.protocol,
        samples=samples,
        sizes=len(medians),
        latency_us=latency if knows_latency else None,
        base_latency_us=base_latency,
        bandwidth=bandwidth if knows_bandwidth else None,
        base_bandwidth=base_bandwidth,
    )


def _terms(
    profile: ClusterProfile, knob: _Knob, keys: Sequence[CollectiveKey], reference: float
) -> tuple[_Floats, _Floats, _Floats]:
    """A, H and T of each, us, at the reference bandwidth."""

    def times(latency_us: float, bandwidth: float) -> _Floats:
        trial = copy.deepcopy(profile)
        knob.set(trial, latency_us, bandwidth)
        core = trial.to_core()
        return np.array([_cost(key, core).duration_ns / 1e3 for key in keys])

    plain = times(0.0, reference)
    transfer = times(0.0, reference / 2) - plain
    return plain - transfer, (times(_PROBE_US, reference) - plain) / _PROBE_US, transfer


def _solve(
    rest: _Floats,
    hops: _Floats,
    transfer: _Floats,
    measured: _Floats,
    *,
    fixed_u: float | None,
    fixed_v: float | None,
    least_v: float,
) -> tuple[float, float]:
    """u >= 0 and v >= least_v with the least sum of |rest - hops * u - transfer * v| / measured, by
    reweighted squares."""
    weight = 1 / measured
    u, v = fixed_u or 0.0, fixed_v or least_v
    for _ in range(_PASSES):
        a, b, c = hops * weight, transfer * weight, rest * weight
        if fixed_v is not None:
            u = _one(a, c - b * fixed_v, 0.0)
        elif fixed_u is not None:
            v = _one(b, c - a * fixed_u, least_v)
        else:
            u, v = _two(a, b, c, least_v)
        error = np.abs(rest - hops * u - transfer * v) / measured
        weight = 1 / (measured * np.sqrt(np.maximum(error, 1e-4)))
    return u, v


def _one(of: _Floats, target: _Floats, least: float) -> float:
    square = float(of @ of)
    return max(float(of @ target) / square, least) if square > 0 else least


def _two(a: _Floats, b: _Floats, c: _Floats, least_v: float) -> tuple[float, float]:
    """Least squares within the bounds: inside where the optimum is, else the better edge."""
    u, v = (float(x) for x in np.linalg.lstsq(np.stack([a, b], axis=1), c, rcond=None)[0])
    if u >= 0 and v >= least_v:
        return u, v
    edges = [(0.0, _one(b, c, least_v)), (_one(a, c - b * least_v, 0.0), least_v)]
    return min(edges, key=lambda edge: float(np.sum((c - a * edge[0] - b * edge[1]) ** 2)))


def _where(key: CollectiveKey, profile: ClusterProfile) -> str:
    nodes = {member // profile.gpus_per_node for member in key.members}
    return "one_node" if len(nodes) == 1 else "multi_node"


def _protocol(key: CollectiveKey, profile: ClusterProfile) -> str:
    return "messages" if key.kind in _MESSAGES else _cost(key, profile).protocol


def _cost(key: CollectiveKey, cluster: object) -> CommCost:
    return collective_cost(
        key.kind.name.lower(),
        key.bytes,
        key.members,
        cluster=cluster,  # type: ignore[arg-type]
        dtype=key.dtype,
    )
