"""Objects that ghosts give to sandbox ranks (``broadcast_object_list`` and its like)."""

from __future__ import annotations

from collections.abc import Callable

from prismcore.emulate.sandbox import AbsentGiverError, check_end
from prismcore.errors import EmulateError
from prismcore.launch.launcher import Launcher
from prismcore.launch.need import ObjectNeed
from prismcore.units import format_s

__all__ = ["GhostObjects"]


class GhostObjects:
    """What a ghost gives is no op of the graph: the ghost runs alone, as in a collection, before the sandbox
    ranks start anew and find it."""

    def __init__(self, world_size: int, progress: Callable[[str], None]) -> None:
        self._world_size = world_size
        self._progress = progress
        self._given: dict[str, list[bytes]] = {}
        self._wanted: AbsentGiverError | None = None
        self._limit_s = 0.0

    def want(self, absent: AbsentGiverError) -> None:
        """A sandbox rank could not go on without."""
        self._wanted = absent

    def obtain(self, launcher: Launcher, limit_s: float) -> None:
        """What is wanted; ranks that `launcher` starts from now on have it.

        Raises EmulateError where the ghost does not give it when it runs alone, or takes longer.
        """
        self._limit_s = limit_s
        if self._wanted is not None:
            self._obtain(launcher, self._wanted.rank, self._wanted.need)
            launcher.give(self._given)

    def _obtain(self, launcher: Launcher, rank: int, need: ObjectNeed, *pending: str) -> None:
        """``pending``: keys of what is being obtained already."""
        while need.key not in self._given:
            self._progress(f"running rank {need.root}, which gives an object to rank {rank}")
            launcher.start(need.root)
            end = launcher.end_within(self._limit_s)
            if end is None:
                raise EmulateError(
                    f"{need.told(rank)}, which runs alone for that and has not ended within "
                    f"{format_s(self._limit_s)}; look for what it waits for, or allow more (--silence)"
                )
            self._given |= end.values
            launcher.give(self._given)
            if need.key in self._given:
                return
            try:
                check_end(end, self._world_size)
            except AbsentGiverError as absent:
                if absent.need.key not in pending:
                    self._obtain(launcher, end.rank, absent.need, need.key, *pending)
                    continue
            raise EmulateError(f"{need.told(rank)}, which that rank does not give when it runs alone")
