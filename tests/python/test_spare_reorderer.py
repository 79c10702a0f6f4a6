import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spare_oracle import Model, feasible

from prismcore.errors import SpareError
from prismcore.spare import placement as places
from prismcore.spare.reorderer import Part, Reorderer

thorough = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def placements(draw, most=20):
    groups = draw(st.integers(1, most))
    redundancy = draw(st.integers(1, min(groups, 6)) | st.just(groups))
    kinds = ["random", "cyclic", "custom"]
    if groups % redundancy == 0:
        kinds.append("replication")
    if redundancy <= places.largest_redundancy(groups):
        kinds += ["golomb"] * 2
    if groups > redundancy**3:  # a rough bound on what the search finds
        kinds.append("spread")
    kind = draw(st.sampled_from(kinds))
    if kind == "random":
        return places.random(groups, redundancy, seed=draw(st.integers(0, 99)))
    if kind == "custom":  # the first types are no permutation
        stacks = places.random(groups, redundancy, seed=draw(st.integers(0, 99))).stacks()
        shuffle = np.random.default_rng(draw(st.integers(0, 99)))
        return places.custom(shuffle.permuted(stacks, axis=1))
    return getattr(places, kind)(groups, redundancy)


def some_of(groups, draw, most=3):
    chosen = draw(st.lists(st.sampled_from(groups), min_size=1, max_size=most, unique=True))
    return [int(g) for g in chosen]


@thorough
@given(placement=placements(), parts=st.sampled_from([1, 1, 2, 3, 8]), data=st.data())
def test_a_life_against_the_oracle(placement, parts, data):
    """Coverage, least depth, least change, wipe-out, patches and holders over random calls."""
    model = Model(Reorderer(placement, micro_batches=parts))
    for _ in range(data.draw(st.integers(1, 12), label="calls")):
        up = [g for g in model.everyone() if model.alive[g]]
        down = [g for g in model.everyone() if not model.alive[g]]
        calls = ["fail", "fail", "commit"] + ["rejoin"] * bool(down)
        call = data.draw(st.sampled_from(calls), label="call")
        if call == "commit":
            model.commit()
        elif call == "rejoin":
            model.rejoin(some_of(down, data.draw))
        elif model.fail(some_of(up, data.draw)).wipe_out:
            model.solver.restart()
            model.restart()


