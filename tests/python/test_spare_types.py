"""Values of a wrong type, or of no sense, are a SpareError of one line, wherever they come in."""

import dataclasses
import math

import numpy as np
import pytest

from prismcore.errors import SpareError
from prismcore.spare import candidate, closed_form, failures, fleet, planner
from prismcore.spare import placement as places
from prismcore.spare.life import LifeOptions, endurance, simulate
from prismcore.spare.reorderer import Reorderer

#: No call takes any of these, whatever it takes.
BAD = ["x", b"x", 2.5j, {"a": 1}, object(), math.nan, 10**400, -(10**400), [["x"]], np.float64("nan")]

PLACED = places.golomb(31, 4)
SMALL = LifeOptions(groups=20, steps=5, seeds=1)


def life(name, value, **more):
    return dataclasses.replace(SMALL, **{name: value}, **more)


LIFE_FIELDS = [f.name for f in dataclasses.fields(LifeOptions)]
FLAGS = {"jitter_every_group", "record_events"}  # whatever is true or false
CALLS = {
    "golomb groups": lambda v: places.golomb(v, 2),
    "golomb redundancy": lambda v: places.golomb(20, v),
    "spread": lambda v: places.spread(20, v),
    "cyclic": lambda v: places.cyclic(v, 2),
    "replication": lambda v: places.replication(20, v),
    "random": lambda v: places.random(v, 2),
    "random seed": lambda v: places.random(20, 2, seed=v),
    "domains redundancy": lambda v: places.domains(v, [0, 0, 1, 1]),
    "domains": lambda v: places.domains(2, v),
    "custom": places.custom,
    "custom row": lambda v: places.custom([v, v]),
    "custom type": lambda v: places.custom([[v]]),
    "golomb_ruler": places.golomb_ruler,
    "groups_needed": places.groups_needed,
    "largest_redundancy": places.largest_redundancy,
    "fewest_hosts redundancy": lambda v: places.fewest_hosts_in_domain(v, [0, 1]),
    "fewest_hosts": lambda v: places.fewest_hosts_in_domain(1, v),
    "max_hosts": PLACED.max_hosts_in_domain,
    "reorderer": Reorderer,
    "reorderer micro-batches": lambda v: Reorderer(PLACED, micro_batches=v),
    "fail": lambda v: Reorderer(PLACED).fail(v),
    "fail one": lambda v: Reorderer(PLACED).fail([v]),
    "rejoin": lambda v: Reorderer(PLACED).rejoin(v),
    "work": lambda v: Reorderer(PLACED).work(v),
    "alive": lambda v: Reorderer(PLACED).alive(v),
    "owner": lambda v: Reorderer(PLACED).owner(v),
    "holder part": lambda v: Reorderer(PLACED).holder(0, v),
    "endurance": endurance,
    "endurance trials": lambda v: endurance(PLACED, trials=v),
    "endurance seed": lambda v: endurance(PLACED, seed=v),
    "endurance threads": lambda v: endurance(PLACED, threads=v),
    "endured": lambda v: closed_form.endured_failures(v, 2),
    "endured finite": lambda v: closed_form.endured_failures_finite(20, v),
    "depth bound": lambda v: closed_form.mean_depth_bound(20, v),
    "depth finite": lambda v: closed_form.mean_depth_finite(20, 2, v),
    "interval": lambda v: closed_form.best_checkpoint_interval_s(60, v, 60),
    "availability": lambda v: closed_form.availability(v, 1, 1, 1),
    "time_to_train": lambda v: closed_form.time_to_train(20, 2, mtbf_s=v),
    "checkpoint_steps": lambda v: closed_form.checkpoint_steps(60, v, 1, 1),
    "default steps": lambda v: closed_form.default_checkpoint_steps("spare", 20, 2, layer_s=v),
    "default policy": lambda v: closed_form.default_checkpoint_steps(v, 20, 2),
    "best_redundancy": closed_form.best_redundancy,
    "lifetime": failures.parse_lifetime,
    "trace": lambda v: simulate(life("trace", failures.FailureTrace(failures=v))),
    "trace group": lambda v: simulate(life("trace", failures.FailureTrace(failures=((v, 1),)))),
    "trace time": lambda v: simulate(life("trace", failures.FailureTrace(failures=((1, v),)))),
    "trace file": failures.FailureTrace.read_csv,
    "quirk": lambda v: simulate(life("quirks", {"one_layer_per_patch": v})),
    "paper_gpus": fleet.paper_gpus,
    "paper_mtbf_s": fleet.paper_mtbf_s,
    "check_gpus": lambda v: fleet.check_gpus(v, 3),
    "predict": lambda v: candidate.predict(SMALL, "spare", v),
    "predict policy": lambda v: candidate.predict(SMALL, v, 2),
    "plan life": lambda v: planner.plan(planner.PlanOptions(life=v)),
    "plan granularities": lambda v: planner.plan(planner.PlanOptions(life=SMALL, granularities=v)),
    "plan granularity": lambda v: planner.plan(planner.PlanOptions(life=SMALL, granularities=(v,))),
    "plan redundancy": lambda v: planner.plan(
        planner.PlanOptions(life=SMALL, granularities=(1,), redundancy=v)
    ),
    "divisors": planner.divisors,
}


def refused(call, value):
    with pytest.raises(SpareError) as caught:
        call(value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CALLS)
def test_no_call_takes_it(name):
    for value in BAD:
        refused(CALLS[name], value)


@pytest.mark.parametrize("name", sorted(set(LIFE_FIELDS) - FLAGS))
@pytest.mark.parametrize("policy", ["spare", "replication"])
def test_no_field_of_a_life_takes_it(name, policy):
    for value in BAD:
        if name == "quirks" and isinstance(value, dict):
            continue
        more = {} if name == "policy" else {"policy": policy}
        if name == "placement" and policy != "spare":
            continue  # not read
        if name in ("mtbf_s", "distribution") or value is not None:
            refused(lambda v, more=more: simulate(life(name, v, **more)), value)


def test_numbers_of_numpy_are_numbers():
    ours = simulate(life("groups", 20, redundancy=3, mtbf_s=300.0))
    theirs = simulate(life("groups", np.int64(20), redundancy=np.int32(3), mtbf_s=np.float32(300.0)))
    assert ours.trials == theirs.trials


def test_a_plan_without_checkpoints():
    found = planner.plan(planner.PlanOptions(life=life("checkpoint_steps", 0), granularities=(1,)))
    assert found.chosen.checkpoint_steps == 0
    assert found.chosen.checkpoint_interval_s == pytest.approx(
        5 * candidate.step_s(SMALL, found.chosen.depth)
    )


@pytest.mark.parametrize("field", ["seeds", "threads"])
@pytest.mark.parametrize("value", [0, -1])
def test_rounds_of_nothing(field, value):
    with pytest.raises(SpareError, match=f"{field} {value} found, expected a whole number from 1"):
        planner.simulate_in_rounds(life(field, value))
