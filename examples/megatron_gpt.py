"""Pre-train a GPT with megatron-core: tensor, pipeline, data and expert parallel.

    torchrun --nproc-per-node 8 examples/megatron_gpt.py --preset 8b --tp 8 --micro-batches 4
    torchrun --nproc-per-node 8 examples/megatron_gpt.py --experts 8 --topk 2 --ep 4
    torchrun --nproc-per-node 8 examples/megatron_gpt.py --family gpt --precision fp16 --attention masked

The data-parallel size is what is left of the world: world / (tp * pp). With --experts every layer is a
mixture of experts, which lie on ep of the ranks that hold the same stage; tokens go there and back by
all-to-all (--dispatcher). Attention is flash attention through torch's scaled_dot_product_attention, so
that neither Transformer Engine nor Apex is needed; data is synthetic.

--family llama (default): RMSNorm, SwiGLU, rotary positions, grouped queries, no biases. --family gpt: as
GPT-2 and GPT-3, LayerNorm, GELU, learned positions, biases, dropout, the embedding as output layer.

Presets (the published Llama 3 shapes; flags given beside a preset win over it):

    preset  layers  hidden  heads  kv-heads    ffn  vocab    seq
    8b          32    4096     32         8  14336  128256  8192
    70b         80    8192     64         8  28672  128256  8192
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial

import torch
import torch.distributed as dist
import torch.nn.functional as F  # noqa: N812
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer import optimizer as mixed_precision
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.transformer_block import (
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.attention import SDPBackend, sdpa_kernel

LLAMA3 = {"vocab": 128256, "seq": 8192, "kv_heads": 8}
PRESETS = {
    "8b": {**LLAMA3, "layers": 32, "hidden": 4096, "heads": 32, "ffn": 14336},
    "70b": {**LLAMA3, "layers": 80, "hidden": 8192, "heads": 64, "ffn": 28672},
}
# Without Transformer Engine megatron-core 0.16.1 never binds this name, and its router reads it: on a
# GPU too, the gate fails with a NameError. None is what it tests for.
if not hasattr(moe_utils, "te_general_gemm"):
    moe_utils.te_general_gemm = None

SMALL = {"vocab": 32000, "seq": 1024, "kv_heads": 8, "layers": 8, "hidden": 1024, "heads": 16, "ffn": 3584}


class RMSNorm(torch.nn.Module):
    """Root mean square norm whose weight is known to megatron as replicated under sequence parallel."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: object) -> None:
        super().__init__()
        self.eps = eps
        weight = torch.ones(hidden_size, dtype=config.params_dtype, device=torch.cuda.current_device())
        self.weight = torch.nn.Parameter(weight)
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class LayerNorm(torch.nn.Module):
    """Layer norm whose parameters are known to megatron as replicated under sequence parallel."""

    def __init__(self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: object) -> None:
        super().__init__()
        self.eps = eps
        make = partial(torch.full, (hidden_size,), dtype=config.params_dtype, device="cuda")
        self.weight, self.bias = torch.nn.Parameter(make(1.0)), torch.nn.Parameter(make(0.0))
        self.weight.sequence_parallel = self.bias.sequence_parallel = config.sequence_parallel

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class FlashAttention(MegatronModule):
    """Causal core attention over [sequence, batch, heads, head size], flash kernels only."""

    def __init__(self, config: TransformerConfig, softmax_scale: float | None = None, **_: object) -> None:
        super().__init__(config=config)
        self.scale = softmax_scale or 1.0 / math.sqrt(config.kv_channels)

    def forward(self, query, key, value, attention_mask=None, **_: object) -> torch.Tensor:
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=self.scale, enable_gqa=q.shape[1] != k.shape[1]
            )
        return out.permute(2, 0, 1, 3).reshape(query.shape[0], query.shape[1], -1)


@cache  # one for all layers
def causal_mask(*shape: int) -> torch.Tensor:
    """True above the diagonal of the last two dimensions."""
    mask = torch.ones(shape[-2:], dtype=torch.bool, device="cuda").triu(1)
    return mask.expand(shape).contiguous()


class CausalSoftmax(torch.autograd.Function):
    """Softmax over the last dimension of scores [batch * heads, length, length] that nobody else needs:
    they are masked in place. What is masked has probability 0, and so no gradient."""

    @staticmethod
    def forward(ctx, scores: torch.Tensor) -> torch.Tensor:
        probabilities = scores.masked_fill_(causal_mask(*scores.shape), -math.inf).softmax(-1)
        ctx.save_for_backward(probabilities)
        return probabilities

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        (probabilities,) = ctx.saved_tensors
        return torch._softmax_backward_data(gradient, probabilities, -1, probabilities.dtype)


