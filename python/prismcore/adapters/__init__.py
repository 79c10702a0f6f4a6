"""What is known of trainers by name. Nothing outside this package names one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from prismcore.adapters import megatron_groups, torch_ddp
from prismcore.adapters.data_parallel import DataParallel

__all__ = ["DataParallel", "data_parallel", "describe_rank"]


def describe_rank(places: Mapping[str, tuple[int, int]]) -> str:
    """What a rank is in its trainer's own words; empty where no adapter knows.

    ``places``: position and size of the rank by group description, as the program made them.
    """
    return megatron_groups.describe_rank(places)


def data_parallel(descriptions: Collection[str]) -> DataParallel | None:
    """Which of a job's communicators reduce gradients over its replicas; None where no adapter knows.

    ``descriptions``: of every communicator that the job uses, as the program made them.
    """
    return megatron_groups.data_parallel(descriptions) or torch_ddp.data_parallel(descriptions)
