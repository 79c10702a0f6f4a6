"""What to collect, how far the collection is, and what came out of it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prismcore import rank_list
from prismcore.errors import CollectError
from prismcore.routing import parse_rule

if TYPE_CHECKING:
    from prismcore.graph import Graph

__all__ = [
    "CollectInterrupted",
    "CollectOptions",
    "CollectProgress",
    "CollectResult",
    "ProgressCallback",
    "parse_ranks",
]

MAX_WORLD_SIZE = 1 << 24  # that of a graph


@dataclass(kw_only=True, slots=True, frozen=True)
class CollectOptions:
    """How to collect a job.

    ``command`` is what stands after ``--`` on the command line, as torchrun takes it:
    ``["train.py", ARGS...]`` or ``["-m", "module", ARGS...]``.
    """

    command: Sequence[str]
    world_size: int
    device: str = "virtual:h100"
    """Name of a device profile (``virtual:NAME`` or a TOML file)."""
    cluster: Path | None = None
    """Cluster profile (TOML); ``None`` takes the one that belongs to the device."""
    ranks: str = "auto"
    """``auto`` (one rank a class, the others inferred), ``all``, or a list such as ``0,8,16-31``."""
    slots: int | None = None
    """Ranks that run at the same time; ``None`` is one a core."""
    iterations: int = 3
    """Iterations of each rank; the first holds the set-up and is left out of medians."""
    routing: str | None = None
    """Rule of mock routing, ``PRESET[:name=value,...]`` (:mod:`prismcore.routing`); one that no dispatcher
    of the program takes is noted. None: ``balanced``, where there is one."""
    host: Literal["profile", "measured"] = "profile"
    rules: Path | None = None
    """File of rules for what ranks that do not run send (:mod:`prismcore.rules`)."""
    preload: Sequence[str] = ()
    """Modules that the warm parent imports beside those the script imports at its top level."""
    keep_partial: bool = False
    """On failure, attach the graph of the ranks so far to the error (``error.partial``)."""
    seed: int = 0
    """Picks the ranks that confirm the classes."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set in each rank on top of the caller's environment."""
    working_directory: Path | None = None
    rank_timeout_s: float = 600.0
    """A rank that runs longer than this is ended and reported."""

    def __post_init__(self) -> None:
        if not 1 <= self.world_size <= MAX_WORLD_SIZE:
            raise CollectError(f"world size {self.world_size}: expected 1 to {MAX_WORLD_SIZE}")
        if self.iterations < 1:
            raise CollectError(f"iterations {self.iterations}: expected 1 or more")
        if self.slots is not None and self.slots < 1:
            raise CollectError(f"slots {self.slots}: expected 1 or more")
        if self.host not in ("profile", "measured"):
            raise CollectError(f"host {self.host!r}: expected 'profile' or 'measured'")
        parse_rule(self.routing or "balanced")
        if not self.command or (self.command[0] == "-m" and len(self.command) < 2):
            raise CollectError("no program: expected `-- script.py ARGS` or `-- -m module ARGS`")
        if self.ranks not in ("auto", "all"):
            parse_ranks(self.ranks, self.world_size)

    @property
    def num_slots(self) -> int:
        if self.slots is not None:
            return self.slots
        try:
            return max(1, len(os.sched_getaffinity(0)))
        except AttributeError:  # not on this system
            return max(1, os.cpu_count() or 1)


@dataclass(kw_only=True, slots=True, frozen=True)
class CollectProgress:
    """One step of a collection; ``planned`` grows while classes are being found."""

    phase: Literal["start", "classes", "ranks", "confirm", "merge", "done"]
    done: int
    planned: int
    message: str = ""


class CollectInterrupted(KeyboardInterrupt):
    """Ctrl-C (or SIGTERM) ended a collection that was asked to keep what it had."""

    partial: Graph | None = None
    """The graph of the ranks that had finished and of those that were cut short; None: there were none."""


ProgressCallback = Callable[[CollectProgress], None]


@dataclass(kw_only=True, slots=True, frozen=True)
class CollectResult:
    """A collected job. ``metadata`` is what the graph carries (keys in ``docs/collect.md``)."""

    graph: Graph
    metadata: Mapping[str, Any]
    ranks_run: int
    ranks_checked: int
    ranks_inferred: int
    wall_time_s: float


def parse_ranks(text: str, world_size: int) -> list[int]:
    """``0,8,16-31`` as ascending ranks of the world; :class:`CollectError` names what is wrong."""
    try:
        return rank_list.parse_ranks(text, most=world_size - 1)
    except ValueError as error:
        raise CollectError(f"rank list: {error} (world size {world_size})") from None
