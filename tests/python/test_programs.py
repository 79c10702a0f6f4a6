"""Ordinary training programs of many kinds, unmodified, as ranks of a job on the virtual GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from prismcore.collect import CollectOptions, CollectResult, collect
from prismcore.graph import Graph
from prismcore.graph.op import OpKind

pytestmark = pytest.mark.torch

PROGRAMS = Path(__file__).parents[1] / "programs"
EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ("--layers", "2", "--hidden", "256", "--heads", "4", "--vocab", "4096")
JOBS: dict[str, tuple[str, ...]] = {
    "ddp": (str(EXAMPLES / "ddp.py"), *SMALL),
    **{path.stem: (str(path),) for path in sorted(PROGRAMS.glob("*.py"))},
}


def run(*command: str, ranks: str = "0,7,15", iterations: int = 3) -> CollectResult:
    return collect(CollectOptions(command=command, world_size=16, ranks=ranks, iterations=iterations))


def peak_of_curve(graph: Graph, rank: int) -> int:
    """Largest sum of allocations less frees, in bytes."""
    ops = graph.ops(rank)
    change = np.where(ops["kind"] == OpKind.ALLOCATE, ops["bytes"], 0)
    change -= np.where(ops["kind"] == OpKind.FREE, ops["bytes"], 0)
    return int(np.cumsum(change).max())


@pytest.mark.parametrize("name", JOBS)
def test_a_program_runs_and_its_curve_peaks_where_the_allocator_said(name: str) -> None:
    result = run(*JOBS[name])
    for rank in result.graph.ranks.tolist():
        peak = result.graph.rank(rank).peaks.allocated_bytes
        assert peak_of_curve(result.graph, rank) == peak > 0
    assert result.graph.iterations >= 3
    assert result.metadata["unimplemented"] == {}


@pytest.mark.parametrize("setting", ["backend:cudaMallocAsync", "expandable_segments:True"])
def test_the_curve_is_exact_with_other_allocators_too(setting: str, monkeypatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", setting)
    graph = run(*JOBS["streams"], ranks="3").graph
    assert peak_of_curve(graph, 3) == graph.rank(3).peaks.allocated_bytes > 0


UNAWAITED = """
import torch, torch.distributed as dist
dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % 8)
x = torch.empty(8192, 8192, device="cuda", dtype=torch.bfloat16)
for _ in range(24):
    for _ in range(20):
        x = x @ x
    dist.all_reduce(torch.empty(64 << 20, device="cuda", dtype=torch.uint8), async_op=True)
    torch.cuda.synchronize()
"""


def test_what_nobody_waits_for_is_freed_by_the_ranks_own_time(tmp_path: Path) -> None:
    """Torch's watchdog frees it, every 100 ms: of the rank's clock, not of this busy machine's."""
    script = tmp_path / "train.py"
    script.write_text(UNAWAITED)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            results = [run(str(script), ranks="1-4"), run(str(script), ranks="1-4")]
        finally:
            busy.kill()
    assert results[0].graph.num_programs == 1
    assert results[0].graph.digest() == results[1].graph.digest()
    # Beside two or three matrices of 128 MiB: the buffers of a few iterations, not of all 24.
    peak = results[0].graph.rank(1).peaks.allocated_bytes
    assert 2 * 128 + 2 * 64 <= peak >> 20 <= 3 * 128 + 10 * 64


def test_plain_data_parallelism_is_the_same_in_every_run() -> None:
    command = (*JOBS["ddp"], "--iterations", "6")
    results = [run(*command, ranks="1-3", iterations=6) for _ in range(2)]
    assert results[0].graph.num_programs == 1
    assert results[0].graph.digest() == results[1].graph.digest()
