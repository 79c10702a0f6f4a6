"""Whether the position in a factor of the world matters, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from prismcore.collect.likeness import Likeness, Record, compare

__all__ = ["FactorLevel", "Level"]

_SMALL_FACTOR = 4
_LARGEST_WHOLE = 8


class Level(Enum):
    """How the position in a factor matters."""

    NONE = "none"
    ENDS = "ends"
    """First, last, or any other."""
    EACH = "each"
    SHARDED = "sharded"


@dataclass(slots=True)
class FactorLevel:
    """What is known of one factor so far."""

    size: int
    level: Level = Level.NONE
    first: bool = False
    last: bool = False
    probe_all: bool = False

    def value(self, position: int) -> int:
        """Equal for positions that are taken to be alike."""
        if self.level is Level.EACH:
            return position
        if self.level is Level.ENDS:
            if self.first and position == 0:
                return 0
            if self.last and position == self.size - 1:
                return 2
            return 1
        return 0

    def probes(self) -> list[int]:
        if self.probe_all or self.size <= _SMALL_FACTOR:
            return list(range(self.size))
        return sorted({0, 1, self.size // 2, self.size - 1})

    def judge(self, records: Mapping[int, Record]) -> None:
        """Sets the level from the records at probed positions; may ask for every position first."""
        positions = sorted(records)
        if len(positions) < 2:
            return

        def likeness(a: int, b: int) -> Likeness:
            return compare(records[a], records[b])

        if all(likeness(positions[0], p) is Likeness.EQUAL for p in positions[1:]):
            return
        first, last = positions[0], positions[-1]
        if len(positions) == 2:
            sharded = likeness(first, last) is Likeness.SHARDED and self.size > _LARGEST_WHOLE
            self.level = Level.SHARDED if sharded else Level.EACH
            return
        inner = positions[1:-1]
        pairs = [(a, b) for i, a in enumerate(positions) for b in positions[i + 1 :]]
        structural = any(likeness(a, b) is Likeness.DIFFERENT for a, b in pairs)
        if all(likeness(inner[0], p) is Likeness.EQUAL for p in inner):
            first_differs = likeness(first, inner[0]) is not Likeness.EQUAL
            last_differs = likeness(last, inner[0]) is not Likeness.EQUAL
            # Few blocks of an end differ: first against others, or shards of which those inside look
            # alike so far. A small factor is looked at whole; in a large one the ends are not worth cells.
            if not structural and self.size > _LARGEST_WHOLE:
                self.level = Level.SHARDED
                return
            if not structural and len(positions) < self.size:
                self.probe_all = True
                return
            # Two equal positions inside say something; one alone says nothing.
            if len(inner) > 1 or not (first_differs and last_differs):
                self.level = Level.ENDS
                self.first, self.last = first_differs, last_differs
                return
        self.level = Level.EACH if structural else Level.SHARDED
