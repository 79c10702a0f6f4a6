"""Checkpoints: what is loaded is what was saved, and what is there is complete."""

import contextlib
import copy
import dataclasses
import errno
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.errors import CheckpointError, SpareError
from prismcore.spare.life import LifeOptions
from prismcore.spare.planner import PlanOptions, plan

torch = pytest.importorskip("torch")

from prismcore.spare.runtime.checkpoint_folder import CheckpointFolder, Draft  # noqa: E402
from prismcore.spare.runtime.checkpoints import Checkpoints  # noqa: E402
from prismcore.spare.runtime.random_states import RandomStates  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled", "ignore:Validating sparse"),
]

PROCESS = Path(__file__).with_name("checkpoint_process.py")


def bits(value):
    """Equal exactly where the values are the same to the last bit, and of the same types."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().contiguous().reshape(-1).view(torch.uint8) if value.numel() else []
        return ("tensor", str(value.dtype), tuple(value.shape), bytes(flat))
    if isinstance(value, np.ndarray):
        return ("array", value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return (type(value), [(k, bits(v)) for k, v in value.items()])
    if isinstance(value, (list, tuple)):
        return (type(value), [bits(v) for v in value])
    return (type(value), repr(value))


class Training:
    """A run with all that is hard to restore: dropout, momentum, a schedule, data order, plain values."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(12, 40), torch.nn.BatchNorm1d(40), torch.nn.Dropout(0.3), torch.nn.Linear(40, 3)
        )
        self.optimizer = torch.optim.AdamW(
            [{"params": self.model[0].parameters(), "lr": 0.1}, {"params": self.model[3].parameters()}]
        )
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10)
        self.progress = {"seen": [], "best": None}

    def state(self):
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "random": RandomStates(),
            "progress": self.progress,
        }

    def step(self):
        inputs = torch.randn(6, 12) * random.random() + float(np.random.rand())
        loss = self.model(inputs).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.progress["seen"].append(loss.item())
        self.progress["best"] = min(self.progress["seen"])

    def bits(self):
        held = self.state().items()
        return {k: bits(v.state_dict() if hasattr(v, "state_dict") else v) for k, v in held}


