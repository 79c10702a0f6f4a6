"""Checkpoints: what is loaded is what was saved, and what is there is complete."""

import dataclasses
import os
import shutil
import threading
from types import MappingProxyType

import numpy as np
import pytest
import torch
from checkpoint_training import Training, bits, saved
from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.errors import CheckpointError, SpareError
from prismcore.spare.life import LifeOptions
from prismcore.spare.planner import PlanOptions, plan
from prismcore.spare.runtime.checkpoint_folder import CheckpointFolder, Draft
from prismcore.spare.runtime.checkpoints import Checkpoints

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:Validating sparse"),
]

# --- what is loaded is what was saved


@pytest.mark.parametrize("steps_before", [0, 3])
@pytest.mark.parametrize("steps_there", [0, 2])
def test_a_loaded_training_goes_on_bit_by_bit(tmp_path, steps_before, steps_there):
    assert not torch.distributed.is_initialized()
    first = Training(seed=1)
    for _ in range(steps_before):
        first.step()
    there = first.bits()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(steps_before, first.state())
        for _ in range(3):
            first.step()
        checkpoints.wait()
        second = Training(seed=2)
        for _ in range(steps_there):
            second.step()
        parameters = [p.data_ptr() for p in second.model.parameters()]
        seen = second.progress
        assert checkpoints.load(second.state()) == steps_before
    assert second.bits() == there
    assert [p.data_ptr() for p in second.model.parameters()] == parameters
    assert second.progress is seen
    for _ in range(3):
        second.step()
    assert second.bits() == first.bits()


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
tensors = st.builds(
    lambda shape, dtype, seed: torch.randint(0, 255, shape, generator=torch.Generator().manual_seed(seed)).to(
        dtype
    ),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.sampled_from(DTYPES),
    st.integers(0, 1000),
)
leaves = st.one_of(
    tensors,
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.builds(np.arange, st.integers(0, 5)),
)
keys = st.one_of(
    st.text(max_size=4).filter(lambda key: "." not in key and not key.isdigit()), st.integers(0, 9)
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
    ),
    max_leaves=8,
)


@settings(max_examples=40)
@given(
    state=st.dictionaries(st.text(max_size=4), trees, max_size=4).filter(
        lambda s: not any("." in k for k in s)
    )
)
def test_any_values_come_back(tmp_path_factory, state):
    folder = tmp_path_factory.mktemp("values")
    saved(folder, all=state)
    fresh = {"all": None}
    with Checkpoints(folder) as checkpoints:
        checkpoints.load(fresh)
    assert bits(fresh["all"]) == bits(state)
    shutil.rmtree(folder)


def test_tensors_inside_of_objects_come_back(tmp_path):
    inside = MappingProxyType({"a": torch.ones(3)})
    shared = torch.arange(4)
    holder = Holder(tensor=torch.eye(2), more=[shared, shared])
    saved(tmp_path, holder=[holder], inside=dict(inside), sparse=torch.eye(3).to_sparse())
    fresh = {"holder": None, "inside": {}, "sparse": None}
    Checkpoints(tmp_path).load(fresh)
    found = fresh["holder"][0]
    assert bits(found.tensor) == bits(torch.eye(2))
    assert found.more[0] is found.more[1]
    assert bits(fresh["inside"]) == bits(dict(inside))
    assert bits(fresh["sparse"].to_dense()) == bits(torch.eye(3))


@dataclasses.dataclass
class Holder:
    tensor: object
    more: object


def test_a_save_is_of_the_moment_it_was_called(tmp_path, monkeypatch):
    go_on = threading.Event()
    begin = CheckpointFolder.begin
    monkeypatch.setattr(CheckpointFolder, "begin", lambda self, step: go_on.wait() and begin(self, step))
    weights, values = torch.ones(1000), {"list": [1], "tensors": [torch.zeros(2)]}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"weights": weights, "values": values})
        assert checkpoints.poll() is None
        weights.fill_(7)
        values["list"].append(2)
        values["tensors"][0].fill_(7)
        go_on.set()
        done = checkpoints.wait()
        assert (done.step, done.path) == (1, tmp_path / "step-000000001")
        assert done.bytes == sum(f.stat().st_size for f in done.path.iterdir() if f.name != "checkpoint.json")
        assert 0 < done.blocked_ms <= done.cost_ms
        assert checkpoints.poll() is None
        checkpoints.load({"weights": weights, "values": values})
    assert weights.eq(1).all()
    assert bits(values) == bits({"list": [1], "tensors": [torch.zeros(2)]})


