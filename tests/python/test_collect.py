"""Whole jobs on the virtual GPU: ranks that were inferred against the same ranks run."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from prismcore.collect import CollectInterrupted, CollectOptions, CollectProgress, CollectResult, collect
from prismcore.collect.options import parse_ranks
from prismcore.collect.records import iteration_time_ns
from prismcore.errors import CollectError, OutOfMemoryError, ProfileError, RankFailedError
from prismcore.graph import Graph, RankOrigin
from prismcore.graph.op import MarkKind, OpKind
from prismcore.replay import replay
from prismcore.report import warnings
from prismcore.report.summary import summarize

MEGATRON = str(Path(__file__).parents[2] / "examples" / "megatron_gpt.py")
DDP = str(Path(__file__).parents[2] / "examples" / "ddp.py")


def run(*command: str, world_size: int, **options) -> CollectResult:
    return collect(CollectOptions(command=command, world_size=world_size, **options))


@pytest.fixture(scope="module", params=[("sharded", 64), ("plain", 32)], ids=lambda param: param[0])
def jobs(request) -> tuple[str, CollectResult, CollectResult]:
    """Of so many ranks, about half of which are inferred."""
    kind, world = request.param
    flags = ["--no-dist-optimizer"] if kind == "plain" else []
    command = [MEGATRON, "--tp", "2", "--pp", "4", "--micro-batches", "4", *flags]
    auto = run(*command, world_size=world)
    return kind, auto, run(*command, world_size=world, ranks="all")


@pytest.mark.torch
def test_inferred_ranks_are_what_they_would_have_been(jobs):
    kind, auto, everything = jobs
    a, b = auto.graph, everything.graph
    world = b.world_size
    assert auto.ranks_run <= world // 2
    assert auto.ranks_run + auto.ranks_inferred == world
    assert (everything.ranks_run, everything.ranks_inferred) == (world, 0)
    assert a.communication_digest() == b.communication_digest()
    if kind == "plain":
        assert a.digest() == b.digest()
    spread = auto.metadata["spread"]["peak"]
    for rank in range(world):
        mine, real = a.rank(rank).peaks, b.rank(rank).peaks
        assert mine.requested_bytes == real.requested_bytes
        difference = abs(mine.allocated_bytes - real.allocated_bytes) / real.allocated_bytes
        assert difference <= min(0.01, spread + 1e-9)
    assert_times_within_spread(auto, everything)
    times = [replay(graph).median_iteration_time_ns for graph in (a, b)]
    assert abs(times[0] - times[1]) <= 0.001 * times[1]


def assert_times_within_spread(auto: CollectResult, everything: CollectResult) -> None:
    """The last iteration of every rank alone lies as near to what it was taken for as reported."""
    spread = auto.metadata["spread"]["iteration_time"]
    for rank in range(everything.graph.world_size):
        mine, real = iteration_time_ns(auto.graph, rank), iteration_time_ns(everything.graph, rank)
        assert abs(mine - real) <= spread * min(mine, real) + 1


@pytest.mark.torch
def test_the_replayed_curve_peaks_where_the_allocator_said(jobs):
    _, _, everything = jobs
    for rank in range(0, everything.graph.world_size, 7):
        assert peak_of_curve(everything.graph, rank) == everything.graph.rank(rank).peaks.allocated_bytes


def peak_of_curve(graph: Graph, rank: int) -> int:
    ops = graph.ops(rank)
    change = np.where(ops["kind"] == OpKind.ALLOCATE, ops["bytes"], 0)
    change -= np.where(ops["kind"] == OpKind.FREE, ops["bytes"], 0)
    return int(np.cumsum(change).max())


@pytest.mark.torch
def test_origins_and_metadata_say_what_ran(jobs):
    _, auto, _ = jobs
    origins = [auto.graph.rank(rank).origin for rank in auto.graph.ranks.tolist()]
    assert origins.count(RankOrigin.INFERRED) == auto.ranks_inferred
    assert origins.count(RankOrigin.CHECKED) == auto.ranks_checked > 0
    metadata = auto.graph.metadata
    assert metadata["command"][0] == MEGATRON
    assert (metadata["device"], metadata["iterations"]) == ("virtual:h100", 3)
    assert "gpus_per_node" in metadata["cluster"]  # the profile's text
    assert metadata["unknown_kernels"] == {}
    assert metadata["unimplemented"] == {}


@pytest.mark.torch
def test_ranks_of_a_list_run_and_the_rest_is_absent():
    steps: list[CollectProgress] = []
    options = CollectOptions(
        command=[MEGATRON, "--tp", "2", "--layers", "2"], world_size=16, ranks="3,9-10", iterations=2
    )
    result = collect(options, steps.append)
    assert result.graph.ranks.tolist() == [3, 9, 10]
    assert result.graph.iterations == 2
    assert steps[-1].phase == "done"
    assert [s.done for s in steps] == sorted(s.done for s in steps)


UNEVEN = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
kept = torch.empty(512 << dist.get_rank(), device="cuda", dtype=torch.uint8)
dist.all_reduce(torch.ones(16, device="cuda"))
"""


