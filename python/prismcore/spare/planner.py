"""Redundancy, granularity and checkpoint interval that minimise time to train.

Closed forms rank every redundancy that the placement allows and every granularity; the best few and
their neighbours are simulated, as are the best of replication and training with checkpoints only; the
simulation decides. Closed forms leave out patches, bursts of failures and restarts that fail again, so
they rank well and promise too much.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from prismcore.errors import SpareError
from prismcore.spare.candidate import Candidate, predict
from prismcore.spare.closed_form import Policy
from prismcore.spare.life import LifeOptions, LifeResult, simulate
from prismcore.spare.numbers import whole
from prismcore.spare.placement import groups_needed, largest_redundancy

__all__ = ["FleetPlan", "PlanOptions", "Saving", "divisors", "plan", "simulate_in_rounds"]

GRANULARITIES = (1, 2, 4, 8, 16)
MOST_REDUNDANCY = 64
"""Tried; more shards a group is beyond what hosts store, and endures hardly more."""
STARTS = 3
"""Predictions that are simulated before the search follows what simulation says."""
MOST_SIMULATED = 30
"""Of one policy."""
GIVEN_UP = 20.0
"""A simulated training that takes this many times the ideal one does not end for us."""
TIE = 0.001
"""Ratios this close, relative, are equal: the smallest redundancy among them stores least."""
BASELINE_REDUNDANCY = range(2, 7)

Tell = Callable[[int, int, str], None]
"""Called with (simulations done, at most, what is being done)."""


@dataclass(kw_only=True, slots=True, frozen=True)
class PlanOptions:
    """A fleet and what may be chosen for it."""

    life: LifeOptions = field(default_factory=LifeOptions)
    """Costs, failures, steps, model, seeds; its policy, redundancy and granularity are not read."""
    granularities: tuple[int, ...] = GRANULARITIES
    """Micro-batches m of a shard that may move one by one."""
    redundancy: int | None = None
    """None: every one that the Golomb placement allows."""
    whole_curves: bool = False
    """Simulate the chosen granularity and m = 1 at every redundancy, to draw them."""


@dataclass(kw_only=True, slots=True, frozen=True)
class Saving:
    """What the plan saves against another way to run the fleet."""

    ratio: float
    """Of time to train: how many ideal trainings less; infinite where the other does not end."""
    days: float
    gpu_hours: float


@dataclass(kw_only=True, slots=True, frozen=True)
class FleetPlan:
    """``alternatives`` (the chosen one is the first) and ``replication`` are simulated, best first;
    ``predicted`` is not."""

    options: PlanOptions
    chosen: Candidate
    alternatives: tuple[Candidate, ...]
    replication: tuple[Candidate, ...]
    checkpoint_only: Candidate
    predicted: tuple[Candidate, ...]
    """Closed forms alone: all redundancies and granularities, then replication's."""
    simulations: int

    @property
    def ideal_s(self) -> float:
        """Without failures, redundancy, jitter and checkpoints."""
        life = self.options.life
        return life.steps * (life.layer_s + life.chosen_allreduce_s())

    def saving(self, other: Candidate, gpus: int) -> Saving:
        ratio = other.best_known_ratio - self.chosen.best_known_ratio
        days = ratio * self.ideal_s / 86_400
        return Saving(ratio=ratio, days=days, gpu_hours=days * 24 * gpus)

    def noise(self, other: Candidate) -> float:
        """Half widths of the 95 % intervals of both ratios together."""
        results = [c.simulated for c in (self.chosen, other) if c.simulated is not None]
        return sum(0.0 if math.isnan(r.ttt_ratio.ci95) else r.ttt_ratio.ci95 for r in results)

    def within_noise(self) -> list[Candidate]:
        """Alternatives that more seeds might rank first."""
        return [
            other
            for other in self.alternatives
            if other.key != self.chosen.key
            and other.best_known_ratio - self.chosen.best_known_ratio <= self.noise(other)
        ]


def plan(options: PlanOptions, tell: Tell | None = None) -> FleetPlan:
    """The best way to run the fleet that was found.

    Raises:
        SpareError: groups too few for any redundancy, or values that cannot be.
    """
    if not isinstance(options.life, LifeOptions):
        raise SpareError(f"life {options.life!r} found, expected LifeOptions")
    granularities = _granularities(options)
    options = dataclasses.replace(options, granularities=granularities)
    dataclasses.replace(options.life, policy="checkpoint-only", micro_batches=1).to_core(1)  # checks
    search = _Search(options, tell)
    grid = [
        predict(options.life, "spare", r, m) for m in options.granularities for r in _redundancies(options)
    ]
    ranked = sorted(grid, key=lambda c: c.ttt_ratio)
    starts = [*ranked[:STARTS], *(_best_of(ranked, m) for m in options.granularities[:1])]
    search.follow(ranked, starts)
    whole = [c for c in search.found("spare") if c.micro_batches == options.granularities[0]]
    if whole:  # the paper's granularity deserves its own best, to be compared with
        search.follow([c for c in ranked if c.micro_batches == whole[0].micro_batches], whole[:1])
    found = search.found("spare")
    if options.whole_curves:
        shown = {found[0].micro_batches, options.granularities[0]}
        search.confirm(c for c in ranked if c.micro_batches in shown)
        found = search.found("spare")
    replication = [
        predict(options.life, "replication", r) for r in BASELINE_REDUNDANCY if r <= options.life.groups
    ]
    search.follow(replication, sorted(replication, key=lambda c: c.ttt_ratio)[:1])
    search.confirm([predict(options.life, "checkpoint-only", 1)])
    as_good = [c for c in found if c.best_known_ratio <= (1 + TIE) * found[0].best_known_ratio]
    chosen = min(as_good, key=lambda c: (c.redundancy, c.micro_batches))
    return FleetPlan(
        options=options,
        chosen=chosen,
        alternatives=(chosen, *(c for c in found if c.key != chosen.key)),
        replication=tuple(search.found("replication")),
        checkpoint_only=search.found("checkpoint-only")[0],
        predicted=(*grid, *replication),
        simulations=search.done,
    )


