"""What members decide from what they tell each other; and that no order of losses breaks a step in two."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spare_reports import report

from prismcore.errors import MembershipError
from prismcore.spare.runtime.membership import (
    Decision,
    Refusal,
    Report,
    decide,
)


def new(group: int, **changes: object) -> Report:
    return report(
        group, **({"ready": 0, "entered": 0, "members": 0, "quorum": 0, "step": 0, "fresh": True} | changes)
    )


def decided(reports: list[Report], quorum: int = 8) -> Decision:
    found = decide(reports, groups=4, quorum=quorum, created_ns=200)
    assert isinstance(found, Decision)
    return found


def refused(reports: list[Report], quorum: int = 8) -> Refusal:
    found = decide(reports, groups=4, quorum=quorum, created_ns=200)
    assert isinstance(found, Refusal)
    return found


def test_a_training_begins_once_all_are_there() -> None:
    assert "3 of 4 groups" in refused([new(g) for g in range(3)]).reason
    begun = decided([new(g) for g in (2, 0, 3, 1)])
    assert (begun.step, begun.fresh, begun.base, begun.groups) == (0, True, (), (0, 1, 2, 3))
    assert [m.synced for m in begun.members] == [True, False, False, False]


def test_it_begins_without_some_where_they_do_not_come() -> None:
    assert decided([new(0), new(1, waited=True), new(3)]).groups == (0, 1, 3)


def test_it_begins_from_the_newest_checkpoint() -> None:
    begun = decided([new(0, step=10), new(1, step=20), new(2), new(3, step=20)])
    assert begun.step == 20
    assert [m.source for m in begun.members] == [1] * 4
    assert [m.synced for m in begun.members] == [False, True, False, False]


def test_groups_that_begin_alike_take_no_weights() -> None:
    begun = decided([new(g, alike=True, step=5 if g < 3 else 4) for g in range(4)])
    assert [m.synced for m in begun.members] == [True, True, True, False]


def test_a_step_that_nobody_holds_is_made_again() -> None:
    found = decided([report(0), report(1), report(3)])
    assert (found.step, found.fresh, found.base) == (5, False, (0, 1, 3))
    assert all(m.synced for m in found.members)


def test_a_step_that_some_hold_is_made_again() -> None:
    assert decided([report(0, held=True), report(1), report(3, held=True)]).step == 5


def test_a_step_that_all_hold_is_committed() -> None:
    found = decided([report(g, held=True) for g in (0, 1, 3)])
    assert (found.step, found.fresh) == (6, True)
    assert decided([*(report(g, held=True) for g in (0, 1)), new(3)]).joined == ()  # nobody made its step


def test_a_step_that_one_has_committed_is_committed_by_those_that_hold_it() -> None:
    ahead = report(1, step=6)
    found = decided([report(0, held=True), ahead, report(3, held=True)])
    assert (found.step, found.fresh) == (6, False)
    with pytest.raises(MembershipError, match="group 0 is in step 5 without its gradient"):
        decided([report(0), ahead])


def test_groups_join_between_steps_only() -> None:
    waits = decided([report(0), report(1), new(3)])
    assert (waits.groups, waits.waiting) == ((0, 1), ("group3:1",))
    joins = decided([report(0, fresh=True), report(1, fresh=True), new(3)])
    assert (joins.groups, joins.joined, joins.waiting) == ((0, 1, 3), (3,), ())
    assert joins.members[-1].source == 0


def test_states_come_from_those_whose_optimizer_is_through() -> None:
    """Group 0 learns here that its step is committed: its weights are those before it."""
    found = decided([report(0, held=True), report(1, step=6, fresh=True), new(3)])
    assert (found.step, found.joined) == (6, (3,))
    assert [m.source for m in found.members if not m.synced] == [1]


def test_spares_take_what_is_vacant() -> None:
    spares = [new(-1, replica=f"spare:{n}") for n in range(3)]
    found = decided([report(0, fresh=True), report(2, fresh=True), new(3), *spares])
    assert {m.replica: m.group for m in found.members} == {
        "group0:1": 0,
        "group2:1": 2,
        "group3:1": 3,
        "spare:0": 1,
    }
    assert found.waiting == ("spare:1", "spare:2")


def test_one_life_of_a_group() -> None:
    """A stopped process goes on after its place was taken, and two new ones come for one place."""
    old = report(3, ready=50, entered=50, replica="group3:old")
    found = decided([report(0, fresh=True), report(3, fresh=True), old])
    assert (found.groups, found.refused) == ((0, 3), ("group3:old",))
    twins = [new(1, replica="group1:a", born_ns=1), new(1, replica="group1:b", born_ns=2)]
    found = decided([report(0, fresh=True), *twins])
    assert found.refused == ("group1:a",)
    assert found.place_of("group1:b") is not None


def test_who_entered_what_another_is_ready_with_is_in_it() -> None:
    behind = report(0, ready=90, entered=100, members=3, held=False)
    assert decided([behind, report(1)]).base == (0, 1)
    assert decided([replace(behind, entered=95), report(1)]).base == (1,)


def test_a_lighthouse_that_begins_anew_is_waited_for_and_needs_more_than_half() -> None:
    some = [report(0, lighthouse="settling"), report(1), report(2, lighthouse="new")]
    assert "1 of 4 groups may still come" in refused(some, quorum=1).reason
    assert decided([*some, report(3)], quorum=1).base == (0, 1, 2, 3)
    assert decided([report(g, lighthouse="new") for g in range(3)], quorum=1).base == (0, 1, 2)
    few = [report(0, lighthouse="new"), report(1)]
    assert "only 2 of 4 groups are there; expected more than half" in refused(few, quorum=9).reason


def test_who_was_away_while_others_went_on_does_not_go_on_alone() -> None:
    assert decided([report(1)], quorum=8).base == (1,)
    with pytest.raises(MembershipError, match="groups 1 were away while others went on"):
        decided([report(1)], quorum=9)
    assert decided([report(1, quorum=8), report(2)], quorum=9).base == (1, 2)


def test_epochs_grow_though_clocks_go_back() -> None:
    assert decided([report(0, entered=500), report(1)]).epoch == 501


def test_what_is_no_report() -> None:
    assert Report.from_data({"group": 1}) is None
    assert Report.from_data(None) is None
    assert Report.from_data(report(2).to_data()) == report(2)


@dataclass
class Life:
    """A member as :class:`prismcore.spare.runtime.agreement.Agreement` is, without its work.

    ``at``: ``boundary``, ``compute``, ``held`` (before the commit's barrier), ``entering`` (before the
    barrier of a new membership).
    """

    group: int
    replica: str
    born: int
    at: str = "boundary"
    ready: int = 0
    entered: int = 0
    members: int = 0
    quorum: int = 0
    step: int = 0
    fresh: bool = True  # as it would report
    pending: Decision | None = None
    alone: bool = True  # its communicator is broken
    made: list[int] = field(default_factory=list)  # steps that its optimizer is to make

    def report(self) -> Report:
        return report(
            self.group,
            replica=self.replica,
            born_ns=self.born,
            ready=self.ready,
            entered=self.entered,
            members=self.members,
            quorum=self.quorum,
            step=self.step,
            fresh=self.fresh,
            held=self.at == "held",
        )

    def commit(self) -> None:
        self.made.append(self.step)
        self.step += 1
        self.fresh = False

    def enter(self, decision: Decision) -> None:
        place = decision.place_of(self.replica)
        assert place is not None
        if place.synced and decision.base and decision.step == self.step + 1:
            assert self.at == "held"
            self.commit()
        if not place.synced:
            self.step, self.fresh, self.made = decision.step, True, []
        assert self.step == decision.step
        self.at, self.entered, self.pending = "entering", decision.epoch, decision


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 6))
def test_no_order_of_losses_breaks_a_step_in_two(seed: int, groups: int) -> None:
    """Members go on one at a time and are lost at any moment, also between two of them passing a barrier."""
    rng = random.Random(seed)
    lives = [Life(group=g, replica=f"group{g}:0", born=0) for g in range(groups)]
    number, now = 0, 1000
    committed: dict[int, set[int]] = {}  # step -> epochs in which somebody committed it
    for turn in range(120):
        if rng.random() < 0.06 and len(lives) > 1:
            lives.remove(rng.choice(lives))
        if rng.random() < 0.06 and len(lives) < groups:
            group = rng.choice(sorted(set(range(groups)) - {life.group for life in lives}))
            lives.append(Life(group=group, replica=f"group{group}:{turn + 1}", born=turn + 1))
        for life in lives:  # who is with one that is gone, or has left, breaks sooner or later
            peers = [p for p in lives if not p.alone and p.entered == life.entered]
            if not life.alone and len(peers) < life.members and rng.random() < 0.5:
                life.alone = True
        if all(life.alone for life in lives):
            number, now = number + 1, now + 1
            found = decide([life.report() for life in lives], groups=groups, quorum=number, created_ns=now)
            for life in lives:
                life.quorum = number
            if isinstance(found, Refusal):
                continue
            if not found.base:
                committed.clear()  # all that had begun are lost: it begins again
            for life in lives:
                if life.pending is not None and life.pending.epoch == found.previous:
                    life.ready, life.members = life.pending.epoch, len(life.pending.members)
                life.pending = None
            for life in lives:
                if found.place_of(life.replica) is not None and rng.random() < 0.95:
                    life.enter(found)
                    life.alone = False
                    life.members = len(found.members)
            continue
        life = rng.choice(lives)
        if life.alone:
            continue
        peers = [p for p in lives if p.entered == life.entered and not p.alone]
        whole = len(peers) == life.members
        if life.at == "entering" and (whole or any(p.ready == life.entered for p in peers)):
            life.ready, life.pending, life.at = life.entered, None, "compute"
        elif life.at == "boundary":
            life.at = "compute"
        elif life.at == "compute":
            life.fresh = False
            # A sum that is there has everybody's part.
            some = any(p.step > life.step or (p.step == life.step and p.at == "held") for p in peers)
            all_there = whole and all(p.at in ("compute", "held") and p.step == life.step for p in peers)
            if some or all_there:
                life.at = "held"
        elif life.at == "held":
            some = any(p.step > life.step for p in peers)
            if some or (whole and all(p.at == "held" for p in peers)):
                committed.setdefault(life.step, set()).add(life.ready)
                life.commit()
                life.at, life.fresh = "boundary", True
    newest = max(life.ready for life in lives)
    for step, epochs in committed.items():  # nobody computes a step again that somebody committed
        for life in lives:
            if life.ready == newest >= max(epochs):
                assert life.step > step or life.at == "held"
    for life in lives:
        assert life.made == sorted(set(life.made))