@pytest.mark.torch
def test_spread_covers_the_ranks_that_ran_where_all_of_them_did(tmp_path):
    (tmp_path / "train.py").write_text(UNEVEN)
    result = run("train.py", world_size=4, working_directory=tmp_path, ranks="all", iterations=1)
    peaks = [result.graph.rank(rank).peaks.allocated_bytes for rank in range(4)]
    assert max(peaks) > min(peaks)
    assert result.metadata["spread"]["peak"] == (max(peaks) - min(peaks)) / min(peaks)


SHARDED = """
import os, torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
x = torch.ones(1 << 20, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
for step in range(3):
    (x * 2).sum().backward()
    for i in range(16):
        dist.all_reduce(x.grad)
    for i in range(dist.get_rank() % 3):  # a share of work that follows the rank
        x.grad.mul_(0.5)
    optimizer.step()
"""


@pytest.mark.torch
def test_spread_covers_the_ranks_that_did_not_run(tmp_path):
    (tmp_path / "train.py").write_text(SHARDED)
    auto = run("train.py", world_size=32, working_directory=tmp_path)
    everything = run("train.py", world_size=32, working_directory=tmp_path, ranks="all")
    assert auto.ranks_inferred > 0
    assert auto.metadata["spread"]["iteration_time"] > 0
    assert auto.metadata["spread"] == everything.metadata["spread"]
    assert_times_within_spread(auto, everything)


MARKED = """
import prismcore, torch, torch.distributed as dist
dist.init_process_group("nccl")
for step in range(6):
    for _ in range(2):
        dist.all_reduce(torch.ones(16, device="cuda"))
    {end}
"""


@pytest.mark.torch
@pytest.mark.parametrize(("end", "iterations"), [("prismcore.mark_iteration()", 3), ("pass", 5)])
def test_iterations_of_a_program_without_an_optimizer(tmp_path, end, iterations):
    """Marked by the program: the rank ends after three. Not marked: found in what repeats, which for
    six equal steps of two all-reduces may be taken in other pieces, but never as none."""
    (tmp_path / "train.py").write_text(MARKED.format(end=end))
    result = run("train.py", world_size=2, working_directory=tmp_path, ranks="all")
    ops = result.graph.ops(0)
    marks = (ops["kind"] == OpKind.MARK) & (ops["detail"] == MarkKind.ITERATION)
    reductions = int((ops["kind"] == OpKind.ALL_REDUCE).sum())
    if end != "pass":
        assert (int(marks.sum()), reductions) == (iterations, 6)
        assert result.metadata["notes"] == []
    else:
        assert reductions == 12
        assert int(marks.sum()) >= iterations
        assert "repetition" in result.metadata["notes"][0]


@pytest.mark.torch
def test_plain_data_parallelism_runs_few_ranks():
    result = run(DDP, "--layers", "2", "--hidden", "128", "--heads", "4", "--vocab", "512", world_size=64)
    assert result.ranks_run <= 20
    assert len(result.graph.ranks) == 64
    assert replay(result.graph).median_iteration_time_ns > 0


@pytest.mark.torch
def test_a_job_that_does_not_fit_names_stage_rank_and_op():
    command = [MEGATRON, "--preset", "70b", "--attention", "local", "--tp", "8", "--pp", "16"]
    with pytest.raises(OutOfMemoryError) as caught:
        run(*command, "--micro-batches", "16", world_size=256, keep_partial=True)
    text = str(caught.value)
    for words in ("rank 0", "pipeline stage 0 of 16", "asked for", "held", "softmax"):
        assert words in text
    partial = caught.value.partial
    assert partial is not None
    assert partial.ranks.tolist() == [0]
    assert partial.metadata["partial"] is True


@pytest.mark.torch
def test_sizes_that_do_not_divide_the_world_are_told_in_one_line():
    with pytest.raises(RankFailedError) as caught:
        run(MEGATRON, "--tp", "3", world_size=8)
    assert "3 does not divide 8" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"world_size": 12}, CollectError, "multiple of the 8 GPUs"),
        ({"world_size": 8, "device": "virtual:h9000"}, ProfileError, "h9000"),
        ({"world_size": 8, "cluster": Path("absent.toml")}, ProfileError, "absent"),
        ({"world_size": 0}, CollectError, "world size 0"),
        ({"world_size": 8, "ranks": "8"}, CollectError, "rank 8"),
        ({"world_size": 8, "slots": 0}, CollectError, "slots 0"),
    ],
)
def test_what_cannot_be_collected_is_refused_before_anything_runs(options, error, words):
    with pytest.raises(error, match=words):
        run(MEGATRON, **options)


def test_rank_lists():
    assert parse_ranks("0,8,16-18", 32) == [0, 8, 16, 17, 18]
    assert parse_ranks(" 3 , 3-4 ", 8) == [3, 4]
    for text in ("", "a", "1-", "-1", "3-2", "0,,1", "8"):
        with pytest.raises(CollectError):
            parse_ranks(text, 8)


