"""The sum of a step's gradients over the groups, each part once."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from prismcore.spare.reorderer import Part
from prismcore.spare.runtime.communicator import Communicator
from prismcore.spare.runtime.gradients import Sheet

__all__ = ["sum_in_order", "sum_shares"]


def sum_shares(communicator: Communicator, out: Sheet) -> None:
    """``out`` becomes the sum of what all groups have in theirs. The order of addition is the communicator's:
    it may change with its members."""
    for flat in out.flats:
        communicator.all_reduce(flat, "the sum of gradients")


def sum_in_order(
    communicator: Communicator,
    mine: Mapping[Part, Sheet],
    owners: Mapping[Part, int],
    out: Sheet,
) -> None:
    """``out`` becomes the sum over all parts in their order, so that it does not depend, to the last bit,
    on who holds which part or on how many groups there are.

    Each rank adds up one stretch of every part's gradients: the parts are sent there, and the sums to all.
    A rank sends as many sheets as it holds parts, where sum_shares() sends two.

    Args:
        mine: this rank's parts; ``owners[part]`` is its rank.
        owners: rank of every part.
    """
    size, rank = communicator.size, communicator.rank
    order = sorted(owners)
    by_rank: list[list[Part]] = [[] for _ in range(size)]
    for part in order:
        by_rank[owners[part]].append(part)
    held = by_rank[rank]
    # What comes lies by rank, and within a rank in the order of its parts.
    place = {part: at for at, part in enumerate(part for parts in by_rank for part in parts)}
    for index, flat in enumerate(out.flats):
        stretches = _stretches(flat.numel(), size)
        width = stretches[rank][1] - stretches[rank][0]
        flats = [mine[part].flats[index] for part in held]
        given = [part[begin:end] for begin, end in stretches for part in flats]
        sent = torch.cat(given) if given else flat.new_empty(0)
        splits = [(end - begin) * len(held) for begin, end in stretches]
        counts = [len(parts) for parts in by_rank]
        came = flat.new_empty(width * len(order))
        communicator.all_to_all(came, sent, [width * count for count in counts], splits, "gradients by part")
        rows = came.view(len(order), width)
        own = torch.zeros(stretches[0][1] - stretches[0][0], dtype=flat.dtype, device=flat.device)
        for part in order:
            own[:width].add_(rows[place[part]])
        sums = [torch.empty_like(own) for _ in range(size)]
        communicator.all_gather(sums, own, "sums of gradients")
        for (begin, end), part_sum in zip(stretches, sums, strict=True):
            flat[begin:end].copy_(part_sum[: end - begin])


def _stretches(length: int, ranks: int) -> list[tuple[int, int]]:
    """Equal ones, the last shorter or empty."""
    width = -(-length // ranks)
    return [(min(i * width, length), min((i + 1) * width, length)) for i in range(ranks)]