class MaskedAttention(MegatronModule):
    """Causal core attention that writes its scores, as before flash attention, with fewer passes over them
    than megatron's local one. Shapes as above; queries and keys have equally many heads."""

    def __init__(self, config: TransformerConfig, softmax_scale: float | None = None, **_: object) -> None:
        super().__init__(config=config)
        self.scale = softmax_scale or 1.0 / math.sqrt(config.kv_channels)
        self.dropout = torch.nn.Dropout(config.attention_dropout)

    def forward(self, query, key, value, attention_mask=None, **_: object) -> torch.Tensor:
        length, batch, heads, width = query.shape
        q, k, v = (x.reshape(length, batch * heads, width).transpose(0, 1) for x in (query, key, value))
        scores = torch.baddbmm(query.new_empty(1), q, k.transpose(1, 2), beta=0.0, alpha=self.scale)
        probabilities = CausalSoftmax.apply(scores)
        with tensor_parallel.get_cuda_rng_tracker().fork():
            probabilities = self.dropout(probabilities)
        out = torch.bmm(probabilities, v)
        return out.view(batch, heads, length, width).permute(2, 0, 1, 3).reshape(length, batch, -1)


def copy_many(_chunk: int, _overflow: object, lists: list[list[torch.Tensor]], scale: float) -> None:
    """lists[1] = scale * lists[0], in a kernel for many tensors."""
    torch._foreach_copy_(lists[1], lists[0])
    if scale != 1.0:
        torch._foreach_mul_(lists[1], scale)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", choices=sorted(PRESETS))
    parser.add_argument("--family", choices=("llama", "gpt"), default="llama", help="default: %(default)s")
    parser.add_argument("--precision", choices=("bf16", "fp16"), default="bf16", help="default: %(default)s")
    for name in ("layers", "hidden", "heads", "kv-heads", "ffn", "seq", "vocab"):
        parser.add_argument(f"--{name}", type=int, help=f"default without a preset: {SMALL[_key(name)]}")
    parser.add_argument("--tp", type=int, default=1, help="tensor-parallel size")
    parser.add_argument("--pp", type=int, default=1, help="pipeline-parallel size")
    parser.add_argument(
        "--chunks", type=int, default=1, help="model chunks of a stage (interleaved pipeline)"
    )
    parser.add_argument("--experts", type=int, default=0, help="experts of each layer; 0: dense layers")
    parser.add_argument("--topk", type=int, default=2, help="experts that each token goes to")
    parser.add_argument("--ep", type=int, default=1, help="expert-parallel size")
    parser.add_argument("--expert-tp", type=int, help="tensor-parallel size of an expert; default: tp")
    parser.add_argument(
        "--capacity", type=float, help="drop what an expert gets above so many times its share"
    )
    parser.add_argument("--dispatcher", choices=("alltoall", "allgather"), default="alltoall")
    parser.add_argument("--micro-batches", type=int, default=8, help="per iteration and pipeline")
    parser.add_argument("--micro-batch-size", type=int, default=1, help="sequences in a micro-batch")
    parser.add_argument("--evaluate", type=int, default=0, help="micro-batches to evaluate after each step")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--attention", choices=("flash", "masked", "local"), default="flash")
    parser.add_argument("--recompute", choices=("none", "selective", "full"), default="none")
    parser.add_argument(
        "--sequence-parallel",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="default: on when tp > 1",
    )
    parser.add_argument("--no-dist-optimizer", action="store_true", help="replicate the optimizer state")
    parser.add_argument(
        "--fused-optimizer", action="store_true", help="Adam in a kernel for many tensors, as Apex has it"
    )
    parser.add_argument("--gloo", action="store_true", help="also make Megatron's groups in host memory")
    args = parser.parse_args()
    for key, value in PRESETS.get(args.preset, SMALL).items():
        if getattr(args, key) is None and not (args.family == "gpt" and key in ("ffn", "kv_heads")):
            setattr(args, key, value)
    args.kv_heads = args.kv_heads or args.heads
    args.ffn = args.ffn or 4 * args.hidden
    if args.expert_tp is None:
        args.expert_tp = args.tp if args.experts else 1
    if args.sequence_parallel is None:
        args.sequence_parallel = args.tp > 1
    return args


def _key(flag: str) -> str:
    return flag.replace("-", "_")


