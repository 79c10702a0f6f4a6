"""How alike two ranks that ran are."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

__all__ = ["Likeness", "Record", "compare"]

_SHARDED_SHARE = 0.25
_SHARDED_BLOCKS = 2
_SHARDED_MEMORY = 0.25


@dataclass(slots=True, frozen=True)
class Record:
    """What is compared of a rank that ran: its blocks, and of each block its communication."""

    roles: Hashable
    """Of its communicators, by slot."""
    blocks: tuple[int, ...]
    work: tuple[int, ...]
    """Of each block, the ops that the program itself asked for: without those of memory and events."""
    communication: tuple[int, ...]
    requested_bytes: int


class Likeness(Enum):
    EQUAL = 0
    SHARDED = 1
    """Equal communication, similar memory; few blocks differ in their work. (Memory is not quite the
    program's own: torch's watchdog threads give buffers of work that nobody waited for back when
    they come to it.)"""
    DIFFERENT = 2


def compare(a: Record, b: Record) -> Likeness:
    if a.roles != b.roles or a.communication != b.communication:
        return Likeness.DIFFERENT
    if a.blocks == b.blocks:
        return Likeness.EQUAL
    differing = sum(x != y for x, y in zip(a.work, b.work, strict=True))
    few = differing <= max(_SHARDED_BLOCKS, int(len(a.work) * _SHARDED_SHARE))
    low, high = sorted((a.requested_bytes, b.requested_bytes))
    return Likeness.SHARDED if few and high - low <= low * _SHARDED_MEMORY else Likeness.DIFFERENT
