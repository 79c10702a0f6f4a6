"""Train a mixture of experts without a trainer: one expert a rank, tokens sent by all-to-all.

torchrun --nproc-per-node 8 examples/own_experts.py

Where kernels compute nothing, as in prism collect, --planned takes the number of tokens that go to each
expert from the host instead of the gate, and own_experts_rules.py says what the other ranks send.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn


class Exchange(torch.autograd.Function):
    """Rows of x to the ranks, and gradients back; sizes are rows a rank."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        ctx.sizes = sent, received
        out = x.new_empty(sum(received), x.shape[1])
        dist.all_to_all_single(out, x, received, sent)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        sent, received = ctx.sizes
        out = grad.new_empty(sum(sent), grad.shape[1])
        dist.all_to_all_single(out, grad.contiguous(), sent, received)
        return out, None, None


class Experts(nn.Module):
    def __init__(self, hidden: int, *, planned: bool) -> None:
        super().__init__()
        self.planned = planned
        self.gate = nn.Linear(hidden, dist.get_world_size())
        self.expert = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.gate(x).softmax(-1)
        chosen = scores.argmax(-1)
        if self.planned:
            chosen = planned_experts(dist.get_rank(), len(x)).to(x.device)
            counts = torch.bincount(chosen.cpu(), minlength=dist.get_world_size()).to(x.device)
        else:
            counts = torch.bincount(chosen, minlength=dist.get_world_size())
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        sent, received = counts.tolist(), theirs.tolist()
        order = chosen.argsort()
        out = Exchange.apply(self.expert(Exchange.apply(x[order], sent, received)), received, sent)
        return torch.zeros_like(x).index_put((order,), out) * scores.amax(-1, keepdim=True)


def planned_experts(rank: int, tokens: int) -> torch.Tensor:
    """Expert 0 gets about twice what another gets."""
    size = dist.get_world_size()
    drawn = torch.randint(0, size + 1, (tokens,), generator=torch.Generator().manual_seed(rank))
    return drawn % size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=4096, help="of a rank")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--planned", action="store_true")
    args = parser.parse_args()

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    dense, experts = nn.Linear(args.hidden, args.hidden).cuda(), Experts(args.hidden, planned=args.planned)
    experts.cuda()
    shared = [*dense.parameters(), *experts.gate.parameters()]
    optimizer = torch.optim.Adam([*dense.parameters(), *experts.parameters()])
    for _ in range(args.iterations):
        x = torch.randn(args.tokens, args.hidden, device="cuda")
        experts(dense(x)).square().mean().backward()
        for parameter in shared:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
