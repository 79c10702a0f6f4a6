"""``prism emulate`` as a user meets it, above all when things go wrong: in bounded time, with the rank's
name, and without anything left behind."""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import jobs
import pytest
from cli_contract import EMULATE_KEYS, EMULATE_RANK_KEYS
from cli_runs import ENVIRONMENT, inside, prism
from test_cli_collect import INTERRUPTIBLE, runs_here

from prismcore.units import format_ns

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
            if "flood" in how:
                for number in range(200_000):
                    print(number, file=sys.stderr if number % 3 else sys.stdout)
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
        if "talk" in how:
            print("out", step)
            print("err", step, file=sys.stderr)
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


def own(stderr):
    """What prism itself says, without what it passes on and what it says at the start."""
    lines = stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(("[rank ", "prism: warning: ")))


def test_json(clean):
    slow = ("--slow-rank", "0:1.5", "--slow-link", "0-1:2", "--jitter", "7:0.1")
    done = emulate(clean, sandbox="1", flags=("--json", *slow))
    assert done.returncode == 0, done.stderr
    assert done.stderr == "[rank 1] arguments []\n"
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
        done = emulate(clean, sandbox=sandbox, flags=("--json", "--fail-ranks", f"1@{at}"))
        assert (done.returncode, own(done.stderr)) == (3, "")
        report = json.loads(done.stdout)
        assert list(report) == [*EMULATE_KEYS, "failure"]
        told = inside("replay", clean / "job.prism", "--json", "--fail-ranks", f"1@{at}")
        assert report["failure"] == json.loads(told.stdout)["failure"]
        assert report["failure"]["stopped"]
        assert report["median_iteration_time_ns"] == first
        assert report["sandbox"]["0"]["iteration_time_ns"] == [first]
        assert report["sandbox"]["0"]["peak_allocated_bytes"] is None
    shown = emulate(clean, sandbox="0", flags=("--fail-ranks", f"1@{at}"))
    assert (shown.returncode, own(shown.stderr)) == (3, "")
    failed, wait, empty = shown.stdout.splitlines()[:3]
    assert failed == (
        f"failed: rank 1 at {format_ns(first + second // 2)}, after 1 iteration; 1 of 2 ranks waits for ever"
    )
    assert wait.startswith("rank 0 on communicator 'default_pg:0' (collective ")
    assert "all_reduce" in wait
    assert " at train.py" in wait
    assert wait.endswith(" ms, for rank 1")
    assert not empty
    assert "(median of 1)" in shown.stdout
    early = emulate(clean, sandbox="0", flags=("--fail-ranks", "1@0ns"))
    assert early.returncode == 3
    assert "no iteration ended on all ranks" in early.stdout
    late = emulate(clean, sandbox="0-1", flags=("--fail-ranks", "1@1000s"))
    assert late.returncode == 0, late.stderr
    assert late.stdout.startswith("every rank ended its program before it was to fail\n")
    assert late.stdout.endswith(" --fail-ranks 1@1000s\n")


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
    assert "arguments" not in done.stdout  # of the program
    assert "prism replay job.prism --ranks 0-1" in done.stdout


def test_a_program_that_leaves_its_record(clean):
    done = emulate(clean, "large", sandbox="1")
    assert (done.returncode, done.stdout) == (3, "")
    assert own(done.stderr).startswith("prism: error: rank 1 leaves its recorded program at op ")
    assert "recorded " in done.stderr
    assert ", found " in done.stderr
    assert "give the arguments that the graph was collected with" in done.stderr
    assert own(done.stderr).count("\n") == 1
    differs = "the graph was collected with: train.py; given: train.py large"
    assert done.stderr.startswith(f"prism: warning: {differs}\n")
    assert f"; {differs}; --on-divergence follow goes on" in own(done.stderr)


def test_a_program_that_ends_early(clean):
    done = emulate(clean, "end", sandbox="0")
    assert done.returncode == 3
    assert "rank 0 leaves its recorded program" in done.stderr
    assert "but its program has ended" in done.stderr
    assert "; its program has ended after 1 iteration\n" in done.stderr


TIMED = """
import os, sys, torch, torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
for step in range(4):
    start.record()
    x = torch.ones(int(sys.argv[1]), 1 << 20, device="cuda")
    dist.all_reduce(x)
    end.record()
    end.synchronize()
    took = start.elapsed_time(end)
    torch.optim.SGD([torch.nn.Parameter(torch.ones(4, device="cuda"))], lr=0.1).step()
    print("took", took, flush=True)
dist.destroy_process_group()
"""


