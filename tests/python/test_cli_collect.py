"""``prism collect`` as a user meets it: real ranks of a small program on the virtual GPU."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from cli_contract import INFO_KEYS
from cli_runs import ENVIRONMENT, prism

from prismcore.graph import Graph
from prismcore.graph.op import OpKind

pytestmark = pytest.mark.torch

PROGRAM = """
import os, sys, time
import torch, torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("arguments", sys.argv[1:], flush=True)
hog = []
for step in range(10):
    model(torch.ones(8, 64, device="cuda")).sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
    if "crash" in sys.argv:
        raise RuntimeError("this rank had enough")
    if "hog" in sys.argv:
        hog.append(torch.empty(64 << 30, dtype=torch.uint8, device="cuda"))
    if "sleep" in sys.argv and (dist.get_rank() > 0 or "late" not in sys.argv):
        open(f"asleep{dist.get_rank()}", "w").close()
        time.sleep(600)
"""


# A test run in the background may have been started with SIGINT ignored, which children inherit.
INTERRUPTIBLE = """
import signal, sys
from prismcore.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    return tmp_path


def collect(folder, *args, flags=()):
    return prism("collect", "--world-size", 2, "-o", "job.prism", *flags, "--", *args, cwd=folder)


def test_collect_json_is_info_json(folder):
    done = collect(folder, "train.py", "--json", "--", flags=("--json", "--ranks", "all"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)  # nothing of the program's own output
    assert list(report) == ["output", "wall_time_s", *INFO_KEYS, "warnings"]
    info = json.loads(prism("info", folder / "job.prism", "--json").stdout)
    assert {key: report[key] for key in INFO_KEYS} == info
    assert (info["world_size"], info["ranks_run"], info["iterations"]) == (2, 2, 3)
    graph = Graph.open(folder / "job.prism")
    assert graph.metadata["command"] == ["train.py", "--json", "--"]  # untouched
    checked = prism("check", folder / "job.prism")
    assert checked.returncode == 0, checked.stderr


def test_a_module_is_run_as_torchrun_would(folder):
    done = collect(folder, "-m", "train", "x")
    assert done.returncode == 0, done.stderr
    assert "program" in done.stdout
    assert "-m train x" in done.stdout


def test_a_rank_that_fails(folder):
    done = collect(folder, "train.py", "crash")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("prism: error: rank ")
    assert "this rank had enough" in done.stderr
    assert not (folder / "job.prism").exists()


def test_a_rank_that_does_not_fit(folder):
    done = collect(folder, "train.py", "hog")
    assert (done.returncode, done.stdout) == (4, "")
    assert "64.00 GiB" in done.stderr
    assert not (folder / "job.prism").exists()
    kept = collect(folder, "train.py", "hog", flags=("--keep-partial",))
    assert kept.returncode == 4
    assert "saved 1 of 2 ranks to job.prism" in kept.stderr
    assert len(Graph.open(folder / "job.prism").ranks) == 1


def stopped(folder, number, *args, flags=(), until="asleep0", environment=ENVIRONMENT):
    """What is told by a collection that gets a signal once a file is there; nothing else may remain."""
    command = ["collect", "--world-size", "2", "-o", "job.prism", *flags, "--", *args]
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *command],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        while not (folder / until).exists():
            assert running.poll() is None, running.stderr.read()
            time.sleep(0.05)
        running.send_signal(number)
        out, err = running.communicate(timeout=240)
    assert (running.returncode, out) == (1, "")
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and runs_here(pid, folder)]
    return err.strip().splitlines()


def left_in(folder):
    return sorted(p.name for p in folder.iterdir() if p.suffix == ".prism" or p.name.startswith("."))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_from_outside(folder, number):
    assert stopped(folder, number, "train.py", "sleep") == ["prism: error: interrupted"]
    assert left_in(folder) == []


def test_stopped_while_the_parent_imports(folder):
    (folder / "slow.py").write_text("import time; open('importing', 'w').close(); time.sleep(600)")
    environment = ENVIRONMENT | {"PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}{os.pathsep}{folder}"}
    flags = ("--preload", "slow", "--keep-partial")
    told = stopped(folder, signal.SIGINT, "train.py", flags=flags, until="importing", environment=environment)
    assert told == [
        "prism: nothing was saved: no rank had recorded anything",
        "prism: error: interrupted",
    ]
    assert left_in(folder) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_with_what_was_recorded_kept(folder, number):
    flags = ("--keep-partial", "--ranks", "all", "--slots", "1")
    told = stopped(folder, number, "train.py", "sleep", "late", flags=flags, until="asleep1")
    assert told == [
        "prism: saved 2 of 2 ranks to job.prism, 1 of them cut short",
        "prism: error: interrupted",
    ]
    assert left_in(folder) == ["job.prism"]
    graph = Graph.open(folder / "job.prism")
    assert graph.ranks.tolist() == [0, 1]
    metadata = graph.metadata
    assert (metadata["partial"], metadata["ranks_run"], metadata["ranks_cut_short"]) == (True, 2, 1)
    iterations = [int((graph.ops(r)["kind"] == OpKind.MARK).sum()) for r in (0, 1)]
    assert iterations == [3, 1]
    info = json.loads(prism("info", folder / "job.prism", "--json").stdout)
    assert (info["ranks_run"], info["ranks_inferred"]) == (2, 0)


def runs_here(pid, folder):
    try:
        return os.readlink(f"/proc/{pid}/cwd") == str(folder)
    except OSError:
        return False


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--ranks", "1-2"), "rank 2"),
        (("--device", "virtual:h1000"), "h1000"),
        (("--cluster", "absent.toml"), "absent.toml"),
    ],
)
def test_collections_that_cannot_be_exit_1_and_leave_nothing(folder, flags, words):
    done = collect(folder, "train.py", flags=flags)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert [p.name for p in folder.iterdir()] == ["train.py"]


def test_a_script_that_is_not_there(folder):
    done = collect(folder, "absent.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert "absent.py" in done.stderr


@pytest.mark.parametrize("size", [2**24 + 8, 2**32])
def test_a_world_that_no_graph_holds(folder, size):
    done = prism("collect", "--world-size", size, "-o", "job.prism", "--", "train.py", cwd=folder)
    assert (done.returncode, done.stderr) == (
        1,
        f"prism: error: world size {size}: expected 1 to 16777216\n",
    )


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["-o", "job.prism", "--", "-m"], "-m without a module: expected -- script.py ARGS, or -- -m module"),
        (["-o", "job.prism", "--", "-m", ""], "-m without a module"),
        (["-o", "job.prism", "--"], "no program"),
        (["-o", "job.prism", "--", ""], "no program"),
        (["-o", "", "--", "train.py"], "found an empty name, expected that of a file to write"),
    ],
)
def test_command_lines_that_cannot_be(folder, command, words):
    done = prism("collect", "--world-size", 8, *command, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