@thorough
@given(groups=st.integers(7, 30), parts=st.sampled_from([1, 2, 8]), seed=st.integers(0, 999))
def test_one_by_one_until_wipe_out(groups, parts, seed):
    redundancy = int(np.random.default_rng(seed).integers(1, places.largest_redundancy(groups) + 1))
    model = Model(Reorderer(places.golomb(groups, redundancy), micro_batches=parts))
    for group in np.random.default_rng(seed).permutation(groups):
        if model.fail([int(group)]).wipe_out:
            break
        if seed % 2:
            model.commit()
    else:
        pytest.fail("everybody failed and it was no wipe-out")


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("seed", range(8))
def test_long_lives_with_rejoins(seed, parts):
    """Prices of earlier repairs, duplicates of several holders, groups back within a step."""
    draw = np.random.default_rng(seed)
    groups, redundancy = [(31, 6), (45, 5), (40, 8), (36, 36)][seed % 4]
    make = places.golomb if redundancy < 8 else places.random
    model = Model(Reorderer(make(groups, redundancy), micro_batches=parts))
    for _ in range(60):
        up, down = (np.flatnonzero(np.array(model.alive) == is_up) for is_up in (True, False))
        if len(down) and draw.random() < (0.2 if len(up) > groups // 3 else 0.6):
            model.rejoin(draw.choice(down, size=1).tolist())
        elif model.fail(draw.choice(up, size=1).tolist()).wipe_out:
            model.solver.restart()
            model.restart()
        if draw.random() < 0.3:
            model.commit()


def test_a_patch_is_lost_with_its_group_even_if_that_comes_back():
    """One step: group 6 patches type 0, fails, re-joins; when the next holder fails too, type 0 is to be
    computed again although group 6 hosts it and is up."""
    model = Model(Reorderer(places.golomb(7, 3)))
    patcher = int(model.fail([0]).patches[0, 0])
    model.fail([patcher])
    model.rejoin([patcher])
    plan = model.fail([model.solver.holder(0)])
    assert not plan.wipe_out
    assert 0 in plan.patches[:, 1]


@given(seed=st.integers(0, 999), parts=st.sampled_from([1, 3]))
def test_equal_calls_give_equal_plans(seed, parts):
    draw = np.random.default_rng(seed)
    first, second = (Reorderer(places.golomb(60, 5), micro_batches=parts) for _ in range(2))
    assert first.digest == second.digest
    order = draw.permutation(60)
    for at in range(0, 24, 3):
        plan = first.fail(order[at : at + 3])
        same = second.fail(order[at : at + 3][::-1].tolist())
        assert plan == same
        assert (plan.moves == same.moves).all()
        assert (plan.patches == same.patches).all()
        if plan.wipe_out:
            break
        if draw.random() < 0.5:
            first.commit()
            second.commit()
    assert first.digest == second.digest
    assert first.wiped_out == second.wiped_out
    first.restart()
    assert first.digest == Reorderer(places.golomb(60, 5), micro_batches=parts).digest


def test_digests_tell_different_histories_apart():
    def after(*groups, parts=1, commit=False):
        solver = Reorderer(places.golomb(60, 5), micro_batches=parts)
        for group in groups:
            solver.fail(group)
            if commit:
                solver.commit()
        return solver.digest

    digests = [after(), after(1), after(2), after(1, 2), after(2, 1), after(1, parts=2)]
    digests.append(after(1, commit=True))
    assert len(set(digests)) == len(digests)


def test_wipe_out_is_exactly_an_infeasible_flow():
    """The definition by hosts and the one by flow agree (r slots of each survivor are its r types)."""
    placement = places.golomb(13, 4)
    stacks = placement.stacks()
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(200):
        alive = rng.random(13) < 0.5
        lost = any(not alive[hosts].any() for hosts in placement.hosts())
        assert lost != feasible(stacks, alive, 4, 1)
        seen.add(lost)
    assert seen == {True, False}


@pytest.mark.parametrize("parts", [1, 4])
def test_one_group(parts):
    solver = Reorderer(places.golomb(1, 1), micro_batches=parts)
    assert solver.work(0) == [Part(0, p) for p in range(parts)]
    plan = solver.fail(0)
    assert plan.wipe_out
    assert plan.lost_types == (0,)
    assert plan.survivors == 0
    solver.restart()
    assert solver.survivors == 1
    assert solver.owner(0) == 0


@pytest.mark.parametrize("parts", [1, 4])
def test_without_redundancy_every_failure_wipes_out(parts):
    solver = Reorderer(places.golomb(5, 1), micro_batches=parts)
    assert solver.fail([3]).lost_types == (3,)


@pytest.mark.parametrize("parts", [1, 4])
def test_everybody_hosts_everything(parts):
    """r = N: only the loss of all wipes out, and the depth is ceil(N m / survivors)."""
    solver = Reorderer(places.cyclic(6, 6), micro_batches=parts)
    for lost in range(1, 6):
        plan = solver.fail(lost)
        assert plan.depth == -(-6 * parts // (6 - lost))
    assert solver.fail(0).lost_types == tuple(range(6))


def test_all_at_once():
    plan = Reorderer(places.golomb(20, 3), micro_batches=2).fail(range(20))
    assert plan.outcome == "wipe_out"
    assert plan.lost_types == tuple(range(20))
    assert plan.survivors == 0


def test_nobody_fails():
    solver = Reorderer(places.golomb(20, 3))
    plan = solver.fail([])
    assert (plan.outcome, plan.depth, plan.survivors, plan.new_work) == ("kept", 1, 20, 0)


def test_a_failure_inside_the_running_step():
    """What the dead held is lost again, what a survivor patched is not."""
    solver = Reorderer(places.golomb(7, 3))
    first = solver.fail(0)
    (patcher, lost, _) = first.patches[0].tolist()
    assert lost == 0
    assert solver.holder(0) == patcher
    again = solver.fail(patcher)
    assert sorted(again.patches[:, 1].tolist()) == sorted([0, patcher])
    solver.commit()
    assert (solver.holders() == solver.owners()).all()


def test_a_stale_plan_does_not_show_a_newer_layout():
    solver = Reorderer(places.golomb(20, 3), micro_batches=2)
    plan = solver.fail(1)
    work = plan.work(2)
    solver.commit()
    assert plan.work(2) == work
    patches = plan.patches.copy()
    solver.fail(2)
    with pytest.raises(SpareError, match="newest plan"):
        plan.work(2)
    assert (plan.patches == patches).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.fail(1), "found group 1, which is down already"),
        (lambda s: s.rejoin(2), "found group 2, which is up already"),
        (lambda s: s.fail(20), "found group 20, expected 0 to 19"),
        (lambda s: s.fail(-1), "found group -1, expected 0 to 19"),
        (lambda s: s.fail([3, 4, 3]), "found group 3 twice"),
        (lambda s: s.rejoin([1, 1]), "found group 1 twice"),
        (lambda s: s.rejoin([1, 2]), "found group 2, which is up"),
        (lambda s: s.fail([3, 1]), "found group 1, which is down"),
        (lambda s: s.fail(1 << 40), "32-bit"),
        (lambda s: s.fail([0.5]), "expected one row of integers"),
        (lambda s: s.work(20), "found 20, expected 0 to 19"),
        (lambda s: s.owner(0, 2), "found 2, expected 0 to 1"),
    ],
)
def test_bad_calls_are_one_line_and_change_nothing(call, message):
    solver = Reorderer(places.golomb(20, 3), micro_batches=2)
    plan = solver.fail(1)
    with pytest.raises(SpareError, match=message) as caught:
        call(solver)
    assert "\n" not in str(caught.value)
    assert solver.digest == plan.digest
    assert solver.survivors == 19
    same = Reorderer(places.golomb(20, 3), micro_batches=2)
    same.fail(1)
    assert solver.fail([3, 5]) == same.fail([5, 3])


