"""What ranks that do not run send to a rank of own_experts.py: how many of their tokens are for it."""

from __future__ import annotations

import torch

from prismcore.rules import Call, rule

TOKENS = 4096


def sent_by(rank: int, size: int) -> torch.Tensor:
    """As planned_experts() of the program has it: tokens of `rank` to each of `size` experts."""
    drawn = torch.randint(0, size + 1, (TOKENS,), generator=torch.Generator().manual_seed(rank))
    return torch.bincount(drawn % size, minlength=size)


@rule(kind="all_to_all", dtype="int64", call_site="*own_experts.py:*")
def tokens_for_me(call: Call, received: torch.Tensor) -> torch.Tensor:
    return torch.stack([sent_by(rank, call.size)[call.position] for rank in range(call.size)])
