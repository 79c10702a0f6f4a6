"""What perturbations make of durations, straight from their definitions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from prismcore import comm
from prismcore.graph import OpKind
from prismcore.profiles.cluster import ClusterProfile
from prismcore.replay import Perturbation, SlowLink, SlowRank

_MASK = 2**64 - 1
_STEP = 0x9E3779B97F4A7C15


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def jitter_factor(seed: int, sigma: float, rank: int, kernel: int) -> float:
    """Lognormal with mean 1, after Box and Muller."""
    stream = _mix(_mix((seed + _STEP) & _MASK) ^ rank)
    first = _mix((stream + _STEP * (kernel + 1)) & _MASK)
    second = _mix((first + _STEP) & _MASK)
    u, v = (((bits >> 11) + 0.5) * 2.0**-53 for bits in (first, second))
    z = math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)
    return math.exp(sigma * z - sigma**2 / 2)


def _active(entries: Iterable[SlowRank | SlowLink], time: int) -> float:
    held = [e.factor for e in entries if (e.from_ns or 0) <= time and (e.to_ns is None or time < e.to_ns)]
    return math.prod(held)


def _stretch(duration: int, factor: float) -> int:
    return math.floor(duration * factor + 0.5)


@dataclass
class Changes:
    """What `perturbation` makes of durations, on ranks wired as in `cluster`."""

    perturbation: Perturbation = field(default_factory=Perturbation)
    cluster: ClusterProfile | None = None

    def kernel(self, rank: int, number: int, start: int, duration: int) -> int:
        factor = _active((s for s in self.perturbation.slow_ranks if s.rank == rank), start)
        jitter = self.perturbation.jitter
        if jitter is not None:
            factor *= jitter_factor(jitter.seed, jitter.sigma, rank, number)
        return _stretch(duration, factor)

    def fails(self, rank: int) -> float:
        return min((f.at_ns for f in self.perturbation.failures if f.rank == rank), default=math.inf)

    def message(self, a: int, b: int, start: int, duration: int) -> int:
        return _stretch(duration, self._link(a, b, start))

    def collective(self, kind: OpKind, members: Any, start: int, duration: int) -> int:
        if not self.perturbation.slow_links or len(members) < 2:
            return duration
        assert self.cluster is not None
        assert kind == OpKind.ALL_REDUCE  # all that the programs of the tests have, 64 bytes each
        ranks = [int(m) for m in members]
        cost = comm.collective_cost("all_reduce", 64, ranks, cluster=self.cluster, dtype="int8")
        edges: list[tuple[int, int]] = []
        for channel in range(cost.channels):
            if cost.algorithm == "tree":
                # Of two trees; a channel of the second half is in the other.
                parents = comm.tree_parents(ranks, channel, cluster=self.cluster)
                edges += [(rank, parent) for rank, parent in parents.items() if parent is not None]
            else:
                assert cost.algorithm == "ring"
                order = comm.ring_order(ranks, channel, cluster=self.cluster)
                edges += zip(order, [*order[1:], order[0]], strict=True)
        return _stretch(duration, max(self._link(a, b, start) for a, b in edges))

    def _link(self, a: int, b: int, start: int) -> float:
        def crosses(s: SlowLink) -> bool:
            return s.rank in (a, b) if s.other is None else {s.rank, s.other} == {a, b}

        if a == b:
            return 1.0
        return _active((s for s in self.perturbation.slow_links if crosses(s)), start)


UNCHANGED = Changes()
