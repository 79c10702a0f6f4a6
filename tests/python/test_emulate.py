"""Sandbox ranks among ghosts: real ranks of small programs against the replay of their graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import jobs
import numpy as np
import pytest

from prismcore.collect import CollectOptions, collect
from prismcore.emulate import EmulateOptions, EmulateResult, emulate
from prismcore.emulate.polls import poll_warnings
from prismcore.errors import DivergenceError, EmulateError, RankFailedError
from prismcore.graph import Graph, RankOrigin
from prismcore.replay import Jitter, Perturbation, SlowLink, SlowRank, replay

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("--layers", "4", "--hidden", "128", "--heads", "8", "--ffn", "256", "--vocab", "512", "--seq", "64")
MEGATRON = (str(EXAMPLES / "megatron_gpt.py"), *SMALL, "--micro-batches", "4")
DENSE = (*MEGATRON, "--tp", "2", "--pp", "2")
EXPERTS = (*MEGATRON, "--experts", "8", "--topk", "2", "--ep", "4", "--pp", "2")
DDP = (str(EXAMPLES / "ddp.py"), "--layers", "2", "--hidden", "64", "--heads", "4", "--vocab", "512")


def mapped(
    command: Sequence[str], world_size: int, *, ranks: str = "all", routing: str = "balanced"
) -> Graph:
    options = CollectOptions(command=command, world_size=world_size, ranks=ranks, routing=routing)
    return collect(options).graph


NOTHING = Perturbation()


def run(
    graph: Graph, command: Sequence[str], sandbox: Sequence[int], perturbation: Perturbation = NOTHING
) -> EmulateResult:
    return emulate(
        graph, EmulateOptions(command=command, sandbox=sandbox, perturbation=perturbation, silence_s=240)
    )


def check(graph: Graph, result: EmulateResult, perturbation: Perturbation = NOTHING) -> None:
    """All ranks take exactly what the replay says, and the sandbox ranks the memory they recorded."""
    expected = replay(graph, perturbation=perturbation)
    np.testing.assert_array_equal(result.job.iteration_end_ns, expected.iteration_end_ns)
    np.testing.assert_array_equal(result.job.splits, expected.splits)
    assert result.replay_median_iteration_time_ns == expected.median_iteration_time_ns
    assert result.job.events == expected.events
    assert result.ghosts == len(graph.ranks) - len(result.sandbox)
    assert not result.diverged
    for rank, found in result.sandbox.items():
        peaks = graph.rank(rank).peaks
        assert found.peak_allocated_bytes == peaks.allocated_bytes > 0
        assert found.peak_reserved_bytes == peaks.reserved_bytes > 0
        assert list(found.iteration_time_ns) == expected.rank_iteration_time_ns(rank).tolist()


@pytest.fixture(scope="module")
def dense() -> Graph:
    return mapped(DENSE, 8)


@pytest.mark.torch
@pytest.mark.parametrize("sandbox", [(5,), (0, 7), (0, 2, 5, 7), tuple(range(8))], ids=len)
def test_ranks_that_do_what_they_recorded_take_what_the_replay_says(
    dense: Graph, sandbox: tuple[int, ...]
) -> None:
    result = run(dense, DENSE, sandbox)
    check(dense, result)
    assert list(result.sandbox) == list(sandbox)


@pytest.mark.torch
def test_on_the_wall_clock_nobody_is_faster_than_the_replay(dense: Graph) -> None:
    options = EmulateOptions(command=DENSE, sandbox=(0, 7), silence_s=240, clock="wall")
    result = emulate(dense, options)
    expected = replay(dense)
    assert (result.job.iteration_end_ns >= expected.iteration_end_ns).all()
    np.testing.assert_array_equal(result.job.iteration_end_ns[:, 0], expected.iteration_end_ns[:, 0])
    late = [found.late_ns or 0 for found in result.sandbox.values()]
    assert (result.job.iteration_end_ns <= expected.iteration_end_ns + sum(late)).all()
    assert result.release_errors is not None
    assert result.release_errors.paced + result.release_errors.overdue > 0
    for rank, found in result.sandbox.items():
        assert found.peak_allocated_bytes == dense.rank(rank).peaks.allocated_bytes


@pytest.mark.torch
def test_slow_ghosts_and_slow_sandboxes_are_slow_as_in_the_replay(dense: Graph) -> None:
    slow = Perturbation(
        slow_ranks=[
            SlowRank(rank=6, factor=80.5),
            SlowRank(rank=1, factor=30.0, from_ns=10**6, to_ns=6 * 10**7),
        ],
        slow_links=[SlowLink(rank=0, other=1, factor=3.5), SlowLink(rank=6, other=None, factor=2.0)],
        jitter=Jitter(seed=3, sigma=0.3),
    )
    check(dense, run(dense, DENSE, (0, 1), slow), slow)
    assert replay(dense, perturbation=slow).median_iteration_time_ns > replay(dense).median_iteration_time_ns


@pytest.mark.torch
@pytest.mark.parametrize(
    ("routing", "leaves"), [("balanced", False), ("hot-experts:heat=3", True), ("empty-rank", True)]
)
def test_the_poll_that_parts_experts_from_their_record_is_named(routing: str, leaves: bool) -> None:
    """Torch's allocator polls events there, and what it is told depends on the peers: on the virtual clock
    the same in every run."""
    graph = mapped(EXPERTS, 8, routing=routing)
    told = "times whether something was done"
    if leaves:
        with pytest.raises(DivergenceError, match=f"rank 0 leaves its recorded program at .* {told}") as once:
            run(graph, EXPERTS, (0, 5))
        with pytest.raises(DivergenceError) as again:
            run(graph, EXPERTS, (0, 5))
        assert str(again.value) == str(once.value)
        return
    result = run(graph, EXPERTS, (0, 5))
    assert result.warnings == []  # all iterations take what the replay says
    for rank, found in result.sandbox.items():
        assert found.peak_allocated_bytes == graph.rank(rank).peaks.allocated_bytes


@pytest.mark.torch
def test_another_routing_than_the_one_collected_diverges() -> None:
    graph = mapped(EXPERTS, 8)
    options = EmulateOptions(command=EXPERTS, sandbox=(2,), routing="hot-experts:heat=3")
    with pytest.raises(DivergenceError, match="rank 2 leaves its recorded program at op "):
        emulate(graph, options)
    result = emulate(graph, replace(options, on_divergence="follow"))
    assert result.diverged
    assert len(result.sandbox[2].iteration_time_ns) == 3
    assert not [warning for warning in result.warnings if "asked more or less often" in warning]


@pytest.mark.torch
def test_ghosts_follow_a_longer_sequence(dense: Graph) -> None:
    """Where every rank runs the longer one, the others are what the ghosts should adapt to."""
    longer = (*DENSE, "--seq", "256")
    with pytest.raises(DivergenceError) as caught:
        run(dense, longer, (0,))
    assert (caught.value.rank, caught.value.op > 0) == (0, True)
    sites = str(caught.value).split("mappings.py:")
    assert len(sites) == 3, caught.value  # recorded, and where the rank itself goes on
    assert "; the rank itself communicates next at " in sites[1]
    options = EmulateOptions(command=longer, sandbox=(0, 5), on_divergence="follow")
    result = emulate(dense, options)
    assert result.diverged
    assert [w for w in result.warnings if "ghosts followed it" in w][1].startswith("rank 5 leaves its")
    full = mapped(longer, 8)
    for rank, found in result.sandbox.items():
        assert found.peak_allocated_bytes == full.rank(rank).peaks.allocated_bytes
    everyone = emulate(dense, EmulateOptions(command=longer, sandbox=range(8), on_divergence="follow"))
    np.testing.assert_array_equal(everyone.job.iteration_end_ns, replay(full).iteration_end_ns)


REPEATS = """
import torch, torch.distributed as dist

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % 8)
x = torch.ones(256, 256, device="cuda")
for step in range(9):
    dist.all_reduce(x @ x)
    torch.cuda.synchronize()
