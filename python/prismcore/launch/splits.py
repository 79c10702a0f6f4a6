"""Tells the NCCL door who is in a split.

``ncclCommSplit`` says a colour and a key; real members learn of each other by exchanging them,
absent ones cannot. Torch knows the members on every rank before it calls NCCL: ``new_group`` makes
the colour from them, ``ProcessGroup.split_group`` gets them as an argument.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

__all__ = ["announce_splits"]

NEXT = -1


def announce_splits(door: ctypes.CDLL) -> None:
    """Makes torch announce every split to ``door`` (libprism_nccl.so, loaded). Once a process."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    tell = door.prism_nccl_announce_split
    tell.argtypes = [ctypes.c_int, ctypes.POINTER(ctypes.c_uint32), ctypes.c_size_t]

    def announce(color: int, members: Sequence[int]) -> None:
        tell(color, (ctypes.c_uint32 * len(members))(*members), len(members))

    color_of = c10d._process_group_color
    split_of = c10d.ProcessGroup.split_group

    def colored(ranks: list[int]) -> int:
        color: int = color_of(ranks)
        announce(color, ranks or range(dist.get_world_size()))
        return color

    def split_group(parent: Any, ranks: list[int], *args: Any, **options: Any) -> Any:
        world = dist.get_process_group_ranks(parent)
        announce(NEXT, [world[rank] for rank in ranks])
        return split_of(parent, ranks, *args, **options)

    c10d._process_group_color = colored
    c10d.ProcessGroup.split_group = split_group
