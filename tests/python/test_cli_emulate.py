"""``prism emulate`` as a user meets it, above all when things go wrong: in bounded time, with the rank's
name, and without anything left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import jobs
import pytest
from test_cli import EMULATE_KEYS, EMULATE_RANK_KEYS, ENVIRONMENT, inside, prism
from test_cli_collect import INTERRUPTIBLE, runs_here

pytestmark = pytest.mark.torch

PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist

how = sys.argv[1:]
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("arguments", how, flush=True)
size = 128 if "large" in how else 64
hog = []
try:
    for step in range(10):
        if step == 1 and (rank == 0 or "late" not in how):
            if {"crash", "finally", "cleanup"} & set(how):
                raise RuntimeError("this rank had enough")
            if "exit" in how:
                sys.exit(3)
            if "end" in how:
                break
            if "kill" in how:
                os.kill(os.getpid(), 9)
            if "fork" in how:
                if os.fork() == 0:
                    sys.exit(0)
                os.wait()
            if "print" in how:
                print("x" * 999 * 10000, flush=True)
            if "sleep" in how:
                with open(f"asleep{rank}", "w") as file:
                    print(os.getpid(), file=file)
                time.sleep(600)
            if "poll" in how:
                open(f"asleep{rank}", "w").close()
            while "poll" in how:
                torch.cuda.current_stream().query()
        for _ in range(30000 if "many" in how else 1):
            hog = model.weight + 1
        model(torch.ones(8, size if step == 2 else 64, device="cuda")[:, :64]).sum().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        if "hog" in how:
            torch.empty(100 << 30, dtype=torch.uint8, device="cuda")
finally:
    if "finally" in how:
        dist.destroy_process_group()
    if "cleanup" in how:
        torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A program and graphs of it."""
    folder = tmp_path_factory.mktemp("emulate")
    (folder / "train.py").write_text(PROGRAM)
    for name, size, how in (("job", 2, ()), ("many", 2, ("many",)), ("hog", 1, ("hog",))):
        command = ("collect", "--world-size", size, "--ranks", "all", "-o", f"{name}.prism")
        done = prism(*command, "--keep-partial", "--", "train.py", *how, cwd=folder)
        assert done.returncode == (4 if how == ("hog",) else 0), done.stderr
    return folder


@pytest.fixture
def clean(folder):
    """Nothing runs in the folder after the test, and no file is new."""
    files = set(os.listdir(folder))
    yield folder
    assert not running_in(folder)
    for name in [f for f in os.listdir(folder) if f.startswith("asleep")]:
        (folder / name).unlink()
    assert set(os.listdir(folder)) == files


def running_in(folder):
    return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and runs_here(pid, folder)]


def emulate(folder, *how, job="job", flags=(), sandbox="0-1", **kwargs):
    command = ("emulate", f"{job}.prism", "--sandbox", sandbox, *flags, "--", "train.py", *how)
    return prism(*command, cwd=folder, **kwargs)


def test_json(clean):
    slow = ("--slow-rank", "0:1.5", "--slow-link", "0-1:2", "--jitter", "7:0.1")
    done = emulate(clean, sandbox="1", flags=("--json", *slow))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    report = json.loads(done.stdout)  # nothing of the program's own output
    assert list(report) == EMULATE_KEYS
    assert list(report["sandbox"]) == ["1"]
    assert list(report["sandbox"]["1"]) == EMULATE_RANK_KEYS
    replayed = inside("replay", clean / "job.prism", "--json", "--ranks", "1", *slow)
    rank = json.loads(replayed.stdout)["ranks"]["1"]
    assert report["sandbox"]["1"]["iteration_time_ns"] == rank["iteration_time_ns"]
    assert report["sandbox"]["1"]["peak_allocated_bytes"] == rank["peak_allocated_bytes"]
    median = json.loads(replayed.stdout)["median_iteration_time_ns"]
    assert report["replay_median_iteration_time_ns"] == report["median_iteration_time_ns"] == median
    assert (report["ghosts"], report["diverged"]) == (1, False)
    assert 0 < report["bootstrap_s"] < report["wall_time_s"]


