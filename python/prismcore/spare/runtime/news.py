"""What an agreement tells of itself, as events and warnings."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from prismcore.spare.reorderer import Plan
from prismcore.spare.runtime.events import EventLog
from prismcore.spare.runtime.guard import MembersLostError
from prismcore.spare.runtime.membership import Decision
from prismcore.spare.runtime.words import ms_since

__all__ = ["News"]

_TELL_S = 5.0
"""Why there is no membership is told after so long."""

_log = logging.getLogger(__name__)


class News:
    """Losses and returns are noted as they are met, and told once there is a membership again.

    Args:
        step: the one that runs or comes next.
    """

    def __init__(self, events: EventLog, step: Callable[[], int]) -> None:
        self._events = events
        self._step = step
        self._trouble: MembersLostError | None = None  # why there is a search for members
        self._gone: list[int] = []  # groups that were in and are no more
        self._gave: dict[str, Any] | None = None  # to those that join
        self._held_up_since: float | None = None
        self._told_refusal = ""

    def tell(self, event: str, **fields: Any) -> None:
        self._events.emit(event, step=self._step(), **fields)

    def seeks(self) -> None:
        """A search for members begins."""
        self._held_up_since = None

    def broke(self, error: MembersLostError) -> None:
        self._trouble = error

    def lost(self, groups: Sequence[int]) -> None:
        self._gone += groups

    def gives(self, **fields: Any) -> None:
        """A state, to groups that join; none: they have not come."""
        self._gave = fields or None

    def refused(self, reason: str) -> None:
        """There is no membership yet."""
        now = time.monotonic()
        if self._held_up_since is None:
            self._held_up_since = now
        if now - self._held_up_since > _TELL_S and reason != self._told_refusal:
            self._told_refusal = reason
            _log.warning("step %d: waiting for a membership: %s", self._step(), reason)

    def agreed(self, decision: Decision, *, quorum: int, began: float, depth: int) -> None:
        """``began``: of time.perf_counter(). ``depth``: of the layout of the new membership."""
        trouble, self._trouble = self._trouble, None
        gone, self._gone = self._gone, []
        if trouble is not None:
            noticed_ms = ms_since(trouble.at)
            self.tell("failure", lost=gone, how=trouble.how, detail=str(trouble), noticed_ms=noticed_ms)
        elif gone:
            detail = "not there when the groups met between two steps"
            self.tell("failure", lost=gone, how="left", detail=detail, noticed_ms=0.0)
        members, cost_ms = list(decision.groups), ms_since(began)
        self.tell("membership", epoch=decision.epoch, members=members, quorum=quorum, cost_ms=cost_ms)
        if self._gave is not None:
            gave, self._gave = self._gave, None
            self.tell("rejoin", **gave, depth=depth)

    def planned(self, plan: Plan, group: int, began: float) -> None:
        self.tell(
            "plan",
            outcome=plan.outcome,
            depth=plan.depth,
            patches=len(plan.patches),
            mine=int((plan.patches[:, 0] == group).sum()) if len(plan.patches) else 0,
            moved=len(plan.moves),
            digest=f"{plan.digest:016x}",
            cost_ms=ms_since(began),
        )

    def wiped_out(self, plan: Plan, *, left: int, groups: int) -> str:
        """``left`` of ``groups`` are there. Returns it in words."""
        last = self._step() - 1
        types = ", ".join(str(shard) for shard in plan.lost_types[:8])
        committed = "no step is committed" if last < 0 else f"the last committed step is {last}"
        self.tell("wipe_out", lost_types=list(plan.lost_types), last_committed=last, checkpoint=None)
        return f"no group that is left hosts shard {types} ({left} of {groups} groups are left); {committed}"

    def lighthouse(self, away_s: float | None) -> None:
        """None: it does not answer."""
        if away_s is None:
            self.tell("lighthouse", state="lost", cost_ms=0.0)
        else:
            self.tell("lighthouse", state="found", cost_ms=round(away_s * 1e3, 3))