def check_sizes(args: argparse.Namespace, world_size: int) -> None:
    """Ends the program, in one line, where the sizes do not fit together."""

    def divides(part: int, whole: int, what: str) -> None:
        if part < 1 or whole % part:
            sys.exit(f"megatron_gpt: {what}: {part} does not divide {whole}")

    divides(args.tp * args.pp, world_size, f"tp {args.tp} x pp {args.pp} and the world size")
    divides(args.heads, args.hidden, "heads and hidden")
    divides(args.kv_heads, args.heads, "kv-heads and heads")
    divides(args.tp, args.heads, "tp and heads")
    divides(args.tp, args.kv_heads, "tp and kv-heads")
    divides(args.tp, args.ffn, "tp and ffn")
    divides(args.tp, args.vocab, "tp and vocab")
    divides(args.pp * args.chunks, args.layers, f"pp {args.pp} x chunks {args.chunks} and layers")
    if args.chunks > 1:
        if args.pp < 2:
            sys.exit(f"megatron_gpt: chunks {args.chunks}: expected pp above 1 to interleave them over")
        divides(args.pp, args.micro_batches, "pp and micro-batches (interleaved pipeline)")
        divides(args.pp, args.evaluate or args.pp, "pp and evaluate (interleaved pipeline)")
    if args.sequence_parallel:
        divides(args.tp, args.seq, "tp and seq (sequence parallel)")
    if args.attention == "masked":
        divides(args.heads, args.kv_heads, "heads and kv-heads (masked attention)")
    if args.experts and args.family == "gpt":
        sys.exit("megatron_gpt: experts have no biases: --experts needs --family llama")
    if not args.experts:
        if args.ep != 1 or args.expert_tp != 1:
            sys.exit(
                f"megatron_gpt: ep {args.ep}, expert-tp {args.expert_tp}: nothing to part without --experts"
            )
        return
    parts = args.expert_tp * args.ep * args.pp
    divides(parts, world_size, f"expert-tp {args.expert_tp} x ep {args.ep} x pp {args.pp} and the world size")
    divides(args.ep, args.experts, "ep and experts")
    divides(args.expert_tp, args.ffn, "expert-tp and ffn")
    if not 1 <= args.topk <= args.experts:
        sys.exit(f"megatron_gpt: topk {args.topk}: expected 1 to the {args.experts} experts")
    if args.tp > 1 and not args.sequence_parallel:
        sys.exit(
            "megatron_gpt: experts with tp above 1 need sequence parallelism: drop --no-sequence-parallel"
        )


def dtype_of(args: argparse.Namespace) -> torch.dtype:
    return torch.float16 if args.precision == "fp16" else torch.bfloat16


def norm_of(args: argparse.Namespace) -> type[torch.nn.Module]:
    return LayerNorm if args.family == "gpt" else RMSNorm


def build_config(args: argparse.Namespace) -> TransformerConfig:
    gpt = args.family == "gpt"
    recompute = {
        "none": {},
        "selective": {"recompute_granularity": "selective"},
        "full": {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        },
    }[args.recompute]
    experts = {
        "num_moe_experts": args.experts,
        "moe_router_topk": args.topk,
        "moe_ffn_hidden_size": args.ffn,
        "expert_model_parallel_size": args.ep,
        "expert_tensor_parallel_size": args.expert_tp,
        "moe_token_dispatcher_type": args.dispatcher,
        "moe_expert_capacity_factor": args.capacity,
        "moe_router_load_balancing_type": "aux_loss",
        "moe_aux_loss_coeff": 0.01,
        "moe_router_pre_softmax": args.topk == 1,  # megatron's wish: else every weight is 1
    }
    return TransformerConfig(
        num_layers=args.layers,
        hidden_size=args.hidden,
        num_attention_heads=args.heads,
        num_query_groups=args.kv_heads,
        ffn_hidden_size=args.ffn,
        tensor_model_parallel_size=args.tp,
        pipeline_model_parallel_size=args.pp,
        virtual_pipeline_model_parallel_size=args.chunks if args.chunks > 1 else None,
        overlap_p2p_comm=args.chunks > 1,  # with two stages, batched messages of chunks would mix
        batch_p2p_comm=args.chunks == 1,
        sequence_parallel=args.sequence_parallel and args.tp > 1,
        normalization=norm_of(args).__name__,
        activation_func=F.gelu if gpt else F.silu,
        gated_linear_unit=not gpt,
        add_bias_linear=gpt,
        hidden_dropout=0.1 if gpt else 0.0,
        attention_dropout=0.1 if gpt else 0.0,
        attention_softmax_in_fp32=not gpt,
        bf16=args.precision == "bf16",
        fp16=args.precision == "fp16",
        params_dtype=dtype_of(args),
        pipeline_dtype=dtype_of(args),
        # Fusions below come with Apex or Transformer Engine, which this program does without.
        gradient_accumulation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
        **recompute,
        **(experts if args.experts else {}),
    )