OTHER_GROUPS = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank % 8)
mine = dist.new_group([rank], use_local_synchronization=True) if rank % 2 else None
x = torch.ones(1024, device="cuda")
for _ in range(3):
    dist.all_reduce(x)
    if mine is not None:
        dist.all_reduce(x, group=mine)
    torch.cuda.synchronize()
"""


@pytest.mark.torch
def test_ranks_that_make_other_groups_are_mapped_one_by_one_only(tmp_path):
    script = tmp_path / "uneven.py"
    script.write_text(OTHER_GROUPS)
    with pytest.raises(CollectError, match=r"other process groups than rank 0.*--ranks all"):
        run(str(script), world_size=16)
    result = run(str(script), world_size=16, ranks="all")
    assert (result.ranks_run, result.graph.num_programs) == (16, 2)
    assert any("made other process groups" in note for note in result.metadata["notes"])
    assert result.graph.rank(1).bindings.size > result.graph.rank(0).bindings.size


BRANCHES = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank % 8)
x = torch.ones(1024, device="cuda")
for _ in range(3):
    if rank % 2:
        dist.all_reduce(x)  # odd
    else:
        dist.all_reduce(x)  # even
    torch.cuda.synchronize()
"""


@pytest.mark.torch
def test_ranks_that_call_from_elsewhere_keep_their_sites_and_are_one_class(tmp_path):
    script = tmp_path / "branches.py"
    script.write_text(BRANCHES)
    lines = [number for number, line in enumerate(BRANCHES.splitlines(), 1) if "all_reduce" in line]
    graph = run(str(script), world_size=16, ranks="all").graph
    assert (graph.num_programs, summarize(graph).classes) == (2, 1)
    for rank in range(16):
        sites = {site for site in graph.program_call_sites(graph.rank(rank).program) if site}
        assert len(sites) == 1
        assert f"branches.py:{lines[0 if rank % 2 else 1]} " in sites.pop()


@pytest.fixture
def interruptible():
    """A test run in the background may have been started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_at(phase: str, done: int = 0):
    def tell(progress: CollectProgress) -> None:
        if progress.phase == phase and progress.done >= done:
            os.kill(os.getpid(), signal.SIGINT)

    return tell


@pytest.mark.torch
@pytest.mark.parametrize(
    ("phase", "done", "kept"), [("start", 0, None), ("classes", 1, 1), ("confirm", 2, 2), ("merge", 0, 2)]
)
def test_an_interrupt_at_any_phase_keeps_what_there_is(tmp_path, interruptible, phase, done, kept):
    (tmp_path / "train.py").write_text(MARKED.format(end="prismcore.mark_iteration()"))
    options = {"command": ["train.py"], "world_size": 64, "working_directory": tmp_path}
    with pytest.raises(CollectInterrupted) as caught:
        collect(CollectOptions(**options, keep_partial=True), interrupt_at(phase, done))
    partial = caught.value.partial
    if kept is None:
        assert partial is None
    else:
        metadata = partial.metadata
        assert metadata["partial"] is True
        assert metadata["ranks_run"] >= kept
        assert len(partial.ranks) == metadata["ranks_run"] + metadata["ranks_inferred"]
        assert len(partial.ranks) < 64
        assert {partial.rank(rank).origin for rank in partial.ranks.tolist()} <= {
            RankOrigin.RAN,
            RankOrigin.CHECKED,
        }
    with pytest.raises(KeyboardInterrupt) as caught:
        collect(CollectOptions(**options), interrupt_at(phase, done))
    assert type(caught.value) is KeyboardInterrupt


@pytest.mark.torch
def test_an_interrupt_while_the_graph_is_written(tmp_path, interruptible, monkeypatch, capfd):
    """The file is whole or, without the flag and before writing has begun, absent."""
    from prismcore.cli.main import main

    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(MARKED.format(end="prismcore.mark_iteration()"))
    save = Graph.save

    def interrupted_save(graph: Graph, path: Path) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        save(graph, path)

    monkeypatch.setattr(Graph, "save", interrupted_save)
    command = ["collect", "--world-size", "2", "-o", "job.prism", "--keep-partial", "--", "train.py"]
    assert main(command) == 1
    complete = "prism: job.prism is complete\nprism: error: interrupted\n"
    assert capfd.readouterr().err == complete
    assert len(Graph.open("job.prism").ranks) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["job.prism", "train.py"]
    command.remove("--keep-partial")  # it is written, and whole, all the same
    assert main(command) == 1
    assert capfd.readouterr().err == complete
    monkeypatch.setattr(Graph, "save", save)
    monkeypatch.setattr(warnings, "collection_warnings", lambda graph: os.kill(os.getpid(), signal.SIGINT))
    assert main(command) == 1
    assert capfd.readouterr().err == complete