"""


@pytest.mark.torch
def test_iterations_that_the_collection_found_in_what_repeats(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(REPEATS)
    graph = mapped((str(script),), 2)
    assert graph.iterations == 9
    check(graph, run(graph, (str(script),), (1,)))


@pytest.mark.torch
def test_plain_data_parallelism() -> None:
    graph = mapped(DDP, 4)
    check(graph, run(graph, DDP, (1, 3)))


FAILS = """
import os, sys
import torch, torch.distributed as dist

dist.init_process_group("nccl")
for step in range(3):
    dist.all_reduce(torch.ones(1024, device="cuda"))
    if os.path.exists(sys.argv[1]) and dist.get_rank() == 1 and step == 1:
        raise ValueError("the loss is not a number")
    torch.optim.SGD([torch.nn.Parameter(torch.ones(4, device="cuda"))], lr=0.1).step()
"""


@pytest.mark.torch
def test_a_rank_that_fails_says_why(tmp_path: Path) -> None:
    script, switch = tmp_path / "train.py", tmp_path / "fail"
    script.write_text(FAILS)
    command = (str(script), str(switch))
    graph = mapped(command, 2)
    switch.touch()
    with pytest.raises(RankFailedError, match="rank 1 ended with exit code 1") as caught:
        run(graph, command, (0, 1))
    assert "the loss is not a number" in str(caught.value)


@pytest.mark.torch
def test_ranks_that_were_inferred_are_ghosts_like_others() -> None:
    graph = mapped(DENSE, 32, ranks="auto")
    origins = {rank: graph.rank(rank).origin for rank in graph.ranks.tolist()}
    inferred = [rank for rank, origin in origins.items() if origin == RankOrigin.INFERRED]
    ran = [rank for rank, origin in origins.items() if origin == RankOrigin.RAN]
    assert len(inferred) > len(ran)
    check(graph, run(graph, DENSE, ran[:2]))
    # The distributed optimizer cuts parameters by rank: some of the inferred do other ops there.
    with pytest.raises(DivergenceError, match=r"rank \d+ leaves its recorded program") as caught:
        run(graph, DENSE, inferred)
    told = str(caught.value)
    odd = int(told.split()[1])
    assert odd in inferred
    of_class = [rank for rank in origins if graph.rank(rank).program == graph.rank(odd).program]
    assert "the rank did not run when the graph was collected" in told
    assert str(next(rank for rank in of_class if rank not in inferred)) in told
    assert "--ranks all" in told


def test_ranks_that_poll_otherwise_are_one_warning() -> None:
    polls = [(0, 1060, 20, 396), (1, 59, 60, 400), (5, 60, 20, 396)]
    times, others = np.array([300, 100]), np.array([300, 101])
    (warning,) = poll_warnings(polls, others, times)
    assert warning.startswith("ranks 0-1,5 asked more or less often than recorded whether work was done")
    assert "(rank 0: 1,060 times, recorded 20, first before op 396)" in warning
    assert poll_warnings(polls[:1], others, times)[0].startswith("rank 0 asked ")
    assert poll_warnings(polls, times, times) == poll_warnings([], others, times) == []
    assert poll_warnings(polls, others, times, alone=False) == []


POLLS = """
import sys, time
import torch, torch.distributed as dist

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank % 8)
x = torch.empty(2048, 2048, device="cuda", dtype=torch.bfloat16)
for step in range(4):
    for _ in range(1 + 20 * rank):
        x = x @ x
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    work = dist.all_reduce(torch.empty(1 << 20, device="cuda"), async_op=True)
    work.wait()
    end.record()
    polls = 0
    if rank == 0:
        while not end.query():
            polls += 1
    end.synchronize()
    with open(f"{sys.argv[1]}{rank}", "a") as file:
        print(polls, start.elapsed_time(end), file=file)
    torch.optim.SGD([torch.nn.Parameter(x)], lr=0.1).step()