def test_what_a_program_makes_of_times_that_nobody_tells_is_not_told(tmp_path):
    """It leaves its record, and no engine answers it any more."""
    (tmp_path / "train.py").write_text(TIMED)
    command = ("collect", "--world-size", 2, "--ranks", "all", "-o", "job.prism", "--", "train.py", "1")
    done = prism(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = emulate(tmp_path, "40", sandbox="0")
    assert done.returncode == 3
    assert "rank 0 leaves its recorded program at op " in own(done.stderr)
    assert "; given: train.py 40; --on-divergence follow " in own(done.stderr)
    assert "Traceback" not in done.stderr
    assert own(done.stderr).count("\n") == 1
    whole = emulate(tmp_path, "1", sandbox="0")
    assert whole.returncode == 0, whole.stderr
    assert len(lines_of(whole.stderr, 0)) == 2  # the third iteration ends before its line


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
    how, _, clock = how.partition(" ")
    done = emulate(clean, how, "late", flags=("--clock", clock or "virtual"))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert words in done.stderr
    if code != 1 or how in ("crash", "finally"):
        assert "this rank had enough" in done.stderr


def test_a_rank_that_does_not_fit(clean):
    done = emulate(clean, "hog", job="hog", sandbox="0")
    assert (done.returncode, done.stdout) == (4, "")
    assert own(done.stderr).startswith("prism: error: rank 0 ")
    assert "is out of memory" in done.stderr
    assert "asked for 100.00 GiB" in done.stderr


@pytest.mark.parametrize("clock", ["virtual", "wall"])
@pytest.mark.parametrize("how", ["sleep", "poll"])
def test_a_rank_that_hangs(clean, how, clock):
    for seconds in (4, 30, 120):
        flags = ("--silence", f"{seconds}s", "--clock", clock)
        done = emulate(clean, how, sandbox="0", flags=flags)  # rank 1 waits for it, as a ghost
        assert (done.returncode, done.stdout) == (1, ""), done.stderr
        assert own(done.stderr).startswith(f"prism: error: rank 0 has launched nothing for {seconds} s")
        if (clean / "asleep0").exists():
            return  # it came so far: no slow start was taken for it
    raise AssertionError("rank 0 has not come so far")


@pytest.mark.parametrize("how", ["fork", "print"])
def test_programs_that_fork_or_print_much(clean, how):
    done = emulate(clean, how)
    assert done.returncode == 0, done.stderr


def lines_of(stderr, rank):
    return [line.partition("] ")[2] for line in stderr.splitlines() if line.startswith(f"[rank {rank}] ")]


def test_output_of_ranks_is_passed_on(clean):
    done = emulate(clean, "talk", flags=("--json",))
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    assert own(done.stderr) == ""
    for rank in (0, 1):
        steps = [f"{place} {step}" for step in range(3) for place in ("out", "err")]
        assert lines_of(done.stderr, rank) == ["arguments ['talk']", *steps[:-2]]  # ended in the last step


def test_output_is_there_while_the_program_runs(clean):
    with started(clean) as process:
        line = process.stderr.readline()
        while line.startswith("prism: warning: "):
            line = process.stderr.readline()
        assert line.startswith("[rank ")
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def test_a_reader_that_is_late_gets_all_of_a_flood(clean):
    """However little patience there is with the ranks, which wait for it."""
    for seconds in (6, 30):
        flags = ["--sandbox", "0-1", "--silence", f"{seconds}s"]
        with subprocess.Popen(
            [sys.executable, "-m", "prismcore", "emulate", "job.prism", *flags, "--", "train.py", "flood"],
            cwd=clean,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            read = b""
            while b"] 1000\n" not in read and (more := os.read(process.stderr.fileno(), 4096)):
                read += more
            time.sleep(seconds + 2 if more else 0)
            out, err = process.communicate(timeout=240)
            out, err = out.decode(), (read + err).decode()
        if process.returncode == 0:  # else this machine may be slow
            break
    assert process.returncode == 0, err[-1000:]
    assert "2 ran, 0 ghosts" in out
    for rank in (0, 1):
        words = " ".join(lines_of(err, rank)).split()
        assert [int(word) for word in words if word.isdigit()] == list(range(200_000))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_while_nobody_takes_the_output(clean, number):
    command = ["emulate", "job.prism", "--sandbox", "0-1", "--", "train.py", "flood"]
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *command],
        cwd=clean,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
            while select.select((process.stderr,), (), (), 1)[0] == []:
                assert process.poll() is None
            time.sleep(2)  # full
            process.send_signal(number)
            assert process.wait(timeout=30) == 1
        finally:
            process.kill()


@pytest.mark.parametrize("how", ["closed", "gone"])
def test_nobody_reads_stderr(clean, how):
    reading, writing = os.pipe()
    os.close(reading)
    closed = "2>&-" if how == "closed" else f"2>&{writing}"
    command = f"exec {sys.executable} -m prismcore emulate job.prism --sandbox 0-1 -- train.py print {closed}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=clean,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
        pass_fds=[writing],
        check=False,
    )
    os.close(writing)
    assert done.returncode == 0
    assert "2 ran, 0 ghosts" in done.stdout


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
        out, err = process.communicate(timeout=240)
    assert (process.returncode, out, own(err)) == (1, "", "prism: error: interrupted\n")


