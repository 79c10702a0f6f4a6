"""Who computes what, as every member works it out for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prismcore.spare.placement import Placement
from prismcore.spare.reorderer import Part, Plan, Reorderer

__all__ = ["Layout"]


class Layout:
    """The reorderer of a training, and the calls that made it what it is: a member that joins makes them
    again."""

    def __init__(self, placement: Placement, micro_batches: int, history: Sequence[Any] = ()) -> None:
        self._solver = Reorderer(placement, micro_batches=micro_batches)
        self._history: list[tuple[str, list[int]]] = []
        self._uncommitted = False
        self._counts: dict[int, list[Part]] = {}  # by group, as asked for
        for call, groups in history:
            getattr(self, call)(groups) if groups else getattr(self, call)()

    @property
    def history(self) -> list[tuple[str, list[int]]]:
        """Calls since all groups were last there."""
        return list(self._history)

    @property
    def groups(self) -> int:
        return self._solver.placement.groups

    @property
    def micro_batches(self) -> int:
        return self._solver.micro_batches

    @property
    def depth(self) -> int:
        return self._solver.depth

    @property
    def survivors(self) -> list[int]:
        return [group for group in range(self.groups) if self._solver.alive(group)]

    @property
    def digest(self) -> int:
        """Of the layout; equal on members that made the same calls."""
        return self._solver.digest

    @property
    def computes_twice(self) -> bool:
        """Some parts are computed by several groups: of each, one counts."""
        return self.micro_batches == 1 and self.depth > 1

    def fail(self, groups: Sequence[int]) -> Plan:
        self._note("fail", groups)
        return self._solver.fail(list(groups))

    def rejoin(self, groups: Sequence[int]) -> Plan:
        self._note("rejoin", groups)
        return self._solver.rejoin(list(groups))

    def commit(self) -> None:
        """The step is over, or was never begun. Once all groups are there, the layout is the placement's
        own again."""
        if self._uncommitted:
            self._note("commit", ())
            self._uncommitted = False
        self._solver.commit()
        if self._history and self._solver.survivors == self.groups:
            self._solver.restart()
            self._history.clear()
            self._counts.clear()

    def work(self, group: int) -> list[Part]:
        """What the group computes in the next step, in order."""
        return self._solver.work(group)

    def counts(self, group: int) -> list[Part]:
        """The parts whose gradient of the running step is the group's to give."""
        if group not in self._counts:
            rows, columns = np.nonzero(self._solver.holders() == group)
            self._counts[group] = [Part(int(r), int(c)) for r, c in zip(rows, columns, strict=True)]
        return list(self._counts[group])

    def holders(self) -> dict[Part, int]:
        """The group whose gradient of each part counts in the running step."""
        return {Part(*at): int(group) for at, group in np.ndenumerate(self._solver.holders())}

    def _note(self, call: str, groups: Sequence[int]) -> None:
        self._history.append((call, list(groups)))
        self._counts.clear()
        self._uncommitted = call != "commit"