def test_only_what_is_asked_for_is_loaded(tmp_path):
    saved(tmp_path, one=torch.ones(2), two=2)
    state = {"two": 0}
    assert Checkpoints(tmp_path).load(state) == 5
    assert state == {"two": 2}


# --- one at a time, some stay


def test_at_most_one_save_is_in_flight(tmp_path, monkeypatch):
    first_may_end = threading.Event()
    log = []
    begin, close = CheckpointFolder.begin, Draft.close

    def slow_begin(self, step):
        log.append("begin")
        first_may_end.wait()
        return begin(self, step)

    monkeypatch.setattr(CheckpointFolder, "begin", slow_begin)
    monkeypatch.setattr(Draft, "close", lambda self: (close(self), log.append("end")))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, {"a": 1})
        log.append("called")
        timer = threading.Timer(0.2, first_may_end.set)
        timer.start()
        checkpoints.save(2, {"a": 2})
        checkpoints.wait()
        timer.join()
    assert [word for word in log if word != "called"] == ["begin", "end"] * 2
    assert log.index("called") < log.index("end")
    assert checkpoints.latest() == 2


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_the_newest_stay(tmp_path, keep):
    (tmp_path / "notes.txt").write_text("not ours")
    with Checkpoints(tmp_path, keep=keep) as checkpoints:
        assert checkpoints.latest() is None
        for step in (10, 20, 30, 1_000_000_000, 1_000_000_001):
            checkpoints.save(step, {"step": step})
            assert checkpoints.wait().step == step
            assert checkpoints.latest() == step
            state = {"step": 0}
            assert checkpoints.load(state) == step
            assert state["step"] == step
    names = {path.name for path in tmp_path.iterdir()}
    stay = [10, 20, 30, 1_000_000_000, 1_000_000_001][-keep:]
    assert names == {"notes.txt", *(f"step-{step:09d}" for step in stay)}


def test_going_back_needs_a_word(tmp_path):
    with Checkpoints(tmp_path, keep=5) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(step, {"branch": "old"})
        checkpoints.wait()
        assert checkpoints.load({"branch": ""}, step=1) == 1
        for step in (2, 3):
            checkpoints.save(step, {"branch": "new"})
            with pytest.raises(CheckpointError, match=r"step 3 found.*discard_after"):
                checkpoints.wait()
        checkpoints.discard_after(1)
        assert checkpoints.latest() == 1
        checkpoints.save(2, {"branch": "new"})
        checkpoints.wait()
        state = {"branch": ""}
        assert (checkpoints.load(state), state["branch"]) == (2, "new")


def test_nothing_grows(tmp_path):
    training = Training(seed=1)
    counts = []
    with Checkpoints(tmp_path) as checkpoints:
        for step in range(12):
            training.step()
            checkpoints.save(step, training.state())
            checkpoints.wait()
            checkpoints.load(training.state())
            counts.append((len(os.listdir("/proc/self/fd")), threading.active_count()))
    assert len(set(counts[2:])) == 1
    assert threading.active_count() < counts[-1][1]


# --- what does not fit


