"""Groups of a GPT by megatron-core, tensor or pipeline parallel: one is lost, and comes back."""

from __future__ import annotations

import importlib.util
import signal
import unittest.mock
from collections.abc import Iterator
from multiprocessing import spawn
from typing import Any

import pytest
from megatron_family import Job, run_jobs
from spare_training import PATIENCE_S, WORKERS, Lighthouse, bare_preparation

from prismcore.adapters.megatron_gradients import MegatronGradients
from prismcore.errors import SpareError
from prismcore.spare.runtime.inject import fail

torch = pytest.importorskip("torch")
if importlib.util.find_spec("megatron") is None:
    pytest.skip("needs megatron-core", allow_module_level=True)
pytestmark = pytest.mark.torch

KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Job]]:
    """All run, by forks of one process."""

    def job(name: str, **options: Any) -> Job:
        folder = tmp_path_factory.mktemp(name)
        return Job(folder=folder, lighthouse=lighthouse.address, **options)

    tensor, pipeline = ["--tp", "2"], ["--pp", "2"]
    strike = fail(group=1, position=1).during("commit", step=1)
    with Lighthouse() as lighthouse:
        found = {
            "plain tensor": job("plain-tensor", arguments=tensor, plain=True),
            "tensor": job("tensor", arguments=tensor),
            "tensor, one lost": job("tensor-lost", arguments=tensor, inject=[strike], again=[1]),
            "exact tensor": job("exact", arguments=[*tensor, "--deterministic"], steps=4),
            "exact tensor, one lost": job(
                "exact-lost", arguments=[*tensor, "--deterministic"], steps=4, inject=[strike]
            ),
            "plain pipeline": job("plain-pipeline", arguments=pipeline, plain=True),
            "pipeline, one lost": job(
                "pipeline-lost", arguments=pipeline, inject=[fail(group=1).during("reduce", step=1)]
            ),
        }
        process = WORKERS.Process(target=run_jobs, args=(list(found.values()),))
        with unittest.mock.patch.object(spawn, "get_preparation_data", bare_preparation):
            process.start()
        process.join(4 * PATIENCE_S)
        if process.exitcode is None:
            process.kill()
            process.join()
        yield found


@pytest.mark.parametrize("name", ["tensor", "tensor, one lost", "pipeline, one lost"])
def test_losses_are_those_of_megatron_alone(jobs: dict[str, Job], name: str) -> None:
    job, plain = jobs[name], jobs[f"plain {name.partition(',')[0]}"]
    codes = job.exit_codes()
    expected = {f"{group}.{position}.0": 0 for group in range(3) for position in range(2)}
    if "lost" in name:
        killed = job.inject[0].position
        expected |= {f"1.{killed}.0": KILLED, f"1.{1 - killed}.0": 1}
    if job.again:
        expected |= {"1.0.1": 0, "1.1.1": 0}
    assert codes == expected, job.logs()
    assert plain.losses()[0] > plain.losses()[-1]
    assert job.losses() == pytest.approx(plain.losses(), rel=1e-5)


def test_deterministic_to_the_last_bit(jobs: dict[str, Job]) -> None:
    whole, broken = jobs["exact tensor"], jobs["exact tensor, one lost"]
    assert KILLED in broken.exit_codes().values(), broken.logs()
    assert broken.losses() == whole.losses()
    assert whole.losses() == pytest.approx(jobs["plain tensor"].losses()[: whole.steps], rel=1e-5)


def test_what_does_not_go_with_it_is_named(jobs: dict[str, Job]) -> None:
    refused = (jobs["plain tensor"].folder / "refused").read_text()
    assert "Megatron is set up with overlap_grad_reduce, calculate_per_token_loss" in refused
    with pytest.raises(SpareError, match="Linear found, expected Megatron's DistributedDataParallel"):
        MegatronGradients(torch.nn.Linear(2, 2))