def test_a_ghost_and_a_sandbox_that_are_made_to_fail(clean):
    replayed = json.loads(inside("replay", clean / "job.prism", "--json").stdout)
    first, second = replayed["iteration_time_ns"][:2]
    at = f"{first + second // 2}ns"
    for sandbox in ("0", "0-1"):
        begin = time.monotonic()
        done = emulate(clean, sandbox=sandbox, flags=("--json", "--fail-ranks", f"1@{at}"))
        assert (done.returncode, done.stdout) == (3, ""), done.stderr
        assert f"failed: rank 1 at {at.removesuffix('ns')} ns" in done.stderr
        assert "rank 0 on communicator" in done.stderr
        assert "all_reduce" in done.stderr
        assert " at train.py" in done.stderr
        assert "for rank 1" in done.stderr
        assert time.monotonic() - begin < 120
    late = emulate(clean, sandbox="0-1", flags=("--json", "--fail-ranks", "1@1000s"))
    assert late.returncode == 0, late.stderr


def test_on_the_wall_clock(clean):
    done = emulate(clean, flags=("--json", "--clock", "wall"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert list(report) == EMULATE_KEYS
    assert list(report["release_error_ns"]) == ["p50", "p99", "max"]
    assert report["paced_answers"] == report["overdue_answers"] == 0  # it never asks for the device
    replayed = json.loads(inside("replay", clean / "job.prism", "--json", "--ranks", "0-1").stdout)
    late = 0
    for rank, found in report["sandbox"].items():
        assert list(found) == EMULATE_RANK_KEYS
        assert found["peak_allocated_bytes"] == replayed["ranks"][rank]["peak_allocated_bytes"]
        late += found["late_ns"]
    for rank, found in report["sandbox"].items():
        # The first iteration holds the set-up: the clock starts at its end.
        here, there = found["iteration_time_ns"], replayed["ranks"][rank]["iteration_time_ns"]
        assert here[0] == there[0]
        assert sum(there) <= sum(here) <= sum(there) + late
    table = emulate(clean, flags=("--clock", "wall"))
    assert table.returncode == 0, table.stderr
    assert "wall clock" in table.stdout


def test_a_table_for_people(clean):
    done = emulate(clean)
    assert done.returncode == 0, done.stderr
    assert "replay of the graph" in done.stdout
    assert ": the same" in done.stdout
    assert "2 ran, 0 ghosts" in done.stdout
    assert "arguments" not in done.stdout + done.stderr  # of the program
    assert "prism replay job.prism --ranks 0-1" in done.stdout


def test_a_program_that_leaves_its_record(clean):
    done = emulate(clean, "large", sandbox="1")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("prism: error: rank 1 leaves its recorded program at op ")
    assert "recorded " in done.stderr
    assert ", found " in done.stderr
    assert "give the arguments that the graph was collected with" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_program_that_ends_early(clean):
    done = emulate(clean, "end", sandbox="0")
    assert done.returncode == 3
    assert "rank 0 leaves its recorded program" in done.stderr
    assert "but its program has ended" in done.stderr


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ("crash wall", 1, "rank 0 ended with exit code 1; its last lines:"),
        ("kill wall", 1, "rank 0 was killed by SIGKILL"),
        ("crash", 1, "rank 0 ended with exit code 1; its last lines:"),
        ("exit", 1, "rank 0 ended with exit code 3"),
        ("kill", 1, "rank 0 was killed by SIGKILL"),
        ("finally", 1, "rank 0 ended with exit code 1; its last lines:"),
        ("cleanup", 3, "found device_sync"),
    ],
)
def test_a_rank_that_fails(clean, how, code, words):
    begin = time.monotonic()
    how, _, clock = how.partition(" ")
    done = emulate(clean, how, "late", flags=("--clock", clock or "virtual"))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    if code != 1 or how in ("crash", "finally"):
        assert "this rank had enough" in done.stderr
    assert time.monotonic() - begin < 60


def test_a_rank_that_does_not_fit(clean):
    done = emulate(clean, "hog", job="hog", sandbox="0")
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("prism: error: rank 0 ")
    assert "is out of memory" in done.stderr
    assert "asked for 100.00 GiB" in done.stderr