def linear(*shape, **options):
    return torch.nn.Linear(*shape, **options)


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (lambda: {"model": linear(2, 4)}, r"model.weight is a torch.float32 of \[3, 2\] in it.*\[4, 2\]"),
        (lambda: {"model": linear(2, 3, dtype=torch.float64)}, "torch.float32.*torch.float64"),
        (lambda: {"model": linear(2, 3, bias=False)}, "model.bias found in it, not in the module"),
        (lambda: {"model": torch.nn.Sequential(linear(2, 3))}, "model.0.weight not found"),
        (lambda: {"model": {"weight": torch.ones(3, 2), "more": torch.ones(1)}}, "model.more not found"),
        (lambda: {"network": linear(2, 3)}, "no state 'network' found; it has count, model"),
        (lambda: MappingProxyType({"count": 3}), "give a dict"),
    ],
)
def test_another_state_is_refused(tmp_path, there, expected):
    saved(tmp_path, model=linear(2, 3), count=7)
    # First what fits, then what does not: nothing of it may change.
    state = there()
    fits = {"count": 1, **state} if isinstance(state, dict) else state
    before = {k: bits(v.state_dict() if hasattr(v, "state_dict") else v) for k, v in fits.items()}
    with pytest.raises(CheckpointError, match=expected):
        Checkpoints(tmp_path).load(fits)
    assert before == {k: bits(v.state_dict() if hasattr(v, "state_dict") else v) for k, v in fits.items()}


def test_what_cannot_be_saved(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        for state, words in [
            ({"f": lambda: 0}, "state 'f' cannot be saved"),
            ({"a": threading.Lock()}, "state 'a' cannot be saved"),
            ({1: 2}, "key 1 found, expected a string"),
            ({"a": {"b": torch.ones(1), "b.c": 1}, "a.b": torch.ones(1)}, "two tensors of name 'a.b'"),
        ]:
            with pytest.raises(CheckpointError, match=words):
                checkpoints.save(1, state)
        with pytest.raises(SpareError, match="step -1 found"):
            checkpoints.save(-1, {})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(CheckpointError, match="not begun"):
        checkpoints.save(1, {})


@pytest.mark.parametrize(
    "options",
    [{"every_steps": 0}, {"every_steps": 1.5}, {"every_s": 0.0}, {"every_s": float("nan")}, {"keep": 0}],
)
def test_options_that_cannot_be(tmp_path, options):
    with pytest.raises(SpareError, match="found, expected"):
        Checkpoints(tmp_path, **options)


def test_a_group_that_is_none(tmp_path):
    with pytest.raises(CheckpointError, match=r"expected one of torch\.distributed\.new_group"):
        Checkpoints(tmp_path, group=object())


# --- when


@given(every=st.integers(1, 50), first=st.integers(0, 100))
def test_due_by_steps_whoever_asks(every, first):
    checkpoints = Checkpoints("none", every_steps=every)
    due = [step for step in range(first, first + 200) if checkpoints.due(step, 0.0)]
    assert due == [step for step in range(first, first + 200) if step and step % every == 0]


def test_due_by_seconds():
    checkpoints = Checkpoints("none", every_s=10)
    asked = [(0, 100.0), (1, 109.9), (2, 110.0), (2, 119.0), (3, 119.0), (4, 120.0), (5, 145.0), (6, 146.0)]
    assert [checkpoints.due(*at) for at in asked] == [False, False, True, True, False, True, True, False]


def test_due_by_both_and_by_neither():
    both = Checkpoints("none", every_s=10, every_steps=4)
    asked = [(0, 0.0), (3, 11.0), (4, 12.0), (5, 21.5), (6, 22.5)]
    assert [both.due(*at) for at in asked] == [False, True, True, False, True]
    neither = Checkpoints("none")
    assert not any(neither.due(step, step * 1e6) for step in range(50))


def test_due_as_planned():
    life = LifeOptions(groups=60, steps=400, mtbf_s=2_000, restart_s=1_200, seeds=1, threads=1)
    chosen = plan(PlanOptions(life=life, granularities=(4,), redundancy=3))
    every = chosen.chosen.checkpoint_steps
    assert every > 1
    checkpoints = Checkpoints.from_plan("none", chosen)
    assert [s for s in range(1, 400) if checkpoints.due(s, 0.0)] == list(range(every, 400, every))
    without = dataclasses.replace(chosen, chosen=dataclasses.replace(chosen.chosen, checkpoint_steps=0))
    assert not any(Checkpoints.from_plan("none", without).due(s, 0.0) for s in range(400))
