"""A plan as tables, JSON and curves to draw."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from rich.table import Table

from prismcore.report.spare_life import POLICY_WORDS, duration, endless, every_steps, interval
from prismcore.report.table import rows_table
from prismcore.report.units import plural
from prismcore.spare.candidate import Candidate
from prismcore.spare.life import LifeResult
from prismcore.spare.planner import FleetPlan, words
from prismcore.spare.plot import Curve, Point

SHOWN_BEST = 5
SHOWN_REPLICATION = 3
NAMED_CLOSE = 5


def plan_fields(plan: FleetPlan, gpus: int) -> list[tuple[str, object]]:
    """What to do, and what it saves."""
    best = plan.chosen
    result = best.simulated
    assert result is not None
    parts = "whole shards move" if best.micro_batches == 1 else f"of {best.micro_batches} parts that move"
    fields: list[tuple[str, object]] = [
        ("redundancy", f"{plural(best.redundancy, 'shard')} a group, {parts}"),
        (
            "checkpoint",
            f"{every_steps(best.checkpoint_steps)} ({duration(best.checkpoint_interval_s)} of training)",
        ),
        ("endures", f"{best.endured:,.0f} failures on average until a restart (closed form)"),
        ("mean depth", f"{interval(result.mean_depth, 2)} shards a step (simulated)"),
        ("time to train", _time(plan, best)),
    ]
    fields += [(f"saves against {words(other)}", _saving(plan, other, gpus)) for other in _rivals(plan)]
    return fields


def _rivals(plan: FleetPlan) -> list[Candidate]:
    """The best of each other way to run the fleet."""
    rivals = list(plan.replication[:1])
    whole = next((c for c in plan.alternatives if c.micro_batches == 1), None)
    if whole is not None and whole.key != plan.chosen.key and plan.chosen.micro_batches > 1:
        rivals.insert(0, whole)
    return [*rivals, plan.checkpoint_only]


def _time(plan: FleetPlan, candidate: Candidate) -> str:
    ratio = candidate.best_known_ratio
    if math.isinf(ratio):
        return _endless(candidate)
    assert candidate.simulated is not None
    return (
        f"{interval(candidate.simulated.ttt_ratio, 3)} times that without failures: "
        f"{duration(ratio * plan.ideal_s)} (simulated)"
    )


def _endless(candidate: Candidate) -> str:
    assert candidate.simulated is not None
    return endless(candidate.simulated)


def _saving(plan: FleetPlan, other: Candidate, gpus: int) -> str:
    saving = plan.saving(other, gpus)
    if math.isinf(other.best_known_ratio):
        return _endless(other)
    if math.isinf(plan.chosen.best_known_ratio):
        return f"nothing: it ends after {duration(other.best_known_ratio * plan.ideal_s)}"
    if abs(saving.ratio) <= plan.noise(other):
        return f"nothing that shows: {round(saving.days, 1) + 0.0:,.1f} days lie within the noise"
    if saving.ratio < 0:
        return f"nothing: it takes {duration(-saving.days * 86_400)} less"
    share = saving.ratio / other.best_known_ratio
    return f"{duration(saving.days * 86_400)} ({100 * share:.0f} %), {_large(saving.gpu_hours)} GPU-hours"


def _large(number: float) -> str:
    for scale, name in ((1e9, " billion"), (1e6, " million")):
        if number >= scale:
            return f"{number / scale:,.1f}{name}"
    return f"{number:,.0f}"


def plan_table(plan: FleetPlan) -> Table:
    """The best of what was simulated, policy by policy."""
    shown = list(plan.alternatives[:SHOWN_BEST])
    whole = [c for c in plan.alternatives if c.micro_batches == 1][:1]
    shown += [c for c in whole if c not in shown]
    shown += [*plan.replication[:SHOWN_REPLICATION], plan.checkpoint_only]
    columns = (
        *("way", "r", "m", "every\nsteps", "endures\nfailures", "depth\nshards"),
        *("predicted\nratio", "simulated\nratio ± 95 %", "longer\ndays"),
    )
    rows = [_row(plan, candidate) for candidate in shown]
    return rows_table("ways to run this fleet, simulated, best first", columns, rows)


def _row(plan: FleetPlan, candidate: Candidate) -> tuple[object, ...]:
    result = candidate.simulated
    assert result is not None
    never = not result.finished
    more = (candidate.best_known_ratio - plan.chosen.best_known_ratio) * plan.ideal_s / 86_400
    spare, alone = candidate.policy == "spare", candidate.policy == "checkpoint-only"
    return (
        "checkpoints" if alone else POLICY_WORDS[candidate.policy],
        "-" if alone else str(candidate.redundancy),
        str(candidate.micro_batches) if spare else "-",
        f"{candidate.checkpoint_steps:,}",
        f"{0 if alone else candidate.endured:,.0f}",
        f"{result.mean_depth.mean:.2f}",
        f"{candidate.ttt_ratio:.3f}",
        f"> {_given_up_ratio(result):.3g}" if never else interval(result.ttt_ratio, 3),
        "-"
        if never or candidate.key == plan.chosen.key or math.isinf(more)
        else f"{round(more, 1) + 0.0:,.1f}",
    )


def _given_up_ratio(result: LifeResult) -> float:
    return min(trial.ttt_ratio for trial in result.trials if not trial.finished)


def legend(plan: FleetPlan) -> list[str]:
    """What is a model, and what was confirmed by what."""
    life = plan.options.life
    spare = [c for c in plan.predicted if c.policy == "spare"]
    lines = [
        f"ratio: time to train over that without failures, {duration(plan.ideal_s)}.",
        "predicted: closed forms and jitter; no patches, no bursts, no failure while restarting"
        + (", no repair" if life.repair_s is not None else "")
        + (", no spares" if life.spares else "")
        + (", no racks" if life.domain_share > 0 else "")
        + ".",
        f"simulated: {plural(life.seeds, 'training')} each, {life.model} model; of "
        f"{plural(len(spare), 'way')} to run SPARe, {_were(len(plan.alternatives))} simulated.",
        "No fleet was measured.",
    ]
    close = plan.within_noise()
    if close:
        named = ", ".join(f"r = {c.redundancy} m = {c.micro_batches}" for c in close[:NAMED_CLOSE])
        more = f", and {len(close) - NAMED_CLOSE} more" if len(close) > NAMED_CLOSE else ""
        lines.append(f"Within the noise of the best: {named}{more}.")
    return lines


def _were(count: int) -> str:
    return f"{count:,} was" if count == 1 else f"{count:,} were"


def plan_json(plan: FleetPlan, gpus: int) -> dict[str, Any]:
    """The keys of ``prism spare plan --json``, but for its notes."""
    best = _candidate_json(plan, plan.chosen, gpus)
    others = [*plan.alternatives, *plan.replication, plan.checkpoint_only]
    keys = (
        *("redundancy", "checkpoint_interval_s", "micro_batches", "expected_endured_failures"),
        *(
            "mean_depth",
            "ttt_ratio",
            "checkpoint_steps",
            "predicted_ttt_ratio",
            "availability",
            "ci95",
            "finished",
        ),
    )
    return {
        **{key: best[key] for key in keys},
        "ideal_s": plan.ideal_s,
        "seeds": plan.options.life.seeds,
        "model": plan.options.life.model,
        "alternatives": [_candidate_json(plan, c, gpus) for c in others if c.key != plan.chosen.key],
    }


def _candidate_json(plan: FleetPlan, candidate: Candidate, gpus: int) -> dict[str, Any]:
    result = candidate.simulated
    assert result is not None
    saving = plan.saving(candidate, gpus)
    return {
        "policy": candidate.policy,
        "redundancy": candidate.redundancy,
        "micro_batches": candidate.micro_batches,
        "checkpoint_steps": candidate.checkpoint_steps,
        "checkpoint_interval_s": candidate.checkpoint_interval_s,
        "expected_endured_failures": 0.0 if candidate.policy == "checkpoint-only" else candidate.endured,
        "mean_depth": _finite(result.mean_depth.mean),
        "predicted_ttt_ratio": candidate.ttt_ratio,
        "ttt_ratio": _finite(candidate.best_known_ratio),
        "ci95": _finite(result.ttt_ratio.ci95) if result.finished else None,
        "availability": _finite(result.availability.mean),
        "finished": result.finished,
        "saved_days": _finite(saving.days),
        "saved_gpu_hours": _finite(saving.gpu_hours),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def curves(plan: FleetPlan) -> tuple[list[Curve], Point | None]:
    """What to draw: the chosen granularity, whole shards, replication; the chosen point, if it ends."""
    best = plan.chosen
    shown = dict.fromkeys((best.micro_batches, plan.options.granularities[0]))
    lines = [
        _curve(
            f"SPARe, m = {m}",
            [c for c in plan.predicted if c.policy == "spare" and c.micro_batches == m],
            [c for c in plan.alternatives if c.micro_batches == m],
        )
        for m in shown
    ]
    replicated = [c for c in plan.predicted if c.policy == "replication"]
    if replicated:
        lines.append(_curve("replication", replicated, plan.replication))
    return lines, None if math.isinf(best.best_known_ratio) else _simulated_point(best)


def _curve(label: str, predicted: Iterable[Candidate], simulated: Iterable[Candidate]) -> Curve:
    ended = [c for c in simulated if c.simulated is not None and c.simulated.finished]
    return Curve(
        label=label,
        predicted=[
            Point(
                redundancy=c.redundancy,
                ttt_ratio=c.ttt_ratio,
                availability=c.availability,
                compute=c.depth,
            )
            for c in predicted
        ],
        simulated=sorted((_simulated_point(c) for c in ended), key=lambda p: p.redundancy),
    )


def _simulated_point(candidate: Candidate) -> Point:
    result = candidate.simulated
    assert result is not None
    ci95 = result.ttt_ratio.ci95
    return Point(
        redundancy=candidate.redundancy,
        ttt_ratio=result.ttt_ratio.mean,
        availability=result.availability.mean,
        compute=result.mean_compute.mean,
        ci95=0.0 if math.isnan(ci95) else ci95,
    )


def plot_words(plan: FleetPlan, gpus: int) -> dict[str, str]:
    """What :func:`prismcore.spare.plot.draw` writes around the curves."""
    life = plan.options.life
    fails = f"a failure every {duration(life.mtbf_s)}" if life.trace is None else "failures of a trace"
    return {
        "title": f"{plural(gpus, 'GPU')} in {plural(life.groups, 'group')}, {fails}",
        "subtitle": f"shard {duration(life.layer_s)}, all-reduce {duration(life.chosen_allreduce_s())}, "
        f"restart {duration(life.restart_s)}, checkpoint {duration(life.checkpoint_s)}, "
        f"{plural(life.steps, 'step')}\n"
        f"lines: closed forms; marks: {plural(life.seeds, 'simulated training')} ({life.model} model), bars: "
        "95 % interval",
        "available": "% of time not restarting"
        if life.model == "published"
        else "% of time in work that lasts",
    }