@pytest.mark.parametrize("clock", ["virtual", "wall"])
@pytest.mark.parametrize("how", ["sleep", "poll"])
def test_a_rank_that_hangs(clean, how, clock):
    done = emulate(clean, how, "late", flags=("--silence", "10s", "--clock", clock))
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.startswith("prism: error: rank 0 has launched nothing for 10 s")
    assert (clean / "asleep0").exists()  # it came so far: no slow start was taken for it


@pytest.mark.parametrize("how", ["fork", "print"])
def test_programs_that_fork_or_print_much(clean, how):
    done = emulate(clean, how)
    assert done.returncode == 0, done.stderr


def test_a_program_that_launches_far_ahead(clean):
    """More ops than a port holds before the host looks at the device once."""
    done = emulate(clean, "many", job="many", flags=("--json",))
    assert done.returncode == 0, done.stderr
    replayed = json.loads(inside("replay", clean / "many.prism", "--json").stdout)
    report = json.loads(done.stdout)
    assert report["posts"] > 6 * 30000
    assert report["median_iteration_time_ns"] == replayed["median_iteration_time_ns"]


@contextmanager
def started(folder, *how, clock="virtual"):
    """A process of an emulation whose rank 0 sleeps. It is gone afterwards, whatever the test found."""
    command = ["emulate", "job.prism", "--sandbox", "0-1", "--clock", clock]
    command += ["--", "train.py", "sleep", "late", *how]
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *command],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            asleep = folder / "asleep0"
            while not asleep.exists() or not asleep.read_text():
                assert process.poll() is None, process.stderr.read()
                time.sleep(0.05)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("clock", ["virtual", "wall"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_from_outside(clean, number, clock):
    with started(clean, clock=clock) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (1, "", "prism: error: interrupted\n")


def test_the_ranks_die_with_the_engine(clean):
    with started(clean) as process:
        assert len(running_in(clean)) >= 3  # the engine, the warm parent, rank 0; rank 1 may have ended
        process.kill()
        process.wait(timeout=30)
    until = time.monotonic() + 30
    while running_in(clean) and time.monotonic() < until:
        time.sleep(0.05)


def test_a_rank_killed_in_the_middle(clean):
    with started(clean) as process:
        os.kill(int((clean / "asleep0").read_text()), signal.SIGKILL)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("prism: error: rank 0 was killed by SIGKILL")


def test_results_that_cannot_be_written(clean):
    with open("/dev/full", "w") as full:
        command = ["emulate", "job.prism", "--sandbox", "0", "--", "train.py"]
        done = subprocess.run(
            [sys.executable, "-m", "prismcore", *command],
            cwd=clean,
            env=ENVIRONMENT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == "prism: error: the results cannot be written to stdout: No space left on device\n"


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("job.prism", "--", "train.py"), 2, "--sandbox"),
        (("job.prism", "--sandbox", "", "--", "train.py"), 2, "found ''"),
        (("job.prism", "--sandbox", "0"), 2, "no program: expected -- script.py ARGS"),
        (("job.prism", "--sandbox", "0", "--silence", "0s", "--", "train.py"), 2, "more than 0"),
        (("job.prism", "--sandbox", "0", "--routing", "odd", "--", "train.py"), 2, "odd"),
        (("job.prism", "--sandbox", "0", "--clock", "sun", "--", "train.py"), 2, "--clock"),
        (("job.prism", "--sandbox", "1-2", "--", "train.py"), 1, "sandbox ranks 2 found, expected ranks"),
        (("job.prism", "--sandbox", "0-5000", "--", "train.py"), 1, "5001 sandbox ranks found"),
        (("job.prism", "--sandbox", "0", "--slow-rank", "7:2", "--", "train.py"), 1, "ranks 7 found"),
        (("absent.prism", "--sandbox", "0", "--", "train.py"), 1, "absent.prism"),
        (("job.prism", "--sandbox", "0", "--", "absent.py"), 1, "absent.py"),
        (("built.prism", "--sandbox", "0", "--", "train.py"), 1, "expected a graph of prism collect"),
    ],
)
def test_emulations_that_cannot_be_are_told_in_one_line(folder, monkeypatch, *, args, code, words):
    monkeypatch.chdir(folder)
    if "built.prism" in args:
        jobs.pipeline().save(folder / "built.prism")
    done = inside("emulate", *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("prism: error: ")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert not [pid for pid in running_in(folder) if pid != os.getpid()]
