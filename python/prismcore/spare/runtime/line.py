"""One group's line to the lighthouse: position 0 holds it, and all ranks of the group hear what it hears."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from prismcore.errors import MembershipError
from prismcore.spare.runtime.guard import MembersLostError
from prismcore.spare.runtime.inside import Alone, Inside, Ranks
from prismcore.spare.runtime.lighthouse import Lighthouse, Quorum
from prismcore.spare.runtime.membership import Report, Standing
from prismcore.spare.runtime.options import SessionOptions
from prismcore.spare.runtime.standing import Settling
from prismcore.spare.runtime.whole_report import merge

__all__ = ["Line"]

T = TypeVar("T")


class Line:
    """One rank's end of it. The ranks of a group make the same calls in the same order.

    Args:
        told: see Lighthouse.

    Raises:
        MembershipError: the ranks of the group do not meet, or no lighthouse answers.
    """

    def __init__(self, options: SessionOptions, *, told: Callable[[float | None], Any]) -> None:
        self._options = options
        self.lighthouse: Lighthouse | None = None  # at position 0
        self._ranks = self._meet()
        kind = "spare" if options.group is None else f"group{options.group}"
        try:
            self.replica = str(self.share(f"{kind}:{uuid.uuid4().hex}"))
        except BaseException:
            self._ranks.close()
            raise
        self._last: Quorum | None = None
        self._settling = Settling(options.timeouts.settle_s)
        self._told = told
        if options.position == 0:
            self.lighthouse = Lighthouse(
                options.lighthouse,
                replica=self.replica,
                host=options.host,
                heartbeat_s=options.timeouts.heartbeat_s,
                timeout_s=options.timeouts.lighthouse_s,
                told=self._tell,
                ranks=options.positions,
            )

    @property
    def check(self) -> Callable[[], None] | None:
        """Raises where the group is lost for certain; None: it is one rank."""
        return None if self._options.positions == 1 else self._ranks.check

    def share(self, value: T) -> T:
        """That of position 0."""
        found: T = self._ranks.gather(value, "what position 0 says")[0]
        return found

    def together(self, work: Callable[[], T], what: str, look: Callable[[], Any] | None = None) -> list[T]:
        """Does ``work`` here, while the other ranks of the group do. Returns what came of it, plain JSON
        values, by position.

        Args:
            look: at position 0, is called now and then while the others are waited for.

        Raises:
            MembersLostError: at one of them.
            MembershipError: a rank of the group is lost.
        """
        try:
            mine = work()
        except MembersLostError:
            self._ranks.fail()
            raise
        return self._ranks.gather(mine, what, look)

    def quorum(self, report: Callable[[], Report], *, received: int, wait_s: float) -> Quorum:
        """One quorum for all ranks of the group: see Lighthouse.

        Args:
            report: of this rank.
            received: the epoch in which this rank was given its state by another group; 0: never.
        """
        found = self._ask(report, received, wait_s)
        if self._last is not None and found.number < self._last.number:
            self._settling.expect()  # it has begun anew, and was back before anybody missed it
        self._last = found
        return found

    def standing(self, members: Collection[str]) -> Standing:
        """Of the lighthouse, as position 0 sees it. ``members``: replicas of the ready epoch."""
        lighthouse = self.lighthouse
        if lighthouse is None or not members:
            return "known"
        present = set() if self._last is None else {report.replica for report in self._last.reports}
        return self._settling.standing(members, lighthouse.heard(), present)

    def expect_settled(self) -> None:
        """A new search for members begins: what a lighthouse was given to settle counts anew."""
        self._settling.expect()

    def alive(self) -> set[str]:
        """Replicas, as far as position 0 sees at once."""
        heard = {} if self.lighthouse is None else self.lighthouse.heard(within_s=0.25) or {}
        return {replica for replica, state in heard.items() if not state.dead}

    def break_off(self) -> None:
        """This rank has left in the middle of a call: a group of several ranks has no common state any more,
        and ends."""
        self._ranks.break_off()

    def part(self) -> None:
        """The other ranks of the group come to their end as well."""
        self._ranks.gather(None, "the end")

    def close(self) -> None:
        self._ranks.close()
        if self.lighthouse is not None:
            self.lighthouse.close()

    def _meet(self) -> Inside:
        options = self._options
        if options.positions == 1:
            return Alone()
        return Ranks.meet(
            options.store,
            position=options.position,
            positions=options.positions,
            host=options.host,
            within_s=options.timeouts.agree_s,
            silent_s=options.timeouts.inside_s,
            lost=self._fall_silent,
        )

    def _tell(self, away_s: float | None) -> None:
        if away_s is None:
            self._settling.expect()
        self._told(away_s)

    def _fall_silent(self) -> None:
        """A rank of the group is lost: others need not wait for the group."""
        if self.lighthouse is not None:
            self.lighthouse.close()

    def _ask(self, report: Callable[[], Report], received: int, wait_s: float) -> Quorum:
        lighthouse = self.lighthouse
        if self._options.positions == 1 and lighthouse is not None:
            return lighthouse.quorum(report, wait_s=wait_s)
        said = self._ranks.gather([report().to_data(), received], "reports")
        answer: dict[str, Any] = {}
        if lighthouse is not None:
            others = [Report(**data) for data, _ in said[1:]]
            epochs = [epoch for _, epoch in said]
            try:
                answer = lighthouse.quorum(
                    lambda: merge([report(), *others], epochs), wait_s=wait_s
                ).to_data()
            except MembershipError as error:
                answer = {"error": str(error)}
        answer = self.share(answer)
        if "error" in answer:
            raise MembershipError(answer["error"])
        return Quorum.from_data(answer)
