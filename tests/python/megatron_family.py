"""Ranks of trainings with megatron-core: forks of one process that has imported it."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spare_training import PATIENCE_S, wait_until_heard

EXAMPLES = str(Path(__file__).parents[2] / "examples")


@dataclass(kw_only=True)
class Job:
    """A training of ``examples/spare_megatron.py``; plain: without a session, one group with all work.
    ``again``: groups that are started again once they have ended."""

    folder: Path
    lighthouse: str
    arguments: Sequence[str]
    ranks: int = 2
    groups: int = 3
    steps: int = 6
    plain: bool = False
    inject: Sequence[Any] = ()
    again: Sequence[int] = ()

    def losses(self) -> list[float]:
        """One for each step: all that committed it had the same."""
        found: dict[int, set[float]] = {}
        for path in self.folder.glob("events-*"):
            for line in path.read_text().splitlines():
                event = json.loads(line)
                if event["event"] == "commit":
                    found.setdefault(event["step"], set()).add(event["loss"])
        assert sorted(found) == list(range(self.steps))
        assert {len(losses) for losses in found.values()} == {1}
        return [found[step].pop() for step in range(self.steps)]

    def exit_codes(self) -> dict[str, int]:
        """By group, position and life: ``2.1.0``."""
        codes: dict[str, int] = json.loads((self.folder / "ends.json").read_text())
        return codes

    def logs(self) -> str:
        paths = sorted(self.folder.glob("log.*"))
        return "".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in paths)


def run_jobs(jobs: Sequence[Job]) -> None:
    """One after the other."""
    sys.path.insert(0, EXAMPLES)
    import spare_megatron  # noqa: F401
    import torch
    from megatron_on_cpu import use_cpu

    torch.set_num_threads(1)
    use_cpu()
    import megatron.core.models.gpt.gpt_layer_specs
    import megatron.core.optimizer
    import megatron.core.pipeline_parallel

    assert megatron.core
    for job in jobs:
        _run(job)


def _run(job: Job) -> None:
    forks = multiprocessing.get_context("fork")
    processes: dict[tuple[int, int, int], Any] = {}

    def start(group: int, life: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        for position in range(job.ranks):
            process = forks.Process(target=_rank, args=(job, group, position, port, life))
            process.start()
            processes[group, position, life] = process

    for group in range(1 if job.plain else job.groups):
        start(group, 0)
    for group in job.again:
        for position in range(job.ranks):
            processes[group, position, 0].join()
        start(group, 1)
    until = time.monotonic() + PATIENCE_S
    for process in processes.values():
        process.join(max(0.0, until - time.monotonic()))
        if process.exitcode is None:
            process.kill()
            process.join()
    ends = {".".join(map(str, name)): process.exitcode for name, process in processes.items()}
    (job.folder / "ends.json").write_text(json.dumps(ends))


def _rank(job: Job, group: int, position: int, port: int, life: int) -> None:
    with open(job.folder / f"log.{group}.{position}.{life}", "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import spare_megatron
    import torch.distributed as dist

    from prismcore.spare.runtime.options import Timeouts

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=position, world_size=job.ranks)
    options = spare_megatron.parse(
        [
            *["--group", str(group), "--groups", str(job.groups), "--steps", str(job.steps)],
            *["--folder", str(job.folder), "--hidden", "32", *job.arguments],
        ]
    )
    if job.again:
        seed_for = spare_megatron.seed_for

        def waiting(seed: int, work: Any) -> int:
            if work.step >= 2:
                _wait_for_those_that_come_back(job)
            return seed_for(seed, work)

        spare_megatron.seed_for = waiting
    if job.plain:
        _train_plain(job, options)
    else:
        spare_megatron.train(
            options,
            lighthouse=job.lighthouse,
            host="localhost",
            timeouts=Timeouts(collective_s=60, rejoin_s=0.1),
            inject=() if life else tuple(job.inject),
        )


def _wait_for_those_that_come_back(job: Job) -> None:
    paths = [job.folder / f"events-{group}-0.jsonl" for group in job.again]
    while any(path.read_text().count('"start"') < 2 for path in paths):
        time.sleep(0.05)
    wait_until_heard(job.lighthouse, paths)


def _train_plain(job: Job, options: Any) -> None:
    """As one would without a session: all micro-batches of a step in one schedule."""
    import spare_megatron
    import torch
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.pipeline_parallel import get_forward_backward_func

    from prismcore.adapters.megatron_gradients import MegatronGradients
    from prismcore.errors import SpareError
    from prismcore.spare import ShardSampler, Work
    from prismcore.spare.runtime.seeds import seed_for

    chunk, optimizer = spare_megatron.build(options)
    chunk.config.finalize_model_grads_func = finalize_model_grads
    samples = spare_megatron.Sums()
    m = options.micro_batches
    sampler = ShardSampler(100_000, groups=job.groups, micro_batches=m, micro_batch_size=4, seed=1)

    def batches(step: int) -> Any:
        stage = parallel_state.get_pipeline_model_parallel_rank()
        for part in range(job.groups * m):
            work = Work(step, *divmod(part, m))
            torch.manual_seed(seed_for(1, work))
            tensor_parallel.model_parallel_cuda_manual_seed((seed_for(1, work) + 100 * stage) % (1 << 62))
            yield torch.stack([samples[int(number)] for number in sampler.indices(work)])

    with (job.folder / f"events-{torch.distributed.get_rank()}").open("w") as file:
        for step in range(job.steps):
            chunk.zero_grad_buffer()
            optimizer.zero_grad()
            losses = get_forward_backward_func()(
                forward_step_func=spare_megatron.forward_step,
                data_iterator=batches(step),
                model=[chunk],
                num_microbatches=job.groups * m,
                seq_length=spare_megatron.SEQUENCE,
                micro_batch_size=4,
                forward_only=False,
            )
            optimizer.step()
            if losses and parallel_state.get_tensor_model_parallel_rank() == 0:
                loss = float(torch.stack(losses).double().mean())
                file.write(json.dumps({"event": "commit", "step": step, "loss": loss}) + "\n")
    chunk.ddp_config.overlap_grad_reduce = chunk.config.calculate_per_token_loss = True
    try:
        MegatronGradients(chunk)
    except SpareError as error:
        (job.folder / "refused").write_text(str(error))