def saved(folder, step=5, **state):
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(step, state)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Of the processes that save and are killed, by role; all at once, torch takes long to import."""
    folder = tmp_path_factory.mktemp("processes")
    roles = {
        name: folder / name for name in ("kill_at_every_file_operation", "kill_at_any_moment", "two_ranks")
    }
    disk = folder / "full_disk"
    for path in (*roles.values(), disk):
        path.mkdir()
    mount = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mount += ['mount -t tmpfs -o size=300k none "$0" && exec "$@"', str(disk)]
    if shutil.which("unshare") is None or subprocess.run([*mount, "true"], check=False).returncode:
        mount = []  # not allowed here
    else:
        roles["full_disk"] = disk
    command = [*mount, sys.executable, str(PROCESS), *(f"{role}={path}" for role, path in roles.items())]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    found = {"stderr": run.stderr}
    for line in map(json.loads, run.stdout.splitlines()):
        if "role" in line:
            found[line["role"]] = latest = []
        else:
            latest.append(line)
    return found


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


# --- killed, full, unwritable, damaged


def test_a_kill_at_any_file_operation_leaves_complete_ones(reports):
    found = reports["kill_at_every_file_operation"]
    assert [report["killed"] for report in found] == [True] * (len(found) - 1) + [False]
    assert sum(any(".saving" in name for name in r["hidden"]) for r in found) > 8, (
        found
    )  # kills did hit saves
    assert any(name.startswith(".removing") for r in found for name in r["hidden"])
    assert {r["latest"] for r in found} == {1, 2}
    check_kills(found)


def test_a_kill_at_any_moment_leaves_complete_ones(reports):
    found = reports["kill_at_any_moment"]
    assert len(found) == 9
    check_kills(found)


def check_kills(found):
    for report in found:
        assert report["right"], report
        assert report["told"] <= report["latest"] <= report["told"] + 1, report
        assert report["clean"] is True, report


@contextlib.contextmanager
def files_of_at_most(size):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_cannot_be_written_is_an_error_at_the_next_call(tmp_path):
    training = Training(seed=1)
    training.step()
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, training.state())
        checkpoints.wait()
        before = training.bits()
        with files_of_at_most(3_000):
            checkpoints.save(2, training.state())
            with pytest.raises(
                CheckpointError, match=rf"step 2 not written: \[Errno {errno.EFBIG}\].*distcp"
            ):
                checkpoints.wait()
        assert training.bits() == before
        assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]
        # The error waits for the next call, and does not stop the next save.
        with files_of_at_most(3_000):
            checkpoints.save(3, training.state())
            while not checkpoints._saving.done():
                pass
        with pytest.raises(CheckpointError, match="step 3 not written"):
            checkpoints.save(4, training.state())
        assert checkpoints.wait().step == 4
        assert checkpoints.latest() == 4


def test_a_full_disk(reports):
    if "full_disk" not in reports:
        pytest.skip("no file system may be mounted here")
    (found,) = reports["full_disk"]
    assert f"checkpoint of step 2 not written: [Errno {errno.ENOSPC}]" in found["error"]


def test_a_folder_that_cannot_be(tmp_path):
    (tmp_path / "file").write_text("")
    weights = torch.ones(3)
    with Checkpoints(tmp_path / "file" / "checkpoints") as checkpoints:
        checkpoints.save(1, {"weights": weights})
        with pytest.raises(CheckpointError, match="Not a directory"):
            checkpoints.wait()
        with pytest.raises(CheckpointError, match="Not a directory"):
            checkpoints.latest()
    assert weights.eq(1).all()


def test_a_folder_that_may_not_be_written(tmp_path):
    if os.geteuid() == 0:
        folder, word = Path("/proc/prism"), "No such file"  # nothing holds root back but such
    else:
        folder, word = tmp_path / "closed", "Permission denied"
        folder.mkdir(mode=0o500)
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(1, {"a": 1})
        with pytest.raises(CheckpointError, match=word):
            checkpoints.wait()


@pytest.fixture(scope="module")
def one_saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one")
    training = Training(seed=1)
    training.step()
    saved(folder, **training.state())
    return folder


FILES = ["checkpoint.json", ".metadata", "__0_0.distcp"]


@settings(max_examples=30)
@given(name=st.sampled_from(FILES), where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_one_wrong_bit_is_found(one_saved, name, where, bit):
    path = one_saved / "step-000000005" / name
    whole = path.read_bytes()
    wrong = bytearray(whole)
    wrong[int(where * len(wrong))] ^= 1 << bit
    path.write_bytes(wrong)
    try:
        check_refused(one_saved, "step-000000005")
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["gone", "empty", "shorter"])
def test_a_damaged_one_is_passed_over(tmp_path, one_saved, name, how):
    folder = tmp_path / "checkpoints"
    shutil.copytree(one_saved, folder)
    shutil.copytree(one_saved / "step-000000005", folder / "step-000000006")
    record = folder / "step-000000006" / "checkpoint.json"
    record.write_text(record.read_text().replace('"step": 5', '"step": 6'))
    assert Checkpoints(folder).latest() == 6
    path = folder / "step-000000006" / name
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: 0 if how == "empty" else -1])
    check_refused(folder, rf"{name}.*other steps there: 5", step=6)
    with pytest.warns(UserWarning, match="passed over"):
        assert Checkpoints(folder).latest() == 5
    with pytest.warns(UserWarning, match="passed over"):
        assert Checkpoints(folder).load(Training(seed=2).state()) == 5


def check_refused(folder, match, step=5):
    training = Training(seed=2)
    training.step()
    before = copy.deepcopy(training.bits())
    with pytest.raises(CheckpointError, match=match):
        Checkpoints(folder).load(training.state(), step=step)
    assert training.bits() == before


def test_what_is_not_there(tmp_path, one_saved):
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        Checkpoints(tmp_path / "none").load({})
    check_refused(one_saved, r"no checkpoint of step 4 found \(other steps there: 5\)", step=4)


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


# --- ranks of a group


def test_two_ranks_save_what_is_sharded_and_what_is_their_own(reports):
    assert len(reports["two_ranks"]) == 2, reports["stderr"]
    first, second = sorted(reports["two_ranks"], key=lambda report: report["own"])
    for rank, report in enumerate((first, second)):
        assert report["step"] == 2
        assert report["own"] == [[rank] * 3, rank, [rank + 1] * 4]
        found, expected = report["losses"]
        assert found == expected
        assert "state 'value' cannot be saved: RuntimeError: not ready" in report["unready"]
        assert report["latest"] == 6
        assert "__1_0.distcp: CRC-32" in report["damaged"]
        assert report["untouched"]
    assert first["losses"] != second["losses"]  # their random numbers differ
    assert first["bytes"] == second["bytes"] > 0
    assert "rank 1 of the group: " in first["unready"]
    assert "do not all answer" in first["alone"]
    assert first["latest_alone"] == 6
    assert first["names"] == ["step-000000002", "step-000000006"]
