"""What lies in the folder is complete: whatever is killed, full, closed or damaged."""

import contextlib
import copy
import errno
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from checkpoint_training import Training, saved
from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.errors import CheckpointError
from prismcore.spare.runtime.checkpoints import Checkpoints

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:torch.distributed is disabled")]

PROCESS = Path(__file__).with_name("checkpoint_process.py")


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


def test_training_that_went_back_past_a_damaged_one_saves_again(tmp_path):
    with Checkpoints(tmp_path, keep=3) as checkpoints:
        for step in (10, 20):
            checkpoints.save(step, {"step": step})
        checkpoints.wait()
        (tmp_path / "step-000000020" / "__0_0.distcp").write_bytes(b"")
        with pytest.warns(UserWarning, match="passed over"):
            assert checkpoints.load({"step": 0}) == 10
        for step in (15, 20):
            checkpoints.save(step, {"step": step})
            assert checkpoints.wait().step == step
        assert checkpoints.latest() == 20
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[0].startswith("damaged-000000020-")
    assert names[1:] == ["step-000000010", "step-000000015", "step-000000020"]


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