"""


@pytest.mark.torch
def test_a_rank_that_polls_is_told_the_time_of_its_peers(tmp_path: Path) -> None:
    """Rank 0 polls for what rank 1 comes late to, and times it with events."""
    (tmp_path / "train.py").write_text(POLLS)
    script = str(tmp_path / "train.py")
    graph = mapped((script, str(tmp_path / "alone")), 2)
    slow = Perturbation(slow_ranks=[SlowRank(rank=1, factor=2.0)])

    def told(name: str, sandbox: Sequence[int], slow: Perturbation) -> tuple[object, ...]:
        result = run(graph, (script, str(tmp_path / name)), sandbox, slow)
        ends = result.job.iteration_end_ns.tolist()
        lines = (tmp_path / f"{name}0").read_text().splitlines()
        return ends, [int(line.split()[0]) for line in lines], [float(line.split()[1]) for line in lines]

    # Only rank 0 polls, so that a ghost for rank 1 does what rank 1 does.
    one, both = told("one", [0], NOTHING), told("both", [0, 1], NOTHING)
    assert one == both == told("again", [0], NOTHING)
    slowed = told("slowed", [0], slow)
    assert slowed == told("slowed_both", [0, 1], slow)
    polls, times = zip(
        *(line.split() for line in (tmp_path / "alone0").read_text().splitlines()), strict=True
    )
    for step in range(1, len(polls)):
        # 20 products behind: the poller sees it, as it could not when it was collected alone.
        assert slowed[1][step] > one[1][step] > int(polls[step])
        assert slowed[2][step] > one[2][step] > float(times[step])
        # Twice as far behind: twice the kernels of one rank, and nothing else.
        late_ns = 20 * 2 * float(kernel_ns(graph))
        assert slowed[2][step] - float(times[step]) == pytest.approx(late_ns * 1e-6, rel=0.1)


def kernel_ns(graph: Graph) -> int:
    """Duration of the largest kernel of rank 1."""
    ops = graph.ops(1)
    return int(ops["duration_ns"][ops["kind"] == 1].max())


@pytest.mark.parametrize(
    ("sandbox", "words"),
    [
        ([], "no sandbox rank"),
        ([0, 0], "named twice"),
        (range(2000), "2000 sandbox ranks found, expected at most 1024"),
    ],
)
def test_options_that_cannot_be(sandbox: Sequence[int], words: str) -> None:
    with pytest.raises(EmulateError, match=words):
        EmulateOptions(command=["train.py"], sandbox=sandbox)


def test_graphs_that_cannot_be_emulated() -> None:
    with pytest.raises(EmulateError, match="sandbox rank 3 found, expected ranks of the graph: 0-2"):
        emulate(jobs.pipeline(), EmulateOptions(command=["train.py"], sandbox=[1, 3]))
    with pytest.raises(EmulateError, match="with which cluster it was collected"):
        emulate(jobs.pipeline(), EmulateOptions(command=["train.py"], sandbox=[1]))


@pytest.mark.torch
def test_counts_hold_where_memory_is_used_again() -> None:
    """The buffer in which ``masked_select`` counts lies where counts of the rule had been written."""
    size = ("--hidden", "256", "--ffn", "512", "--vocab", "1024", "--seq", "128")
    command = (*EXPERTS, *size, "--tp", "2")
    options = CollectOptions(command=command, world_size=32, ranks="2", routing="hot-experts")
    assert collect(options).graph.iterations == 3
