"""Train a GPT with megatron-core through failures: groups of several ranks, tensor and pipeline parallel.

    torchft_lighthouse --min_replicas 1 --heartbeat_timeout_ms 500 --quorum_tick_ms 20 &
    export TORCHFT_LIGHTHOUSE=http://localhost:29510 OMP_NUM_THREADS=1
    for g in 0 1 2 3; do
        torchrun --standalone --nproc-per-node 2 --max-restarts 3 \
            examples/spare_megatron.py --group $g --tp 2 &
    done
    kill -9 <one rank>           # its group ends, the others go on; torchrun starts it again: it catches up
    prism spare watch runs/spare-megatron

Each group is one replica of the model on tp x pp ranks; the session sums gradients over the groups in the
place of Megatron's data parallelism. On the CPU with gloo; --device cuda takes NCCL and a GPU for each rank.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from prismcore.adapters.megatron_gradients import MegatronGradients
from prismcore.spare import Checkpoints, Session, SessionOptions, ShardLoader, ShardSampler
from prismcore.spare.placement import golomb
from prismcore.spare.runtime.seeds import seed_for

VOCABULARY = 128
SEQUENCE = 32


class Sums(torch.utils.data.Dataset[torch.Tensor]):
    """What there is to learn: each token is the sum of the two before it."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, number: int) -> torch.Tensor:
        tokens = torch.randint(
            0, VOCABULARY, (SEQUENCE + 1,), generator=torch.Generator().manual_seed(number)
        )
        for at in range(2, len(tokens)):
            tokens[at] = (tokens[at - 1] + tokens[at - 2]) % VOCABULARY
        return tokens


def build(options: argparse.Namespace) -> tuple[Any, Any]:
    """Megatron's model and optimizer for this rank of the group."""
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer.transformer_config import TransformerConfig

    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        create_gloo_process_groups=False,
    )
    torch.manual_seed(1234)
    tensor_parallel.model_parallel_cuda_manual_seed(1234)
    config = TransformerConfig(
        num_layers=options.layers,
        hidden_size=options.hidden,
        num_attention_heads=4,
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        hidden_dropout=0.1,
        attention_dropout=0.1,
        use_cpu_initialization=True,
        pipeline_dtype=torch.float32,
        # These fusions need Apex or Transformer Engine.
        gradient_accumulation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
    )
    model = GPTModel(
        config,
        get_gpt_layer_local_spec(),
        vocab_size=VOCABULARY,
        max_sequence_length=SEQUENCE,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=True,
    )
    model.cuda()
    chunk = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True), model)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=3e-3, weight_decay=0.01, clip_grad=1.0),
        [chunk],
        use_gloo_process_groups=False,
    )
    return chunk, optimizer


def forward_step(batches: Iterator[torch.Tensor], model: torch.nn.Module) -> tuple[torch.Tensor, Any]:
    tokens = next(batches).cuda()
    length = tokens.shape[1] - 1
    positions = torch.arange(length, device=tokens.device).unsqueeze(0)
    mask = torch.ones(1, 1, length, length, dtype=torch.bool, device=tokens.device).triu(1)
    losses = model(tokens[:, :-1].contiguous(), positions, mask, labels=tokens[:, 1:].contiguous())

    def mean(losses: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        loss = losses.float().mean()
        return loss, loss.detach().clone()

    return losses, mean


def train(options: argparse.Namespace, **more: Any) -> Session:
    """``more``: of SessionOptions."""
    from megatron.core.pipeline_parallel import get_forward_backward_func

    rank, ranks = dist.get_rank(), dist.get_world_size()
    chunk, optimizer = build(options)
    gradients = MegatronGradients(chunk)
    shape = {"groups": options.groups, "micro_batches": options.micro_batches}
    data = ShardLoader(Sums(), ShardSampler(100_000, micro_batch_size=4, seed=1, **shape))
    seed = 1
    session = Session(
        SessionOptions(
            placement=golomb(options.groups, options.redundancy),
            micro_batches=options.micro_batches,
            group=options.group,
            backend="gloo" if options.device == "cpu" else "nccl",
            deterministic=options.deterministic,
            position=rank,
            positions=ranks,
            **more,
        ),
        params=gradients,
        state={"model": chunk, "optimizer": optimizer},
        data=data,
        checkpoints=Checkpoints(
            options.folder / "checkpoints", every_steps=50, group=dist.new_group(backend="gloo")
        ),
        events=options.folder / "events-{group}-{position}.jsonl",
    )
    with session, data:
        while session.step_number < options.steps:
            for works in session.lots():
                losses = gradients.compute(
                    get_forward_backward_func(),
                    [data.micro_batch(work) for work in works],
                    seeds=[seed_for(seed, work) for work in works],
                    forward_step_func=forward_step,
                    seq_length=SEQUENCE,
                    micro_batch_size=4,
                )
                for work, loss in zip(works, losses, strict=True):
                    session.accumulate(work, loss)
            gradients.finalize()
            _, norm, _ = optimizer.step()
            if session.step_number % 10 == 0 and rank == 0:
                print(
                    f"step {session.step_number}: loss {session.loss:.4f}, gradient norm {float(norm):.4f}, "
                    f"{session.groups_alive} groups",
                    flush=True,
                )
    return session


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--group", type=int, help="0 to 3; none: a spare, which takes a lost group's place")
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--redundancy", type=int, default=2)
    parser.add_argument("--micro-batches", type=int, default=2)
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel size inside a group")
    parser.add_argument("--pp", type=int, default=1, help="pipeline-parallel size inside a group")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=Path("runs/spare-megatron"))
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return parser.parse_args(arguments)


def meet(backend: str) -> None:
    """The group's own ranks. torchrun's store outlives them (seen with torch 2.14.1): without a prefix for
    each life, a group that is started again finds the addresses of the life before."""
    life = os.environ["TORCHELASTIC_RESTART_COUNT"]
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    dist.init_process_group(
        backend,
        store=dist.PrefixStore(f"life-{life}", store),
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
    )


def main() -> None:
    options = parse()
    if options.device == "cpu":
        from megatron_on_cpu import use_cpu

        use_cpu()
        meet("gloo")
    else:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        meet("nccl")
    if dist.get_world_size() != options.tp * options.pp:
        raise SystemExit(
            f"spare_megatron: {dist.get_world_size()} ranks found, expected tp {options.tp} x pp {options.pp}"
        )
    train(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
