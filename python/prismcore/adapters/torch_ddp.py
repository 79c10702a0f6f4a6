"""Plain torch: ``DistributedDataParallel`` over the default process group, and no other group."""

from __future__ import annotations

from collections.abc import Collection

from prismcore.adapters.data_parallel import DataParallel

__all__ = ["data_parallel"]

_DEFAULT = "default_pg"


def data_parallel(descriptions: Collection[str]) -> DataParallel | None:
    """The default group where the job uses no other; with others, it may be anything."""
    if set(descriptions) != {_DEFAULT}:
        return None
    return DataParallel(trainer="torch DDP", descriptions=frozenset({_DEFAULT}), gathers=False)