def test_the_ranks_die_with_the_engine(clean):
    with started(clean) as process:
        assert len(running_in(clean)) >= 3  # the engine, the warm parent, rank 0; rank 1 may have ended
        process.kill()
        process.wait(timeout=240)
    until = time.monotonic() + 240
    while running_in(clean) and time.monotonic() < until:
        time.sleep(0.05)


def test_a_rank_killed_in_the_middle(clean):
    with started(clean) as process:
        os.kill(int((clean / "asleep0").read_text()), signal.SIGKILL)
        out, err = process.communicate(timeout=240)
    assert (process.returncode, out) == (1, "")
    assert own(err).startswith("prism: error: rank 0 was killed by SIGKILL")


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
            timeout=240,
            check=False,
        )
    assert done.returncode == 1
    told = "prism: error: the results cannot be written to stdout: No space left on device\n"
    assert own(done.stderr) == told


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("job.prism", "--", "train.py"), 2, "--sandbox"),
        (("job.prism", "--sandbox", "", "--", "train.py"), 2, "found no rank, expected ranks and ranges"),
        (("job.prism", "--sandbox", "0"), 2, "no program: expected -- script.py ARGS"),
        (("job.prism", "--sandbox", "0", "--silence", "0s", "--", "train.py"), 2, "more than 0"),
        (
            ("job.prism", "--sandbox", "0", "--silence", "-1s", "--", "train.py"),
            2,
            "found time '-1s', expected",
        ),
        (("job.prism", "--sandbox", "0", "--silence", "1ns", "--", "train.py"), 1, " 1 ns"),
        (("job.prism", "--sandbox", "0", "--routing", "odd", "--", "train.py"), 2, "odd"),
        (("job.prism", "--sandbox", "0", "--clock", "sun", "--", "train.py"), 2, "--clock"),
        (("job.prism", "--sandbox", "1-2", "--", "train.py"), 1, "sandbox rank 2 found, expected ranks"),
        (("job.prism", "--sandbox", "0-5000", "--", "train.py"), 1, "5001 sandbox ranks found"),
        (
            ("job.prism", "--sandbox", "0", "--slow-rank", "7:2", "--", "train.py"),
            1,
            "--slow-rank: rank 7 found",
        ),
        (("absent.prism", "--sandbox", "0", "--", "train.py"), 1, "absent.prism"),
        (("job.prism", "--sandbox", "0", "--", "absent.py"), 1, "absent.py"),
        (
            ("job.prism", "--sandbox", "0", "--", "python3", "train.py"),
            1,
            "without python3: -- train.py ARGS",
        ),
        (("job.prism", "--sandbox", "0", "--", "torchrun"), 1, "without torchrun: -- script.py ARGS"),
        (("built.prism", "--sandbox", "0", "--", "train.py"), 1, "expected a graph of prism collect"),
    ],
)
def test_emulations_that_cannot_be_are_told_in_one_line(folder, monkeypatch, *, args, code, words):
    monkeypatch.chdir(folder)
    if "built.prism" in args:
        jobs.pipeline().save(folder / "built.prism")
    done = inside("emulate", *args)
    assert (done.returncode, done.stdout) == (code, "")
    assert own(done.stderr).startswith("prism: error: ")
    assert words in done.stderr
    assert own(done.stderr).count("\n") == 1
    assert not [pid for pid in running_in(folder) if pid != os.getpid()]