@pytest.mark.parametrize("call", ["fail", "rejoin", "work", "owner", "owners", "holders", "commit"])
def test_after_a_wipe_out_only_a_restart(call):
    solver = Reorderer(places.golomb(7, 1))
    solver.fail(0)
    with pytest.raises(SpareError, match="restart"):
        getattr(solver, call)(*([] if call in ("owners", "holders", "commit") else [1]))
    solver.restart()
    assert solver.depth == 1
    assert not solver.wiped_out


def test_micro_batches_below_one():
    with pytest.raises(SpareError, match="found 0 micro-batches"):
        Reorderer(places.golomb(7, 1), micro_batches=0)


@pytest.mark.parametrize(
    ("redundancy", "parts", "most"), [(9, 1, 2.1), (9, 8, 1.45), (20, 8, 1.85), (9, 16, 1.42), (3, 8, 1.30)]
)
def test_mean_depth_until_wipe_out(redundancy, parts, most):
    """Mean over the endured failures of 600 groups, then over lives; in shards."""
    solver = Reorderer(places.golomb(600, redundancy), micro_batches=parts)
    lives = []
    for seed in range(40):
        solver.restart()
        depths = []
        for group in np.random.default_rng(seed).permutation(600):
            plan = solver.fail(int(group))
            if plan.wipe_out:
                break
            depths.append(plan.depth / parts)
            solver.commit()
        lives.append(np.mean(depths))
    assert np.mean(lives) < most


def test_many_groups_rejoin_at_once():
    # Each one alone would cost a pass over all groups.
    groups = 100_000
    solver = Reorderer(places.golomb(groups, 4))
    lost = np.arange(0, groups, 40)
    solver.fail(lost)
    solver.commit()
    plan = solver.rejoin(lost)
    assert (plan.depth, plan.survivors) == (1, groups)
    assert (np.bincount(solver.owners().ravel(), minlength=groups) == 1).all()
