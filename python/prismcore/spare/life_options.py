"""What a simulated life is made of. Defaults are the setting of the SPARe paper."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from prismcore import _core
from prismcore.errors import SpareError
from prismcore.spare import placement as placements
from prismcore.spare.closed_form import POLICIES, Policy, best_redundancy, default_checkpoint_steps
from prismcore.spare.failures import FailureTrace, parse_lifetime
from prismcore.spare.numbers import nanoseconds, number, whole

__all__ = ["MODELS", "POLICIES", "QUIRKS", "LifeOptions"]

MODELS = ("published", "corrected")

QUIRKS: Mapping[str, str] = MappingProxyType(
    {
        "availability_ignores_rework": "availability leaves out restarts and recoveries alone",
        "one_layer_per_patch": "a patch costs a survivor one shard at most",
        "free_commit_when_covered": "a step whose shards are all there commits without an all-reduce",
        "half_price_failed_allreduce": "a failed all-reduce takes half its time",
        "allreduce_cannot_fail": "a group that dies in the all-reduce is missed by the next step only",
        "one_charge_per_failure": "a failure costs the controller or the shrink, not both",
        "restart_redoes_a_step": "a restart redoes the step that was saved",
        "skip_checkpoint_when_leader_due": "no checkpoint if its writer is about to fail, at no cost",
        "clocks_run_while_down": "hardware that is down goes on ageing, and a restart does not renew it",
        "replication_one_failure_per_step": "replication handles one failure a step",
        "replication_jitters_whole_step": "replication draws a group's jitter once a step, not once a shard",
        "replication_interval_by_spare_mu": "replication's checkpoint interval comes from SPARe's mu(N, r)",
    }
)
"""Rules of the published simulator that a real system does not follow, by name. ``docs/spare.md`` holds
what happens without each."""

_IN_PYTHON = "replication_interval_by_spare_mu"


@dataclass(kw_only=True, slots=True, frozen=True)
class LifeOptions:
    """Times in seconds, rounded to nanoseconds. Values that cannot be raise SpareError in
    :func:`prismcore.spare.life.simulate`."""

    policy: Policy = "spare"
    groups: int = 600
    """N: data-parallel groups, and shards of a step."""
    redundancy: int | None = None
    """r; None: that of ``placement``, or the paper's rule,
    :func:`prismcore.spare.closed_form.best_redundancy`, as far as a Golomb placement holds it."""
    micro_batches: int = 1
    """Parts of a shard that move one by one; 1 is the paper. For ``spare`` alone."""
    steps: int = 10_000
    placement: placements.Placement | None = None
    """None: the Golomb placement of ``groups`` and ``redundancy``."""

    layer_s: float = 64.0
    """One group computes one shard."""
    allreduce_s: float | None = None
    """None: the paper's 0.01 s a group."""
    restart_s: float = 3600.0
    """A group needs it undisturbed; all wait for the last."""
    load_s: float = 0.0
    """To load the checkpoint, on top of the restart."""
    checkpoint_s: float = 60.0
    checkpoint_steps: int | None = None
    """Steps between checkpoints; 0: never; None: by T_c*,
    :func:`prismcore.spare.closed_form.default_checkpoint_steps`."""
    reorder_s: float = 0.1
    shrink_s: float = 0.1
    jitter: float = 0.05
    """Standard deviation of a shard's compute time on a group, relative."""
    jitter_every_group: bool = False
    """Draw every group's jitter instead of the slowest one's (equal in distribution, slower)."""

    mtbf_s: float = 300.0
    """Mean time between failures of the fleet with all groups up."""
    distribution: str = "weibull:0.78"
    trace: FailureTrace | None = None
    """Takes the place of ``mtbf_s`` and ``distribution``."""
    domain_groups: int = 1
    """Consecutive groups that share a failure domain (rack, switch)."""
    domain_share: float = 0.0
    """Of failures that take their whole domain."""
    repair_s: float | None = None
    """From a failure until the hardware joins again, at a step's start; None: at a restart only."""
    rejoin_s: float = 0.0
    """All wait while groups join."""
    spares: int = 0
    """Hardware for whole groups that stands ready; as many again after a restart."""
    swap_s: float = 0.0
    """From a failure until a spare can join."""

    model: str = "published"
    quirks: Mapping[str, bool] = field(default_factory=dict)
    """Single rules of :data:`QUIRKS` switched on or off, over what ``model`` says."""
    limit_ratio: float = 100.0
    """A life that takes longer than this many ideal ones is given up (``finished`` is false)."""
    seeds: int = 5
    first_seed: int = 0
    threads: int | None = None
    """None: one for each CPU."""
    record_events: bool = False

    def chosen_redundancy(self) -> int:
        if self.policy == "checkpoint-only":
            return 1
        if self.redundancy is not None:
            return self.redundancy
        if self.policy != "spare":
            return best_redundancy(self.groups)
        if self.placement is not None:
            return placements.checked(self.placement).redundancy
        return min(best_redundancy(self.groups), placements.largest_redundancy(self.groups))

    def chosen_allreduce_s(self) -> float:
        return 0.01 * whole("groups", self.groups) if self.allreduce_s is None else self.allreduce_s

    def chosen_restart_s(self) -> float:
        """Until a group has restarted and loaded the checkpoint."""
        return number("time of a restart", self.restart_s) + number("time to load a checkpoint", self.load_s)

    def chosen_quirks(self) -> dict[str, bool]:
        if self.model not in MODELS:
            raise SpareError(f"model {self.model!r} found, expected {' or '.join(MODELS)}")
        if not isinstance(self.quirks, Mapping):
            raise SpareError(f"quirks {self.quirks!r} found, expected a name and true or false for each")
        for name, on in self.quirks.items():
            if name not in QUIRKS:
                raise SpareError(f"quirk {name!r} found, expected one of {', '.join(QUIRKS)}")
            if not isinstance(on, bool):
                raise SpareError(f"quirk {name}: {on!r} found, expected true or false")
        return dict.fromkeys(QUIRKS, self.model == "published") | dict(self.quirks)

    def chosen_checkpoint_steps(self) -> int:
        if self.checkpoint_steps is not None:
            return self.checkpoint_steps
        return default_checkpoint_steps(
            self.policy,
            self.groups,
            self.chosen_redundancy(),
            self.micro_batches,
            mtbf_s=self.mtbf_s,
            checkpoint_s=self.checkpoint_s,
            restart_s=self.chosen_restart_s(),
            layer_s=self.layer_s,
            allreduce_s=self.chosen_allreduce_s(),
            replication_by_spare_mu=self.chosen_quirks()[_IN_PYTHON],
        )

    def chosen_placement(self) -> placements.Placement | None:
        if self.policy != "spare":
            return None
        if self.placement is not None:
            return placements.checked(self.placement)
        return placements.golomb(self.groups, self.chosen_redundancy())

    def to_core(self, threads: int) -> _core.SpareLifeOptions:
        """The same for the core, which checks what is not checked here."""
        if self.policy not in POLICIES:
            raise SpareError(f"policy {self.policy!r} found, expected {', '.join(POLICIES)}")
        core = _core.SpareLifeOptions()
        core.policy = _POLICY[self.policy]
        core.groups = whole("groups", self.groups)
        core.redundancy = whole("redundancy", self.chosen_redundancy())
        core.micro_batches = whole("micro-batches", self.micro_batches)
        core.steps = whole("steps", self.steps)
        core.layer_ns = nanoseconds("time of a layer", self.layer_s)
        core.allreduce_ns = nanoseconds("time of an all-reduce", self.chosen_allreduce_s())
        core.restart_ns = nanoseconds("time of a restart", self.restart_s)
        core.load_ns = nanoseconds("time to load a checkpoint", self.load_s)
        core.checkpoint_ns = nanoseconds("time to write a checkpoint", self.checkpoint_s)
        core.reorder_ns = nanoseconds("time to reorder", self.reorder_s)
        core.shrink_ns = nanoseconds("time to shrink", self.shrink_s)
        core.jitter = number("jitter", self.jitter)
        core.jitter_every_group = bool(self.jitter_every_group)
        core.domain_groups = whole("groups of a failure domain", self.domain_groups)
        core.domain_share = number("share of domain failures", self.domain_share)
        core.repair_ns = None if self.repair_s is None else nanoseconds("time to repair", self.repair_s)
        core.rejoin_ns = nanoseconds("time to re-join", self.rejoin_s)
        core.spares = whole("spares", self.spares)
        core.swap_ns = nanoseconds("time to swap a spare in", self.swap_s)
        core.seeds = whole("seeds", self.seeds)
        core.first_seed = whole("first seed", self.first_seed, least=0, most=(1 << 63) - 1)
        core.threads = threads
        core.record_events = bool(self.record_events)
        self._failures_to(core)
        quirks = self.chosen_quirks()
        for name in QUIRKS:
            if name != _IN_PYTHON:
                setattr(core.quirks, name, quirks[name])
        limit_ratio = number("limit in ideal lives", self.limit_ratio)
        if not limit_ratio > 0:
            raise SpareError(f"limit {limit_ratio} ideal lives found, expected above 0")
        ideal_s = self.steps * (self.layer_s + self.chosen_allreduce_s())
        core.limit_ns = max(1, round(min(limit_ratio * ideal_s * 1e9, 2.0**61)))
        core.checkpoint_steps = 0
        core.check()  # before closed forms see the values
        core.checkpoint_steps = whole("checkpoint interval in steps", self.chosen_checkpoint_steps())
        return core

    def _failures_to(self, core: _core.SpareLifeOptions) -> None:
        if self.trace is not None:
            if not isinstance(self.trace, FailureTrace):
                raise SpareError(f"trace {self.trace!r} found, expected a FailureTrace")
            core.set_trace(self.trace.checked())
            return
        lifetime = parse_lifetime(self.distribution)
        core.lifetime = getattr(_core.SpareLifetime, lifetime.kind)
        core.shape = lifetime.shape
        core.group_mean_ns = nanoseconds("mean time between failures", self.mtbf_s) * float(self.groups)


_POLICY = {
    "spare": _core.SparePolicy.spare,
    "replication": _core.SparePolicy.replication,
    "checkpoint-only": _core.SparePolicy.checkpoint_only,
}