def build_chunk(
    args: argparse.Namespace, config: TransformerConfig, chunk: int | None
) -> DistributedDataParallel:
    norm, gpt = norm_of(args), args.family == "gpt"
    layer = get_gpt_layer_local_spec(num_experts=args.experts or None, normalization=norm.__name__)
    layer.submodules.input_layernorm = norm
    layer.submodules.pre_mlp_layernorm = norm
    if args.attention != "local":
        core = FlashAttention if args.attention == "flash" else MaskedAttention
        layer.submodules.self_attention.submodules.core_attention = core
    model = GPTModel(
        config,
        TransformerBlockSubmodules([layer] * get_num_layers_to_build(config, chunk), norm),
        vocab_size=args.vocab,
        max_sequence_length=args.seq,
        pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=chunk),
        post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=chunk),
        position_embedding_type="learned_absolute" if gpt else "rope",
        rotary_base=500000,
        share_embeddings_and_output_weights=gpt,
        vp_stage=chunk,
    )
    model.cuda().to(dtype_of(args))
    ddp = DistributedDataParallelConfig(
        grad_reduce_in_fp32=args.precision == "bf16",
        use_distributed_optimizer=not args.no_dist_optimizer,
    )
    return DistributedDataParallel(config, ddp, model, disable_bucketing=bool(chunk))


def batches(args: argparse.Namespace, device: torch.device) -> Iterator[torch.Tensor]:
    """Synthetic token ids [micro-batch, sequence + 1], the same on all ranks of a replica."""
    generator = torch.Generator().manual_seed(parallel_state.get_data_parallel_rank())
    shape = (args.micro_batch_size, args.seq + 1)
    while True:
        yield torch.randint(0, args.vocab, shape, generator=generator).to(device)


def mean_loss(losses: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    loss = losses.float().mean()
    return loss, {"loss": loss.detach().clone()}


def forward_step(data: Iterator[torch.Tensor], model: torch.nn.Module):
    tokens = next(data)
    positions = torch.arange(tokens.shape[1] - 1, device=tokens.device).unsqueeze(0)
    # No mask tensor: both attentions are causal by themselves.
    losses = model(tokens[:, :-1].contiguous(), positions, None, labels=tokens[:, 1:].contiguous())
    return losses, mean_loss


def evaluate(
    model: list[DistributedDataParallel], run_micro_batches: Callable[..., object], micro_batches: int
) -> None:
    for chunk in model:
        chunk.eval()
    with torch.no_grad():
        run_micro_batches(num_microbatches=micro_batches, forward_only=True)
    for chunk in model:
        chunk.train()


def main() -> None:
    args = parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    check_sizes(args, world_size)

    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=args.tp,
        pipeline_model_parallel_size=args.pp,
        virtual_pipeline_model_parallel_size=args.chunks if args.chunks > 1 else None,
        expert_model_parallel_size=args.ep,
        expert_tensor_parallel_size=args.expert_tp if args.experts else None,
        create_gloo_process_groups=args.gloo,
    )
    torch.manual_seed(1234)
    tensor_parallel.model_parallel_cuda_manual_seed(1234)
    config = build_config(args)
    numbers = range(args.chunks) if args.chunks > 1 else [None]
    model = [build_chunk(args, config, chunk) for chunk in numbers]
    config.finalize_model_grads_func = finalize_model_grads
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=3e-4,
            weight_decay=0.1,
            clip_grad=1.0,
            bf16=args.precision == "bf16",
            fp16=args.precision == "fp16",
            params_dtype=dtype_of(args),
            use_distributed_optimizer=not args.no_dist_optimizer,
        ),
        model,
        use_gloo_process_groups=args.gloo,
    )
    if args.fused_optimizer:
        mixed_precision.multi_tensor_scale_impl = copy_many
        for group in optimizer.param_groups:
            group.update(fused=True, foreach=False)
    config.grad_scale_func = optimizer.scale_loss if args.precision == "fp16" else None
    run_micro_batches = partial(
        get_forward_backward_func(),
        forward_step_func=forward_step,
        data_iterator=[batches(args, device) for _ in model],
        model=model,
        seq_length=args.seq,
        micro_batch_size=args.micro_batch_size,
    )

    for iteration in range(args.iterations):
        start = time.perf_counter()
        for chunk in model:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        losses = run_micro_batches(num_microbatches=args.micro_batches, forward_only=False)
        _, grad_norm, _ = optimizer.step()
        if args.evaluate:
            evaluate(model, run_micro_batches, args.evaluate)
        loss = torch.stack([entry["loss"] for entry in losses]).mean().item() if losses else math.nan
        if rank == world_size - 1:  # the last stage, where the loss is
            print(
                f"iteration {iteration}: loss {loss:.4f}, gradient norm {float(grad_norm):.4f}, "
                f"{time.perf_counter() - start:.3f} s, "
                f"peak {torch.cuda.max_memory_allocated() / 2**20:,.1f} MiB",
                flush=True,
            )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
