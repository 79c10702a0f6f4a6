"""What members decide from what they tell each other; and that no order of losses breaks a step in two."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spare_reports import TERMS, report

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
    away = refused([report(1)], quorum=9)
    assert "group 1 was away while others went on" in away.ended["group1:1"]
    assert not away.continues("group1:1")
    assert decided([report(1, quorum=8), report(2)], quorum=9).base == (1, 2)


def test_who_only_waited_in_a_quorum_was_away_all_the_same() -> None:
    """Group 0 was stopped in step 5; group 1 went on alone, and died while it gave its state to group 0."""
    behind = report(0, ready=50, entered=50, members=2, quorum=3)
    found = decided([report(1, members=1, step=100, fresh=True), behind], quorum=8)
    assert found.joined == (0,)
    assert not found.continues("group0:1")  # so that it says 3 again
    assert "away while others went on" in refused([behind], quorum=9).ended["group0:1"]
    waits = decided([report(1, members=1, step=100), behind], quorum=8)
    assert not waits.continues("group0:1")


def test_who_waits_for_others_of_the_last_membership_is_in_it_still() -> None:
    some = [report(0, lighthouse="settling"), report(1), new(2)]
    found = refused(some)
    assert [found.continues(f"group{g}:1") for g in range(3)] == [True, True, False]


def test_one_that_was_away_does_not_end_those_who_begin_again() -> None:
    stale = report(0, ready=50, entered=50, members=4, quorum=3, replica="group0:old")
    begins = [new(g, step=90) for g in range(4)]
    for lighthouse, number in (("known", 9), ("new", 1)):
        found = decided([replace(stale, lighthouse=lighthouse), *begins], quorum=number)
        assert (found.base, found.groups, found.step) == ((), (0, 1, 2, 3), 90)
        assert "all groups have begun again without them" in found.ended["group0:old"]
        assert set(found.ended) == {"group0:old"}
        assert found.epoch > 50
    some = refused([stale, *begins[:3]], quorum=9)
    assert set(some.ended) == {"group0:old"}
    assert some.over
    few = refused([replace(stale, lighthouse="new"), *begins[:3]], quorum=1)
    assert not few.ended  # the others of its membership may come


def test_one_with_other_options_ends_alone() -> None:
    other = {**TERMS, "micro_batches": "8"}
    members = [report(0, fresh=True), report(1, fresh=True)]
    for misfit, words in (
        (new(3, terms=other), "micro_batches = 8 found, the others have 2"),
        (new(-1, terms=TERMS | {"version": "9"}), "version = 9 found, the others have nothing"),
        (new(9), "group 9 found, expected 0 to 3"),
    ):
        found = decided([*members, misfit, new(2)])
        assert found.groups == (0, 1, 2)
        assert set(found.ended) == {misfit.replica}
        assert words in found.ended[misfit.replica]
        assert misfit.replica not in found.waiting


def test_a_training_begins_with_what_most_have() -> None:
    other = {**TERMS, "seed": "7"}
    wrong = new(0, terms=other)
    few = refused([wrong, new(1)])
    assert not few.ended  # who is right is not known yet
    found = refused([wrong, new(1), new(2), new(3)])
    assert set(found.ended) == {"group0:1"}
    assert "3 of 4 groups are there to begin, 1 with other options" in found.reason
    right = new(0, replica="group0:2", born_ns=2)
    assert decided([wrong, right, new(1), new(2), new(3)]).groups == (0, 1, 2, 3)
    assert decided([wrong, new(1, waited=True), new(2)]).groups == (1, 2)


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
    away: bool = False  # stopped
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

    def settle(self, epoch: int) -> None:
        found, self.pending = self.pending, None
        if found is not None and found.epoch == epoch:
            self.ready, self.members, self.quorum = epoch, len(found.members), found.quorum

    def enter(self, decision: Decision, *, is_given: bool) -> None:
        """``is_given``: the state, where it needs one."""
        place = decision.place_of(self.replica)
        assert place is not None
        if place.synced and decision.base and decision.step == self.step + 1:
            assert self.at == "held"
            self.commit()
            self.at = "boundary"
        if not place.synced:
            if not is_given:
                return
            self.ready, self.members = 0, 0
            self.step, self.fresh, self.made = decision.step, True, []
        assert self.step == decision.step
        self.at, self.entered, self.pending, self.alone = "entering", decision.epoch, decision, False


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 2**32), st.integers(2, 6))
def test_no_order_of_losses_breaks_a_step_in_two(seed: int, groups: int) -> None:
    """Members go on one at a time, and are lost or stopped at any moment, also between two of them passing a
    barrier, or while a state is given; those that were stopped come back at any moment."""
    rng = random.Random(seed)
    lives = [Life(group=g, replica=f"group{g}:0", born=0) for g in range(groups)]
    number, now, last = 0, 1000, set()
    committed: dict[int, set[int]] = {}  # step -> epochs in which somebody committed it
    for turn in range(150):
        if rng.random() < 0.06 and len(lives) > 1:
            lives.remove(rng.choice(lives))
        if rng.random() < 0.06 and lives:
            life = rng.choice(lives)
            life.away = not life.away
        if rng.random() < 0.06 and len(lives) < groups:
            group = rng.choice(sorted(set(range(groups)) - {life.group for life in lives}))
            lives.append(Life(group=group, replica=f"group{group}:{turn + 1}", born=turn + 1))
        here = [life for life in lives if not life.away]
        for life in here:  # who is with one that is gone, or has left, breaks sooner or later
            peers = [p for p in here if not p.alone and p.entered == life.entered]
            if not life.alone and len(peers) < size_of(life) and rng.random() < 0.5:
                life.alone = True
        if here and all(life.alone for life in here):
            names = {life.replica for life in here}
            number, now, last = number + (names != last), now + 1, names
            found = decide([life.report() for life in here], groups=groups, quorum=number, created_ns=now)
            lives = [life for life in lives if life.replica not in found.ended]
            here = [life for life in here if life.replica not in found.ended]
            if isinstance(found, Refusal):
                for life in here:
                    life.quorum = number if found.continues(life.replica) else life.quorum
                continue
            if not found.base:
                committed.clear()  # all that had begun are lost or refused: it begins again
            assert found.step > max(committed, default=-1)  # no step is made twice
            for life in here:
                life.settle(found.previous)
                life.pending = None
                life.quorum = number if found.continues(life.replica) else life.quorum
            for life in here:
                if found.place_of(life.replica) is not None and rng.random() < 0.9:
                    life.enter(found, is_given=rng.random() < 0.7)
            continue
        going = [life for life in here if not life.alone]
        if not going:
            continue
        life = rng.choice(going)
        peers = [p for p in lives if p.entered == life.entered and not p.alone]
        whole = len(peers) == size_of(life)
        if life.at == "entering":
            if whole or any(p.ready == life.entered for p in peers):
                life.settle(life.entered)
                life.at = "compute"
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
    newest = max((life.ready for life in lives), default=0)
    for step, epochs in committed.items():  # nobody computes a step again that somebody committed
        for life in lives:
            if life.ready == newest >= max(epochs):
                assert life.step > step or life.at == "held"
    for life in lives:
        assert life.made == sorted(set(life.made))


def size_of(life: Life) -> int:
    """Of the membership that it is in, or enters."""
    return life.members if life.pending is None else len(life.pending.members)
