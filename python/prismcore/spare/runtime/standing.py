"""What a member makes of the lighthouse: the one that it knows, or one that has begun anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from prismcore.spare.runtime.lighthouse import Heard
from prismcore.spare.runtime.membership import Standing

__all__ = ["Settling"]


class Settling:
    """Gives groups time to come to a lighthouse that has begun anew.

    Such a lighthouse has nobody's death to tell: who is missing there is either lost or not there yet. So
    it is settling until each member of the epoch is in the quorum, or has not been heard of for
    ``settle_s``. A group that came and fell silent again, as on a machine where much begins at once, has
    that time as well as one that has yet to come. One that shows signs of life and asks for no quorum, as a
    program that hangs, has it from the first of them.

    Args:
        settle_s: see :class:`prismcore.spare.runtime.options.Timeouts`.
        clock: in seconds.
    """

    def __init__(self, settle_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._settle_s = settle_s
        self._clock = clock
        self._anew_since: float | None = None
        self._alive_since: dict[str, float] = {}

    def expect(self) -> None:
        """One that may have begun anew: the time counts from its first answer."""
        self._anew_since = None
        self._alive_since.clear()

    def standing(
        self, members: Collection[str], heard: Mapping[str, Heard] | None, present: Collection[str]
    ) -> Standing:
        """
        Args:
            members: replicas of the epoch.
            heard: of whom the lighthouse has heard; None: no answer.
            present: replicas in the last quorum.
        """
        if heard is None:
            return "settling"
        if all(replica in heard for replica in members):
            self.expect()
            return "known"
        now = self._clock()
        if self._anew_since is None:
            self._anew_since = now
        anew_s = now - self._anew_since

        def is_waited_for(replica: str) -> bool:
            life = heard.get(replica)
            if life is None:
                return anew_s <= self._settle_s
            if life.dead:
                return life.ago_s <= self._settle_s
            alive_s = now - self._alive_since.setdefault(replica, now)
            return replica not in present and alive_s <= self._settle_s

        return "settling" if any(map(is_waited_for, members)) else "new"
