"""One way to run a fleet: policy, redundancy, granularity, checkpoint interval, and what it comes to."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from statistics import NormalDist

from prismcore.spare import closed_form
from prismcore.spare.closed_form import Policy
from prismcore.spare.life import LifeOptions, LifeResult
from prismcore.spare.numbers import number, whole

__all__ = ["Candidate", "predict", "step_s"]


@dataclass(kw_only=True, slots=True, frozen=True)
class Candidate:
    """Predicted by closed forms; ``simulated`` holds what was confirmed, or None."""

    policy: Policy
    redundancy: int
    micro_batches: int
    checkpoint_steps: int
    checkpoint_interval_s: float
    """Training between two checkpoints: ``checkpoint_steps`` predicted steps, or all of it for 0."""
    endured: float
    """Failures until wipe-out, mean, the last one included."""
    depth: float
    """Shards that a group computes in a step, mean over the failures until wipe-out."""
    ttt_ratio: float
    """Time to train over that without failures, redundancy, jitter and checkpoints."""
    availability: float
    """By the definition of the model: the published one counts rework and checkpoints as available."""
    simulated: LifeResult | None = None

    @property
    def key(self) -> tuple[Policy, int, int]:
        return self.policy, self.redundancy, self.micro_batches

    @property
    def best_known_ratio(self) -> float:
        """Simulated where it was; infinite where a simulated training did not end."""
        if self.simulated is None:
            return self.ttt_ratio
        return self.simulated.ttt_ratio.mean if self.simulated.finished else math.inf

    def confirmed(self, result: LifeResult) -> Candidate:
        return dataclasses.replace(self, simulated=result)


def step_s(life: LifeOptions, depth: float) -> float:
    """A step of ``depth`` shards a group, all groups, the slowest waited for.

    A shard takes normal(1, jitter) of ``layer_s``, so ``depth`` of them spread by sqrt(depth) times that;
    the largest of N such draws lies near the (N - 3/8)/(N + 1/4) quantile (Blom, 1958).
    """
    slowest = NormalDist().inv_cdf((life.groups - 0.375) / (life.groups + 0.25)) if life.groups > 1 else 0.0
    jitter = number("jitter", life.jitter)
    return life.layer_s * (depth + jitter * slowest * math.sqrt(depth)) + life.chosen_allreduce_s()


def predict(life: LifeOptions, policy: Policy, redundancy: int, micro_batches: int = 1) -> Candidate:
    """Closed forms of :mod:`prismcore.spare.closed_form`, with jitter and the all-reduce added.

    Patches, failures in restarts, racks, repair and spares are left out: simulation has them. Replication
    takes its interval from its own mean of endured failures, unlike the published study. Without checkpoints
    (an interval of 0 steps) all of the training is the interval.

    Raises:
        SpareError: values that cannot be.
    """
    replicated = policy == "replication"
    life = dataclasses.replace(
        life,
        policy=policy,
        redundancy=redundancy,
        micro_batches=micro_batches,
        quirks={**life.chosen_quirks(), "replication_interval_by_spare_mu": False},
    )
    if policy == "checkpoint-only":
        endured, depth = 1.0, 1.0
    elif replicated:
        endured = closed_form.replication_endured_failures(life.groups, redundancy)
        depth = float(redundancy)
    else:
        endured = closed_form.endured_failures(life.groups, redundancy)
        depth = closed_form.mean_depth_finite(life.groups, redundancy, micro_batches)
    steps = whole("checkpoint interval in steps", life.chosen_checkpoint_steps(), least=0)
    one_s = step_s(life, depth)
    interval_s = (steps or whole("steps", life.steps, least=1)) * one_s
    checkpoint_s = number("time to write a checkpoint", life.checkpoint_s) if steps else 0.0
    between_s = endured * number("mean time between failures", life.mtbf_s)
    restart_s = life.chosen_restart_s()
    lasting = closed_form.availability(interval_s + checkpoint_s, checkpoint_s, between_s, restart_s)
    up = between_s / (between_s + restart_s) if life.model == "published" else lasting
    return Candidate(
        policy=policy,
        redundancy=redundancy,
        micro_batches=micro_batches,
        checkpoint_steps=steps,
        checkpoint_interval_s=interval_s,
        endured=endured,
        depth=depth,
        ttt_ratio=one_s / (life.layer_s + life.chosen_allreduce_s()) / lasting,
        availability=up,
    )
