"""Threads of a rank in an emulation: its program's, and the device's, which moves bytes and runs rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from prismcore.collect import CollectOptions, collect
from prismcore.emulate import EmulateOptions, EmulateResult, emulate
from prismcore.emulate.options import OnDivergence
from prismcore.errors import RankFailedError
from prismcore.graph import Graph
from prismcore.replay import Perturbation, RankFailure

pytestmark = pytest.mark.torch

SILENCE_S = 240.0

HEAD = """
import os, sys, time
import torch, torch.distributed as dist
import prismcore

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank % 8)
emulated = len(sys.argv) > 1
x = torch.ones(1000, device="cuda")
"""

KEEP = "from prismcore.rules import rule\nimport time, torch\n@rule()\ndef odd(call, received):\n"


def run(
    folder: Path,
    body: str,
    rule: str,
    *,
    kept: bool = True,
    silence_s: float = SILENCE_S,
    fails: Callable[[Graph], RankFailure] | None = None,
    on_divergence: OnDivergence = "stop",
) -> EmulateResult:
    """Ranks 0 and 1 of 3 run with the rule; collected with one that changes nothing, unless it is kept."""
    (folder / "train.py").write_text(HEAD + body + "prismcore.mark_iteration()\n")
    (folder / "rules.py").write_text(KEEP + (rule if kept else "    ...\n"))
    rules = Path("rules.py")
    graph = collect(
        CollectOptions(command=["train.py"], world_size=3, ranks="all", working_directory=folder, rules=rules)
    ).graph
    (folder / "rules.py").write_text(KEEP + rule)
    options = EmulateOptions(
        command=["train.py", "emulated"],
        sandbox=[0, 1],
        rules=rules,
        working_directory=folder,
        silence_s=silence_s,
        on_divergence=on_divergence,
    )
    if fails is not None:
        options = replace(options, perturbation=Perturbation(failures=[fails(graph)]))
    return emulate(graph, options)


POLLS = """
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
for step in range(30):
    start.record()
    dist.all_reduce(x)
    end.record()
    while not end.query():
        pass
    start.elapsed_time(end)
"""


@pytest.mark.parametrize("rule", ["    return None\n", "    time.sleep(0.001)\n"])
def test_a_program_that_polls_while_a_rule_runs(tmp_path, rule):
    """torch keeps the interpreter's lock where it asks an event."""
    run(tmp_path, POLLS, rule)


FORKS = """
for step in range(5):
    dist.all_reduce(x)
    time.sleep(0.1)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
torch.cuda.synchronize()
"""


def test_a_program_that_forks_while_a_rule_runs(tmp_path):
    run(tmp_path, FORKS, "    time.sleep(0.2)\n", kept=False)


READS = """
for step in range(5):
    dist.all_reduce(x)
    torch.cuda.synchronize()
"""


def test_a_rule_that_looks_at_the_device(tmp_path):
    """At all that comes before it, as in a collection: it is no work of the program's, and waits for
    itself no more than a host callback does."""
    looks = "    torch.cuda.synchronize()\n    torch.cuda.current_stream().query()\n"
    looks += "    torch.cuda.Event().query()\n    torch.cuda.mem_get_info()\n"
    run(tmp_path, READS, looks)


AHEAD = """
# The rule of the first launch fails while the program waits for the engine, which waits for the third
# launch of rank 1, which waits for the bytes of the second, which come behind the rule.
dist.all_reduce(x)
dist.all_reduce(x)
if rank == 1:
    torch.cuda.synchronize()
dist.all_reduce(x)
torch.cuda.synchronize()
"""


def test_a_rule_that_fails_while_the_program_waits_for_the_engine(tmp_path):
    fails = "    time.sleep(1)\n    return received if call.rank else 1 / 0\n"
    with pytest.raises(RankFailedError, match=r"(?s)rank 0 .*ZeroDivisionError: division by zero"):
        run(tmp_path, AHEAD, fails, kept=False)


def test_a_rule_that_fails_when_the_program_has_ended(tmp_path):
    with pytest.raises(RankFailedError, match=r"(?s)rank [01] .*ZeroDivisionError: division by zero"):
        run(tmp_path, "dist.all_reduce(x)\n", "    time.sleep(1)\n    return 1 / 0\n", kept=False)


BOTH = """
if rank == 1 and emulated:
    time.sleep(2)  # the rule of rank 0 waits for the bytes of rank 1 when its program fails
dist.all_reduce(x)
if rank == 0 and emulated:
    raise ValueError("the program's own failure")
torch.cuda.synchronize()
"""


def test_a_rule_and_the_program_that_fail_together(tmp_path):
    with pytest.raises(RankFailedError, match=r"(?s)rank 0 .*ValueError: the program's own failure"):
        run(tmp_path, BOTH, "    return received if call.rank else 1 / 0\n", kept=False)


def test_a_program_that_fails_because_of_its_rule(tmp_path):
    """It is told nothing any more: what it makes of that is not the reason."""
    body = """
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
start.record()
dist.all_reduce(x)
end.record()
if rank == 1 and emulated:
    time.sleep(600)
end.synchronize()
assert not emulated, "it went on"
"""
    with pytest.raises(RankFailedError, match="ZeroDivisionError"):
        run(tmp_path, body, "    time.sleep(1)\n    return 1 / 0\n", kept=False)
