"""Tables of simulated trainings: the fleet, what came out, where time went."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.table import Table

from prismcore.report.table import rows_table
from prismcore.report.units import format_ns, format_share, plural

if TYPE_CHECKING:
    from prismcore.spare.life import LifeOptions, LifeResult
    from prismcore.spare.numbers import Estimate

POLICY_WORDS = {"spare": "SPARe", "replication": "replication", "checkpoint-only": "checkpoints only"}

PART_WORDS = {
    "compute": "computation, one shard a step",
    "redundant": "more shards a step, as planned",
    "jitter": "waiting for the slowest group",
    "allreduce": "all-reduce",
    "failed_allreduce": "all-reduces that failed",
    "patch": "patches: shards recomputed after a failure",
    "recovery": "controller and communicator",
    "rejoin": "waiting for groups that join",
    "checkpoint": "writing checkpoints",
    "restart": "restarts",
    "rework": "steps done again after a restart",
}


def duration(seconds: float) -> str:
    """``300`` as ``5 min``, ``1e6`` as ``11.6 days``."""
    for least, unit, name in ((172_800, 86_400, "days"), (3_600, 3_600, "h"), (120, 60, "min")):
        if seconds >= least:
            return f"{seconds / unit:,.1f}".removesuffix(".0") + f" {name}"
    return f"{seconds:.3g} s" if seconds >= 1 else format_ns(seconds * 1e9)


def fleet_fields(life: LifeOptions, gpus: int) -> list[tuple[str, object]]:
    """What fails, how often, and what everything costs."""
    shape = life.distribution.replace("weibull:", "Weibull, shape ")
    fails = f"one in {duration(life.mtbf_s)}, all groups up ({shape})"
    if life.trace is not None:
        fails = f"{len(life.trace.failures):,} of a trace"
    allreduce_s = life.chosen_allreduce_s()
    load = f", {duration(life.load_s)} to load a checkpoint" if life.load_s else ""
    fields: list[tuple[str, object]] = [
        ("groups", f"{life.groups:,} of {plural(gpus // life.groups, 'GPU')} each, {gpus:,} in all"),
        ("failures", fails),
        (
            "step",
            f"{duration(life.layer_s)} to compute a shard, {duration(allreduce_s)} once a step; "
            f"jitter {100 * life.jitter:g} %",
        ),
        ("restart", f"{duration(life.restart_s)} undisturbed{load}"),
        ("checkpoint", f"{duration(life.checkpoint_s)} to write"),
        (
            "training",
            f"{plural(life.steps, 'step')}, "
            f"{duration(life.steps * (life.layer_s + allreduce_s))} without failures",
        ),
        ("model", life.model),
    ]
    if life.domain_share > 0:
        share = f"{100 * life.domain_share:g} % of failures take {plural(life.domain_groups, 'group')}"
        fields.append(("racks", share))
    if life.repair_s is not None:
        fields.append(("repair", f"a group re-joins {duration(life.repair_s)} after its failure"))
    if life.spares:
        fields.append(("spares", f"{plural(life.spares, 'group')}, ready in {duration(life.swap_s)}"))
    return fields


def life_fields(result: LifeResult) -> list[tuple[str, object]]:
    """What came out, means over seeds with their 95 % intervals."""
    life = result.options
    trial = result.trials[0]
    ideal_s = trial.total_ns / 1e9 / trial.ttt_ratio
    how = POLICY_WORDS[life.policy]
    if life.policy != "checkpoint-only":
        how += f", redundancy {result.redundancy}"
    if life.policy == "spare":
        how += (
            ", whole shards move"
            if life.micro_batches == 1
            else f", {plural(life.micro_batches, 'part')} a shard"
        )
    ratio = result.ttt_ratio
    took = f"{interval(ratio, 3)} times that without failures: {duration(ratio.mean * ideal_s)}"
    if not result.finished:
        took = endless(result)
    counts = {
        name: result.over_seeds(lambda trial, name=name: float(getattr(trial, name)))  # type: ignore[misc]
        for name in ("failures", "wipeouts", "restarts", "reorders")
    }
    every = every_steps(result.checkpoint_steps)
    return [
        ("policy", how),
        ("time to train", took),
        ("availability", f"{interval(result.availability, 2, 100)} %"),
        ("mean depth", f"{interval(result.mean_depth, 3)} shards, planned, over failures until wipe-out"),
        ("mean compute", f"{interval(result.mean_compute, 3)} shards a step, slowest group, with patches"),
        ("failures", interval(counts["failures"], 0)),
        ("endured per wipe-out", interval(result.endured_per_wipeout, 1)),
        ("wipe-outs", f"{interval(counts['wipeouts'], 1)}, restarts {interval(counts['restarts'], 1)}"),
        ("reorders with a patch", interval(counts["reorders"], 0)),
        ("checkpoints", every),
        ("seeds", f"{len(result.trials):,} in {result.wall_time_s:.2f} s; after ±: 95 % interval"),
    ]


def endless(result: LifeResult) -> str:
    """How far trainings came until they were given up."""
    given_up = [trial for trial in result.trials if not trial.finished]
    done = max(trial.steps_done for trial in given_up)
    failed = max(trial.failures + trial.restart_failures for trial in given_up)
    time_s = max(trial.total_ns for trial in given_up) / 1e9
    steps, failures = plural(result.options.steps, "step"), plural(failed, "failure")
    return f"does not end: {done:,} of {steps} in {duration(time_s)}, {failures}"


def every_steps(steps: int) -> str:
    """An interval between checkpoints; 0: there are none."""
    return f"every {plural(steps, 'step')}" if steps else "never"


def split_table(result: LifeResult) -> Table:
    """Where the time of a training goes, mean over seeds."""
    shares = result.split()
    mean_s = sum(trial.total_ns for trial in result.trials) / 1e9 / len(result.trials)
    rows = [
        (PART_WORDS.get(name, name), f"{share * mean_s / 3600:,.1f}", format_share(share))
        for name, share in shares.items()
        if share
    ]
    rows.append(("sum", f"{mean_s / 3600:,.1f}", format_share(sum(shares.values()))))
    return rows_table("where time goes, mean over seeds", ("part", "hours", "share"), rows)


def interval(value: Estimate, digits: int, scale: float = 1.0) -> str:
    """``2.488 ± 0.033``; ``-`` where no seed has the value, no ± with one seed."""
    if math.isnan(value.mean):
        return "-"
    text = f"{scale * value.mean:,.{digits}f}"
    return text if math.isnan(value.ci95) else f"{text} ± {scale * value.ci95:,.{digits}f}"
