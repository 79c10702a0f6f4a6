"""How the ranks of an emulation end: what counts as a failure, and waits that have an end."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_emulate_threads import run

from prismcore.emulate.sandbox import AbsentGiverError
from prismcore.errors import (
    DeadlockError,
    DivergenceError,
    EmulateError,
    MismatchError,
    RankFailedError,
)
from prismcore.graph import Graph
from prismcore.launch.need import ObjectNeed
from prismcore.replay import RankFailure, replay


def given_up(*args: Any, **kwargs: Any) -> str:
    """What is told when time is over; a slow machine, where a rank has not come so far, is given more."""
    for silence_s in (5.0, 30.0, 120.0):
        with pytest.raises(EmulateError) as caught:
            run(*args, silence_s=silence_s, **kwargs)
        if "has launched nothing" not in str(caught.value):
            break
    return str(caught.value)


TIMED = """
dist.all_reduce(x)
prismcore.mark_iteration()
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
dist.all_reduce(x)
if rank == 1:
    start.record()
    y = torch.ones(4096, 4096, device="cuda", dtype=torch.bfloat16)
    y @ y
    end.record()
    end.synchronize()
    start.elapsed_time(end)
"""


@pytest.mark.torch
def test_a_rank_that_was_made_to_fail_fails_no_emulation(tmp_path: Path) -> None:
    """It waits for the engine when all is over, before the others have left their records."""

    def just_before_its_end(graph: Graph) -> RankFailure:
        ends = replay(graph).iteration_end_ns
        return RankFailure(rank=1, at_ns=int(ends.max()) - 1000)

    slow = "    time.sleep(3 * (call.rank == 0))\n"
    result = run(tmp_path, TIMED, slow, kept=False, fails=just_before_its_end)
    assert list(result.sandbox) == [0]
    assert result.job.failure is not None
    assert list(result.job.failure.failed) == [1]


@pytest.mark.torch
def test_a_rule_that_does_not_return_after_the_end_of_the_program(tmp_path: Path) -> None:
    for_ever = "    while True:\n        time.sleep(1)\n"
    told = given_up(tmp_path, "dist.all_reduce(x)\n", for_ever, kept=False)
    assert re.search(r"rank 0 has come to the end .* left no record within \d+ s", told)


SLOW = """
import time
from prismcore.launch.rank import RankRun

finish = RankRun._call_sites

def slow(self):
    time.sleep(SLEEP)
    return finish(self)

RankRun._call_sites = slow
"""

LEAVES = f"""
if rank == 0 and emulated:
    exec({SLOW!r}, {{"SLEEP": SLEEP}})  # apart: what holds this program's names would keep x
dist.all_reduce(x)
torch.cuda.synchronize()
if rank == 0 and emulated:
    raise ValueError("the program's own failure")
"""


def leaves(sleep: int) -> str:
    return LEAVES.replace("SLEEP}", f"{sleep}}}")


@pytest.mark.torch
def test_to_leave_is_no_silence_of_the_program(tmp_path: Path) -> None:
    """A rank that writes its record has time of its own for that, so that reasons are not lost."""
    with pytest.raises(RankFailedError, match=r"(?s)rank 0 .*ValueError: the program's own failure"):
        run(tmp_path, leaves(12), "    ...\n", silence_s=8)


@pytest.mark.torch
def test_to_leave_has_an_end(tmp_path: Path) -> None:
    body = leaves(600)
    with pytest.raises(EmulateError, match=r"rank 0 has come to the end .* left no record within 8 s"):
        run(tmp_path, body, "    ...\n", silence_s=8)


STOPPED = """
if rank == 0 and emulated:
    os.kill(os.getpid(), 19)  # SIGSTOP
dist.all_reduce(x)
"""


@pytest.mark.torch
def test_a_rank_that_is_stopped(tmp_path: Path) -> None:
    told = r"rank 0 has launched nothing for 8 s: a signal or a debugger has stopped its process"
    with pytest.raises(EmulateError, match=told):
        run(tmp_path, STOPPED, "    ...\n", silence_s=8)


CLOSED = """
dist.all_reduce(x)
torch.cuda.synchronize()
if rank == 0 and emulated:
    os.closerange(3, 1024)
    kept = [open("mine", "w") for _ in range(50)]
