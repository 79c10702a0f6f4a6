"""What is known of trainers by name. Nothing outside this package names one."""

from __future__ import annotations

from collections.abc import Mapping

from prismcore.adapters import megatron_groups

__all__ = ["describe_rank"]


def describe_rank(places: Mapping[str, tuple[int, int]]) -> str:
    """What a rank is in its trainer's own words; empty where no adapter knows.

    ``places``: position and size of the rank by group description, as the program made them.
    """
    return megatron_groups.describe_rank(places)
