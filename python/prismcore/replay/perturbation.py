"""What is slower, uneven or lost in a replay or an emulation than in the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prismcore import _core
from prismcore.errors import GraphError
from prismcore.graph.values import u32, whole

__all__ = ["Jitter", "Perturbation", "RankFailure", "SlowLink", "SlowRank"]

_FOREVER = 2**63 - 1


@dataclass(kw_only=True, slots=True, frozen=True)
class SlowRank:
    """Kernels of ``rank`` that start within [from_ns, to_ns) take floor(duration * factor + 0.5) ns;
    None: without end. Several for one rank multiply."""

    rank: int
    factor: float
    from_ns: int | None = None
    to_ns: int | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class SlowLink:
    """The link between ``rank`` and ``other`` (None: all links of ``rank``), both ways: messages between
    the two, and collectives in which they are neighbours (of the ring, tree or PAT that the
    communication model picks), take floor(duration * factor + 0.5) ns if the transfer starts within
    [from_ns, to_ns). ``factor`` is at least 1. Several for one link multiply; of a collective the
    slowest of its links counts."""

    rank: int
    other: int | None
    factor: float
    from_ns: int | None = None
    to_ns: int | None = None


@dataclass(kw_only=True, slots=True, frozen=True)
class Jitter:
    """Each kernel's duration is multiplied by exp(sigma * z - sigma**2 / 2), lognormal with mean 1; z is
    a standard normal draw that depends on ``seed``, the rank and the kernel's number in the rank's
    program alone. ``sigma`` is from 0 to 2."""

    seed: int
    sigma: float


@dataclass(kw_only=True, slots=True, frozen=True)
class RankFailure:
    """``rank`` is lost at ``at_ns``: nothing of it starts then or later, and what has not ended by then
    never does: its kernels, its transfers with others, its host's time. An eager message is delivered if
    its send has ended."""

    rank: int
    at_ns: int


@dataclass(kw_only=True, slots=True, frozen=True)
class Perturbation:
    """Times are those of the job, ns: 0 is where the graph begins."""

    slow_ranks: Sequence[SlowRank] = ()
    slow_links: Sequence[SlowLink] = ()
    jitter: Jitter | None = None
    failures: Sequence[RankFailure] = ()

    @property
    def is_none(self) -> bool:
        """Nothing is slower, uneven or lost."""
        return not (self.slow_ranks or self.slow_links or self.jitter or self.failures)

    def to_core(self) -> _core.Perturbation:
        """As the core takes it; raises GraphError for values that cannot be."""
        jitter = Jitter(seed=0, sigma=0.0) if self.jitter is None else self.jitter
        return _core.Perturbation(
            slow_ranks=[_slow_rank(s) for s in self.slow_ranks],
            slow_links=[_slow_link(s) for s in self.slow_links],
            jitter_seed=whole(jitter.seed, "seed of the jitter"),
            jitter_sigma=_number(jitter.sigma, "jitter: sigma", "from 0 to 2"),
            failures=[
                (u32(f.rank, "rank that fails"), whole(f.at_ns, "time of a failure")) for f in self.failures
            ],
        )


def _slow_rank(slow: SlowRank) -> tuple[int, float, int, int]:
    rank = u32(slow.rank, "slow rank")
    what = f"slow rank {rank}:"
    return (rank, _number(slow.factor, f"{what} factor", "from 0 on"), *_span(slow, what))


def _slow_link(slow: SlowLink) -> tuple[int, int, float, int, int]:
    rank = u32(slow.rank, "rank of a slow link")
    other = _core.every_link
    if slow.other is not None:
        other = whole(slow.other, "rank of a slow link", high=_core.every_link - 1)
    what = f"slow link of rank {rank}:"
    return (rank, other, _number(slow.factor, f"{what} factor", "from 1 on"), *_span(slow, what))


def _span(slow: SlowRank | SlowLink, what: str) -> tuple[int, int]:
    begin = 0 if slow.from_ns is None else whole(slow.from_ns, f"{what} from_ns")
    end = _FOREVER if slow.to_ns is None else whole(slow.to_ns, f"{what} to_ns")
    if begin > end:
        raise GraphError(f"{what} from {begin} to {end} ns found, expected an end not before the begin")
    return begin, end


def _number(value: float, what: str, expected: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise GraphError(f"{what} {value!r} found, expected a number {expected}") from None