def divisors(micro_batches: int) -> tuple[int, ...]:
    """Granularities of a shard of so many micro-batches: parts are equal, and whole micro-batches."""
    most = whole("micro-batches", micro_batches, least=1)
    return tuple(m for m in range(1, most + 1) if most % m == 0)


def simulate_in_rounds(options: LifeOptions, tell: Tell | None = None, what: str = "") -> LifeResult:
    """As :func:`prismcore.spare.life.simulate`, some seeds at a time, so that progress can be told."""
    at_once = 1 if options.threads is None else whole("threads", options.threads, least=1)
    of = whole("seeds", options.seeds, least=1)
    first_seed = whole("first seed", options.first_seed, least=0, most=(1 << 63) - of)
    rounds: list[LifeResult] = []
    for first in range(0, of, at_once):
        if tell is not None:
            tell(first, of, what)
        seeds = min(at_once, of - first)
        rounds.append(simulate(dataclasses.replace(options, first_seed=first_seed + first, seeds=seeds)))
    return dataclasses.replace(
        rounds[0],
        options=options,
        trials=tuple(trial for one in rounds for trial in one.trials),
        wall_time_s=sum(one.wall_time_s for one in rounds),
    )


def _granularities(options: PlanOptions) -> tuple[int, ...]:
    if isinstance(options.granularities, (str, bytes)) or not isinstance(options.granularities, Iterable):
        raise SpareError(f"granularities {options.granularities!r} found, expected whole numbers")
    found = tuple(whole("granularity", m, least=1) for m in options.granularities)
    if not found:
        raise SpareError("no granularity found, expected one or more, as (1, 8)")
    return found


def _redundancies(options: PlanOptions) -> Sequence[int]:
    groups = options.life.groups
    most = largest_redundancy(groups)
    if options.redundancy is not None:
        whole("redundancy", options.redundancy, least=1)
        if options.redundancy > most:
            raise SpareError(
                f"redundancy {options.redundancy} and groups {groups} found, expected "
                f"{_needed(options.redundancy)} groups or redundancy {most} at most, so that two groups "
                "share at most one shard type"
            )
        return (options.redundancy,)
    if most < 2:
        raise SpareError(
            f"groups {groups} found, expected at least {groups_needed(2)} for redundancy 2: with fewer no "
            "group can be lost"
        )
    return range(2, min(most, MOST_REDUNDANCY) + 1)


def _needed(redundancy: int) -> str:
    try:
        return f"{groups_needed(redundancy)}"
    except SpareError:  # beyond the largest ruler
        return "many more"


def _best_of(ranked: Iterable[Candidate], micro_batches: int) -> Candidate:
    return next(c for c in ranked if c.micro_batches == micro_batches)


class _Search:
    """Simulates candidates, each once."""

    def __init__(self, options: PlanOptions, tell: Tell | None) -> None:
        self._options = options
        self._tell = tell
        self._simulated: dict[tuple[Policy, int, int], Candidate] = {}

    @property
    def done(self) -> int:
        return len(self._simulated)

    def found(self, policy: Policy) -> list[Candidate]:
        """What was simulated, best first."""
        ours = [c for c in self._simulated.values() if c.policy == policy]
        return sorted(ours, key=lambda c: (c.best_known_ratio, c.redundancy, c.micro_batches))

    def confirm(self, candidates: Iterable[Candidate]) -> None:
        for candidate in candidates:
            if candidate.key in self._simulated:
                continue
            if self._tell is not None:
                self._tell(self.done, 0, f"simulating {words(candidate)}")
            life = dataclasses.replace(
                self._options.life,
                policy=candidate.policy,
                redundancy=candidate.redundancy,
                micro_batches=candidate.micro_batches,
                checkpoint_steps=candidate.checkpoint_steps,
                limit_ratio=GIVEN_UP,
            )
            self._simulated[candidate.key] = candidate.confirmed(simulate_in_rounds(life))

    def follow(self, grid: Sequence[Candidate], starts: Sequence[Candidate]) -> None:
        """Simulates ``starts``, then the neighbours in ``grid`` of the best, until it has no better one."""
        inside = {c.key: c for c in grid}
        if not starts:
            return
        granularities = sorted({c.micro_batches for c in grid})
        self.confirm(starts)
        for _ in range(MOST_SIMULATED):
            best = next(c for c in self.found(starts[0].policy) if c.key in inside)
            at = granularities.index(best.micro_batches)
            near = [(best.redundancy + d, best.micro_batches) for d in (-1, 1)]
            near += [(best.redundancy, m) for m in granularities[max(at - 1, 0) : at + 2]]
            keys = [(best.policy, r, m) for r, m in near]
            fresh = [inside[key] for key in keys if key in inside and key not in self._simulated]
            if not fresh:
                return
            self.confirm(fresh)


def words(candidate: Candidate) -> str:
    """``SPARe r = 9, m = 8``."""
    if candidate.policy == "checkpoint-only":
        return "checkpoints only"
    if candidate.policy == "replication":
        return f"replication r = {candidate.redundancy}"
    return f"SPARe r = {candidate.redundancy}, m = {candidate.micro_batches}"
