"""What an adapter says about data parallelism."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DataParallel"]


@dataclass(kw_only=True, slots=True, frozen=True)
class DataParallel:
    """The communicators over which a trainer reduces gradients."""

    trainer: str
    descriptions: frozenset[str]
    """Of the communicators."""
    gathers: bool
    """The trainer gathers parameters over them once a step; where it does not, a gather means that
    parameters are sharded and fetched layer by layer."""
