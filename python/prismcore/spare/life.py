"""Simulated lives of a training job: steps under failures, restarts and checkpoints.

    >>> from prismcore.spare.life import LifeOptions, simulate
    >>> result = simulate(LifeOptions(groups=200, redundancy=9, steps=100, seeds=2))
    >>> result.ttt_ratio.mean > 1
    True

The rules and their sources stand in ``docs/spare.md``.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismcore import _core
from prismcore.spare.life_options import LifeOptions
from prismcore.spare.numbers import Estimate, estimate, whole
from prismcore.spare.placement import Placement, checked

__all__ = ["Endurance", "LifeEvent", "LifeOptions", "LifeResult", "LifeTrial", "endurance", "simulate"]


@dataclass(kw_only=True, slots=True, frozen=True)
class LifeEvent:
    time_ns: int
    kind: str
    """``failure`` (noticed by a step), ``step``, ``checkpoint``, ``wipe_out``, ``restart`` (all are up) or
    ``rejoin``."""
    value: int
    """The group; of a step its number; of a checkpoint and a restart the step that is next."""


@dataclass(kw_only=True, slots=True, frozen=True)
class LifeTrial:
    """One life."""

    seed: int
    finished: bool
    """All steps were done within the limits; otherwise ``total_ns`` is where the life was given up."""
    steps_done: int
    total_ns: int
    ttt_ratio: float
    """Total time over that without failures, redundancy, jitter and checkpoints."""
    availability: float
    mean_depth: float
    """Planned depth in shards, mean over the failures endured."""
    mean_compute: float
    """Shards that the slowest survivor computes in a step, patches included, mean over steps run."""
    failures: int
    """Groups in service that failed."""
    restart_failures: int
    """Groups that failed while they restarted."""
    wipeouts: int
    restarts: int
    covered: int
    """Failures (as steps noticed them) after which nothing had to be computed."""
    reorders: int
    """Failures after which survivors computed a patch."""
    rejoined: int
    checkpoints: int
    endured_per_wipeout: float
    """Failures before the one that wipes out, mean; NaN without a wipe-out."""
    split_ns: dict[str, int]
    """Where the time went; adds up to ``total_ns`` exactly."""
    events: tuple[LifeEvent, ...]


@dataclass(kw_only=True, slots=True, frozen=True)
class LifeResult:
    """Means over seeds with their 95 % confidence intervals."""

    options: LifeOptions
    redundancy: int
    checkpoint_steps: int
    trials: tuple[LifeTrial, ...]
    wall_time_s: float

    @property
    def finished(self) -> bool:
        return all(trial.finished for trial in self.trials)

    def over_seeds(self, value: Callable[[LifeTrial], float]) -> Estimate:
        """Of the seeds that have the value."""
        values = [float(value(trial)) for trial in self.trials]
        return estimate([v for v in values if not math.isnan(v)])

    @property
    def ttt_ratio(self) -> Estimate:
        return self.over_seeds(lambda trial: trial.ttt_ratio)

    @property
    def availability(self) -> Estimate:
        return self.over_seeds(lambda trial: trial.availability)

    @property
    def mean_depth(self) -> Estimate:
        return self.over_seeds(lambda trial: trial.mean_depth)

    @property
    def mean_compute(self) -> Estimate:
        return self.over_seeds(lambda trial: trial.mean_compute)

    @property
    def endured_per_wipeout(self) -> Estimate:
        return self.over_seeds(lambda trial: trial.endured_per_wipeout)

    def split(self) -> dict[str, float]:
        """Share of the time that each part takes, all seeds together."""
        total_ns = sum(trial.total_ns for trial in self.trials)
        names = self.trials[0].split_ns
        return {
            name: sum(trial.split_ns[name] for trial in self.trials) / total_ns if total_ns else 0.0
            for name in names
        }

    def to_dict(self) -> dict[str, Any]:
        """What ``prism spare simulate --json`` prints; values that no seed has are None."""
        estimates = {
            "ttt_ratio": self.ttt_ratio,
            "availability": self.availability,
            "mean_depth": self.mean_depth,
            "mean_compute": self.mean_compute,
            "failures": self.over_seeds(lambda trial: trial.failures),
            "endured_per_wipeout": self.endured_per_wipeout,
            "wipeouts": self.over_seeds(lambda trial: trial.wipeouts),
            "restarts": self.over_seeds(lambda trial: trial.restarts),
            "reorders": self.over_seeds(lambda trial: trial.reorders),
        }
        result: dict[str, Any] = {name: _or_none(value.mean) for name, value in estimates.items()}
        result["seeds"] = len(self.trials)
        result["ci95"] = {name: _or_none(value.ci95) for name, value in estimates.items()}
        result["wall_time_s"] = self.wall_time_s
        result["finished"] = self.finished
        result["policy"] = self.options.policy
        result["model"] = self.options.model
        result["redundancy"] = self.redundancy
        result["micro_batches"] = self.options.micro_batches
        result["checkpoint_steps"] = self.checkpoint_steps
        result["time_split"] = self.split()
        return result


def simulate(options: LifeOptions) -> LifeResult:
    """One life for each seed, equal for any number of threads; the GIL is not held.

    Raises:
        SpareError: values that cannot be; names what was found and what is expected.
    """
    threads = os.cpu_count() or 1 if options.threads is None else whole("threads", options.threads)
    core = options.to_core(threads)
    placement = options.chosen_placement()
    begin = time.perf_counter()
    trials = _core.spare_simulate(core, None if placement is None else placement.core)
    wall_time_s = time.perf_counter() - begin
    return LifeResult(
        options=options,
        redundancy=options.chosen_redundancy(),
        checkpoint_steps=options.chosen_checkpoint_steps(),
        trials=tuple(_trial(options, trial) for trial in trials),
        wall_time_s=wall_time_s,
    )


@dataclass(kw_only=True, slots=True, frozen=True)
class Endurance:
    """Groups that fail in random order, without times."""

    endured: NDArray[np.int32]
    """(trials,): failures before the one that wipes out."""
    mean_depth: NDArray[np.float64]
    """(trials,): planned depth in shards, mean over the endured failures; 0 where there are none."""


def endurance(
    placement: Placement,
    *,
    trials: int = 2000,
    micro_batches: int = 0,
    seed: int = 0,
    threads: int | None = None,
) -> Endurance:
    """How many failures a placement endures and, with ``micro_batches`` 1 or more, how deep its stacks get.

    Without depths only hosts are counted, which is much faster. Equal for any number of threads.

    Raises:
        SpareError: values that cannot be.
    """
    endured, depth = _core.spare_endurance(
        checked(placement).core,
        whole("micro-batches", micro_batches),
        whole("trials", trials),
        whole("seed", seed, least=0, most=(1 << 63) - 1),
        os.cpu_count() or 1 if threads is None else whole("threads", threads),
    )
    return Endurance(endured=endured, mean_depth=depth)


def _trial(options: LifeOptions, trial: _core.SpareLifeTrial) -> LifeTrial:
    redundancy = options.chosen_redundancy()
    undisturbed = 1.0 if options.policy == "spare" else float(redundancy)
    return LifeTrial(
        seed=trial.seed,
        finished=trial.finished,
        steps_done=trial.steps_done,
        total_ns=trial.total_ns,
        ttt_ratio=trial.total_ns / trial.ideal_ns,
        availability=trial.availability,
        mean_depth=trial.depth_sum / trial.depth_count if trial.depth_count else undisturbed,
        mean_compute=trial.compute_sum / trial.compute_count if trial.compute_count else math.nan,
        failures=trial.failures,
        restart_failures=trial.restart_failures,
        wipeouts=trial.wipeouts,
        restarts=trial.restarts,
        covered=trial.covered,
        reorders=trial.reorders,
        rejoined=trial.rejoined,
        checkpoints=trial.checkpoints,
        endured_per_wipeout=trial.endured / trial.wipeouts if trial.wipeouts else math.nan,
        split_ns=dict(trial.split),
        events=tuple(LifeEvent(time_ns=t, kind=k, value=v) for t, k, v in trial.events),
    )


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
