"""How members come to the same membership, layout and step."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from prismcore.errors import MembershipError
from prismcore.spare.reorderer import Part
from prismcore.spare.runtime.ballot import vote
from prismcore.spare.runtime.bulletin import Bulletin
from prismcore.spare.runtime.communicator import Backend, Communicator
from prismcore.spare.runtime.events import EventLog
from prismcore.spare.runtime.guard import Guard, MembersLostError
from prismcore.spare.runtime.layout import Layout
from prismcore.spare.runtime.line import Line
from prismcore.spare.runtime.membership import (
    NO_GROUP,
    Decision,
    Member,
    Refusal,
    Report,
    decide,
)
from prismcore.spare.runtime.newcomers import Newcomers
from prismcore.spare.runtime.news import News
from prismcore.spare.runtime.options import SessionOptions
from prismcore.spare.runtime.terms import terms_of
from prismcore.spare.runtime.transfer import receive_state, send_state
from prismcore.spare.runtime.whole_report import NO_STATE
from prismcore.spare.runtime.words import ms_since

__all__ = ["Agreement"]

_AGAIN_S = (0.03, 0.5)
"""Before a quorum is asked for again: at first, and in the end."""
_REFUSED_S = 10.0
"""A group's former life may still be counted for so long."""
_OVER_S = 30.0
"""Who waits for a place in a training that is not there any more gives up after so long."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class Agreement:
    """One member's side of it.

    ``step``: the one that runs or comes next. ``planned``: this group's parts of it. ``wipe_out``: in words,
    once some shard has no host.

    Args:
        at: is called at the named points of the protocol.
        get_state, set_state: of the training, for members that join.
    """

    def __init__(
        self,
        options: SessionOptions,
        *,
        events: EventLog,
        at: Callable[[str], Any],
        get_state: Callable[[], dict[str, Any]],
        set_state: Callable[[dict[str, Any]], Any],
    ) -> None:
        self._options = options
        self._events = events
        self._at = at
        self._get_state = get_state
        self._set_state = set_state
        self.group = NO_GROUP if options.group is None else options.group
        self._began = time.monotonic()
        self._guard: Guard | None = None
        self._news = News(events, lambda: self.step)
        self._line = Line(options, told=self._news.lighthouse)
        self._born_ns = time.time_ns()
        self._terms = terms_of(options)
        self._store: Bulletin | dist.TCPStore | None = None
        self.layout = Layout(options.placement, options.micro_batches)
        self.communicator: Communicator | None = None
        self.step = 0
        self.epoch = 0  # ready
        self.planned: list[Part] = self.layout.work(max(self.group, 0))
        self.computes_twice = False
        self.caught_up = False
        self._entered = 0
        self._received = 0  # the epoch in which the state was taken from another group
        self._has_been_in = False
        self._pending: Decision | None = None
        self._members: dict[str, int] = {}  # group by replica, of the ready epoch
        self._quorum = 0  # the last one in which this was a member still
        self._others_train = False
        self._away: dict[str, float] = {}  # since when: refused, over, apart
        self._told_waiting = False
        self._look_at = 0.0
        self._newcomers = Newcomers(options.timeouts.rejoin_s)
        self.wipe_out: str | None = None
        self._news.tell(
            "start",
            groups=options.placement.groups,
            redundancy=options.placement.redundancy,
            micro_batches=options.micro_batches,
            replica=self._line.replica,
        )

    @property
    def has_begun(self) -> bool:
        return self._has_been_in

    def counts(self) -> list[Part]:
        """The parts whose gradient of the running step is this group's to give."""
        return self.layout.counts(self.group)

    def holders(self) -> dict[Part, int]:
        """The rank that gives each part."""
        ranks = {group: rank for rank, group in enumerate(sorted(self._members.values()))}
        return {part: ranks[group] for part, group in self.layout.holders().items()}

    def committed(self) -> None:
        """The step is over; the next one is planned."""
        self.layout.commit()
        self._plan()
        self.step += 1

    def break_off(self) -> None:
        """The program leaves in the middle of a call. Others hear of it; a group of several ranks ends."""
        self._close_communicator()
        self._line.break_off()

    def lost(self, error: MembersLostError) -> None:
        """The communicator broke. Others hear of it by its end."""
        error.__traceback__ = error.__context__ = error.__cause__ = None  # they hold what is to be closed
        self._close_communicator()
        self._news.broke(error)

    def together(self, work: Callable[[], T], what: str) -> list[T]:
        """See Line; what holds up other groups ends it as well."""
        return self._line.together(work, what, None if self._guard is None else self._guard.look)

    def share(self, value: T) -> T:
        """That of position 0."""
        return self._line.share(value)

    def somebody_waits(self) -> bool:
        """Whether a group wants to join, as far as the first member sees, who looks now and then."""
        communicator = self.communicator
        if communicator is None or communicator.rank != 0 or time.monotonic() < self._look_at:
            return False
        is_vacant = len(self._members) < self.layout.groups
        alive = self._line.alive()
        waits = self._newcomers.wait(alive.difference(self._members), is_vacant=is_vacant)
        pause_s = self._options.timeouts.rejoin_s * max(1.0, len(self._members) / 64)
        self._look_at = time.monotonic() + pause_s
        return waits

    def agree(self, *, fresh: bool, held: bool) -> bool:
        """Finds the members that go on, and gets into step with them. Returns whether the running step is
        committed by that. ``caught_up`` says whether the state of a later step was taken from another
        group.

        Args:
            fresh: nothing of the step is computed, and the optimizer has made the one before.
            held: the step's complete gradient is here.

        Raises:
            MembershipError: see Lighthouse.quorum() and decide().
        """
        try:
            return self._agree(fresh=fresh, held=held)
        except BaseException:
            self.break_off()
            raise

    def _agree(self, *, fresh: bool, held: bool) -> bool:
        began = time.perf_counter()
        self._close_communicator()
        self.caught_up = False
        committed = False
        self._away.clear()
        self._news.seeks()
        self._line.expect_settled()
        if self._line.lighthouse is not None and (self._store is None or self._backend == "nccl"):
            self._store = self._new_store()
        pause_s, until = _AGAIN_S[0], time.monotonic() + self._options.timeouts.agree_s
        while True:
            self._at("agree")
            is_new = committed or self.caught_up
            report = partial(self._report, fresh=fresh or self.caught_up, held=held and not is_new)
            is_in = self.epoch > 0 and not self._told_waiting
            wait_s = self._options.timeouts.agree_s if is_in else math.inf
            quorum = self._line.quorum(report, received=self._received, wait_s=wait_s)
            if len(quorum.strangers) >= len(quorum.reports) and not self.has_begun:
                raise MembershipError(
                    f"the lighthouse at {self._options.lighthouse} also serves {quorum.strangers[0]}, which "
                    f"is not of training '{self._options.training}' in this version of prismcore; expected "
                    "one lighthouse for each training: start another on another port"
                )
            decision = decide(
                quorum.reports,
                groups=self.layout.groups,
                quorum=quorum.number,
                created_ns=quorum.created_ns,
            )
            is_over = isinstance(decision, Refusal) and decision.over
            self._others_train |= not is_over and any(other.ready > 0 for other in quorum.reports)
            self._newcomers.came(report.replica for report in quorum.reports)
            place = self._place(decision)
            if isinstance(decision, Refusal) or place is None:
                if decision.continues(self._line.replica):
                    self._quorum = quorum.number
                if isinstance(decision, Refusal):
                    if is_in and time.monotonic() > until:
                        limit_s = self._options.timeouts.agree_s
                        raise MembershipError(f"no membership within {limit_s:g} s: {decision.reason}")
                    self._news.refused(decision.reason)
                time.sleep(pause_s)
                pause_s = min(1.5 * pause_s, _AGAIN_S[1])
                continue
            self._settle(decision.previous)
            if decision.continues(self._line.replica):
                self._quorum = quorum.number
            if place.synced and decision.base and decision.step == self.step + 1:
                self.committed()
                committed = True
            try:
                self._enter(decision, place)
            except MembersLostError as error:
                self.lost(error)
                _log.warning("step %d: the groups did not meet, and try again: %s", self.step, error)
                if self._has_been("apart", self._options.timeouts.agree_s):
                    limit_s = self._options.timeouts.agree_s
                    raise MembershipError(
                        f"the groups have not met within {limit_s:g} s ({error}); expected all of them to "
                        f"reach the member at {decision.store} and each other by host names, this one as "
                        f"'{self._options.host}'"
                    ) from None
                time.sleep(pause_s)
                pause_s = min(1.5 * pause_s, _AGAIN_S[1])
                continue
            finally:
                committed = committed and not self.caught_up  # the others went on without this group
            break
        self._news.agreed(decision, quorum=quorum.number, began=began, depth=self.layout.depth)
        return committed

    def leave(self, *, wait: bool) -> None:
        """Ends this member's part. ``wait``: for the others to come to their end as well."""
        communicator, guard = self.communicator, self._guard
        try:
            if wait and communicator is not None and guard is not None:
                guard.timeout_s = self._options.timeouts.leave_s
                with contextlib.suppress(MembersLostError, MembershipError):  # they left first
                    self.together(
                        lambda: vote(communicator, self.layout, "the end of the training"), "the end"
                    )
            self._close_communicator()
            if wait:
                with contextlib.suppress(MembersLostError, MembershipError):
                    self._line.part()
        finally:
            self._close_communicator()
            self._line.close()
            if isinstance(self._store, Bulletin):
                self._store.close()
            self._store = None

    @property
    def _backend(self) -> Backend:
        return "nccl" if self._options.backend == "nccl" else "gloo"

    def _new_store(self) -> Bulletin | dist.TCPStore:
        if self._backend == "gloo":
            return Bulletin(self._options.host)
        # NCCL's threads ask it all the time; what the last epoch left in it goes with it.
        return dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)

    def _has_been(self, what: str, long_s: float) -> bool:
        now = time.monotonic()
        return now - self._away.setdefault(what, now) > long_s

    def _report(self, *, fresh: bool, held: bool) -> Report:
        begin_s = self._options.timeouts.begin_s
        waited = begin_s is not None and time.monotonic() - self._began > begin_s
        return Report(
            training=self._options.training,
            group=self.group,
            replica=self._line.replica,
            born_ns=self._born_ns,
            store="" if self._store is None else f"{self._options.host}:{self._store.port}",
            ready=self.epoch,
            entered=self._entered,
            members=len(self._members),
            quorum=self._quorum,
            lighthouse=self._line.standing(self._members),
            step=self.step,
            fresh=fresh,
            held=held,
            waited=waited and not self._others_train,
            alike=not self._options.init_sync,
            terms=self._terms,
        )

    def _place(self, decision: Decision | Refusal) -> Member | None:
        """None: ask again."""
        if self._line.replica in decision.ended:
            raise MembershipError(decision.ended[self._line.replica])
        if isinstance(decision, Refusal):
            if self._others_train and decision.over and self._has_been("over", _OVER_S):
                raise MembershipError(
                    "the training that this group waited for a place in has ended or is lost; nothing is "
                    "left to join"
                )
            return None
        self._away.pop("over", None)
        if self._line.replica in decision.refused:
            if self._options.group is None:
                self.group = NO_GROUP
            elif self._is_replaced(decision) or self._has_been("refused", _REFUSED_S):
                raise MembershipError(
                    f"group {self.group} goes on with another process, which began later or is in the "
                    "training already; expected one process for each group: this one ends"
                )
        place = decision.place_of(self._line.replica)
        if place is None and not self._told_waiting:
            self._told_waiting = True
            self._news.tell("spare", waiting=True)
        return place

    def _is_replaced(self, decision: Decision) -> bool:
        """This process was in the training, and another one of its group is in it now: as where one that was
        thought dead goes on behind its successor. (One that has not been in may be the successor, and what it
        sees the last of a former life.)"""
        return self._has_been_in and self.group in decision.base

    def _enter(self, decision: Decision, place: Member) -> None:
        def meet() -> None:
            self.communicator = self._open(decision, place)
            self._at("transfer")
            self._exchange_states(decision, place)
            self._entered = decision.epoch
            self._pending = decision

        def pass_barrier() -> None:
            assert self.communicator is not None
            vote(self.communicator, self.layout, "the new membership")
            if decision.waiting:
                self._look_at = 0.0
            self._settle(decision.epoch)

        self._at("configure")
        self.together(meet, "entering the new membership")
        if self._told_waiting:
            self._news.tell("spare", waiting=False)
            self._told_waiting = False
        self.group = self._events.group = place.group
        self._at("ready")
        self.together(pass_barrier, "the new membership")

    def _open(self, decision: Decision, place: Member) -> Communicator:
        options = self._options
        groups = decision.groups
        if isinstance(self._store, Bulletin):
            self._store.begin(decision.epoch)
        guard = self._guard = Guard(
            self._line.lighthouse,
            {m.replica: m.group for m in decision.members if m.replica != self._line.replica},
            timeout_s=options.timeouts.collective_s,
            settle_s=options.timeouts.settle_s,
            check=self._line.check,
        )
        return Communicator.open(
            guard,
            backend=self._backend,
            store=decision.store,
            epoch=decision.epoch,
            position=options.position,
            ranks=groups,
            rank=groups.index(place.group),
            replica=self._line.replica,
            timeout_s=options.timeouts.collective_s,
            meet_s=options.timeouts.meet_s,
        )

    def _exchange_states(self, decision: Decision, place: Member) -> None:
        communicator = self.communicator
        assert communicator is not None
        began = time.perf_counter()
        self._news.gives()
        needy = [m for m in decision.members if not m.synced]
        ranks = {group: rank for rank, group in enumerate(decision.groups)}
        if place in needy:
            step, history, taken, random = receive_state(communicator, ranks[place.source])
            # What it has is of the new membership or of none: it cannot go on from the last one it was in.
            self.epoch, self._entered, self._members, self._pending = 0, 0, {}, None
            self.step, self.caught_up = NO_STATE, True
            self._set_state(taken)
            torch.set_rng_state(random)
            self.layout = Layout(self._options.placement, self._options.micro_batches, history)
            self.step = step
            self._received = decision.epoch
            return
        mine = [m for m in needy if m.source == place.group]
        if not mine:
            return

        def state() -> Any:
            return self.step, self.layout.history, self._get_state(), torch.get_rng_state()

        sent = send_state(communicator, state, [ranks[m.group] for m in mine])
        if decision.base:  # else a training begins: nobody comes back
            joined = [m.group for m in mine]
            self._news.gives(joined=joined, source=place.group, bytes=sent, cost_ms=ms_since(began))

    def _settle(self, epoch: int) -> None:
        """What the membership ``epoch`` decided, if it was entered here, becomes the layout; a decision
        that no member got ready with is dropped."""
        decision, self._pending = self._pending, None
        if decision is None:
            return
        if decision.epoch != epoch:
            self._entered = self.epoch  # this member is in it no more, whoever comes back from it
            return
        self.epoch, self._quorum, self._has_been_in = epoch, decision.quorum, True
        self._members = {member.replica: member.group for member in decision.members}
        stay = set(decision.base) if decision.base else set(decision.groups)
        lost = sorted(set(self.layout.survivors) - stay)
        if lost:
            began = time.perf_counter()
            plan = self.layout.fail(lost)
            self._news.lost(lost)
            self._news.planned(plan, self.group, began)
            if plan.wipe_out:
                left = len(decision.groups)
                self.wipe_out = self._news.wiped_out(plan, left=left, groups=self.layout.groups)
                return
        if decision.fresh or not decision.base:
            self.layout.commit()
            back = [group for group in decision.joined if group not in self.layout.survivors]
            if back:
                began = time.perf_counter()
                self._news.planned(self.layout.rejoin(back), self.group, began)
                self.layout.commit()
            self._plan()

    def _plan(self) -> None:
        if self.group != NO_GROUP:
            self.planned = self.layout.work(self.group)
            self.computes_twice = self.layout.computes_twice

    def _close_communicator(self) -> None:
        self._guard = None
        if self.communicator is not None:
            self.communicator.close()
            self.communicator = None