prismcore.mark_iteration()
"""


@pytest.mark.torch
def test_a_program_that_closes_descriptors_that_are_not_its_own(tmp_path: Path) -> None:
    with pytest.raises(RankFailedError, match="the program has closed file descriptors") as caught:
        run(tmp_path, CLOSED, "    ...\n")
    assert "Traceback" not in str(caught.value)
    assert (tmp_path / "mine").read_bytes() == b""


POLLS = """
dist.all_reduce(x, async_op=True).wait()
if rank == 0 and emulated:
    work = dist.all_reduce(x, async_op=True)
    while not work.is_completed():
        pass
torch.cuda.synchronize()
"""


@pytest.mark.torch
def test_a_rank_that_polls_for_what_nobody_will_do(tmp_path: Path) -> None:
    told = (
        r"rank 0 op \d+ \(all_reduce .* polls on communicator 'default_pg:0' \(collective 1\) for rank 1, 2; "
        r".*rank 0 leaves its recorded program at op \d+"
    )
    with pytest.raises(DeadlockError, match=told):
        run(tmp_path, POLLS, "    ...\n", silence_s=8, on_divergence="follow")


DISAGREES = """
dist.all_reduce(x)
if rank == 0 and emulated:
    x = torch.ones(2000, device="cuda")
dist.all_reduce(x)
torch.cuda.synchronize()
"""


@pytest.mark.torch
def test_why_ranks_disagree_is_that_one_has_left_its_record(tmp_path: Path) -> None:
    """Not that ranks were collected one by one."""
    with pytest.raises(MismatchError, match=r"; rank 0 leaves its recorded program at op \d+") as caught:
        run(tmp_path, DISAGREES, "    ...\n", on_divergence="follow")
    assert "collected one by one" not in str(caught.value)


GIVES = """
if rank == 2 and emulated:
    time.sleep(600)
dist.broadcast_object_list([rank], src=2)
dist.all_reduce(x)
"""


@pytest.mark.torch
def test_a_ghost_that_gives_nothing_alone(tmp_path: Path) -> None:
    told = given_up(tmp_path, GIVES, "    ...\n")
    assert re.search(r"rank 2.* runs alone for that and has not ended within \d+ s", told)


PARTS = """
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
start.record()
if rank == 0 and emulated:
    time.sleep(2)
    x = torch.ones(2000, device="cuda")
dist.all_reduce(x)
end.record()
if rank == 0:
    time.sleep(3 * emulated)
else:
    end.synchronize()
    start.elapsed_time(end)
"""


@pytest.mark.torch
def test_what_a_rank_makes_of_the_end_is_no_reason(tmp_path: Path) -> None:
    """Rank 0 leaves its record, and rank 1, which waits for the engine, is told nothing any more."""
    with pytest.raises(DivergenceError, match="rank 0 leaves its recorded program") as caught:
        run(tmp_path, PARTS, "    ...\n")
    assert "rank 1 ended" not in str(caught.value)


@pytest.mark.parametrize(
    ("limits", "told"),
    [("(50, 60)", "60 open files are allowed, expected "), ("(50, 500)", "True"), ("(300, 300)", "300")],
)
def test_open_files(limits: str, told: str) -> None:
    program = (
        "import resource\n"
        "from prismcore.emulate.descriptors import allow_descriptors\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, {limits})\n"
        "allow_descriptors(100)\n"
        "soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]\n"
        "print(soft if soft == 300 else 160 < soft < 200)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=False
    )
    assert told in done.stdout + done.stderr


def test_an_absent_giver_may_run_on_another_machine() -> None:
    need = ObjectNeed(
        key="g/0", root=3, function="broadcast_object_list", number=0, group="g", size=4, site="train.py:1"
    )
    assert "that rank does not run on this machine" in str(AbsentGiverError(0, need))
