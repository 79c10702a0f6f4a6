"""Who goes on, and with which step: what members tell each other, and what follows from it.

Every member sends a :class:`Report` with its request for a quorum; the lighthouse of torchft gives all
reports of a quorum to all that are in it. :func:`decide` is a pure function of these, so that members
that got the same quorum do the same.

What it rests on. A membership (*epoch*) is **ready** for a member once its first barrier is over; then
every member of it had entered that barrier. A step is **committed** for a member once the barrier behind
its reduction is over; then every member held the step's complete gradient. So whatever one survivor has
passed, the others may pass as well, and nobody needs to know what the dead had passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from prismcore.errors import MembershipError
from prismcore.spare.runtime.terms import Terms, common_terms, difference

__all__ = ["Decision", "Member", "Refusal", "Report", "decide"]

NO_GROUP = -1

Standing = Literal["known", "settling", "new"]
"""What a member makes of the lighthouse. It is *known* while it lists all members of the epoch, the dead
among them; one that does not has begun anew, and then is *settling* for as long as members that are alive may
still come to it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a member says of itself when it asks for a quorum.

    Attributes:
        training: name of its training.
        group: its number; -1 for a spare that has none yet.
        replica: this life of the group; unique.
        born_ns: when this life began, of the wall clock.
        store: address of the member's key-value store, ``host:port``.
        ready: the last epoch whose barrier is over here; 0: none.
        entered: the last epoch whose barrier was entered here, with the state of its step.
        members: how many groups epoch ``ready`` has.
        quorum: number of the last quorum in which it was a member of epoch ``ready``, or of what followed on
            that: one in which it only waited for a place is another's, and tells nothing of whether others
            have gone on without it.
        lighthouse: see :data:`Standing`.
        step: the step that is computed here or comes next; below 0: there is no state to go on from.
        fresh: nothing of ``step`` is computed, and the optimizer has made ``step - 1``.
        held: the complete gradient of ``step`` is here.
        waited: has asked for so long that a training may begin without all its groups.
        alike: begins with the same weights as all others.
        terms: what all must have alike.
    """

    training: str
    group: int
    replica: str
    born_ns: int
    store: str
    ready: int
    entered: int
    members: int
    quorum: int
    lighthouse: Standing
    step: int
    fresh: bool
    held: bool
    waited: bool
    alike: bool
    terms: Terms

    def to_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_data(cls, data: Mapping[str, Any] | None) -> Report | None:
        """None: it was not written by a member of this version."""
        try:
            return cls(**data)  # type: ignore[arg-type]
        except TypeError:
            return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """A group that goes on. ``synced``: it has the state of the step; else ``source`` gives it."""

    group: int
    replica: str
    synced: bool
    source: int = NO_GROUP


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """How a quorum goes on.

    Attributes:
        previous: the epoch that it follows; 0: a training begins.
        epoch: names the new membership; later ones are greater.
        members: by group.
        base: groups that were in the last one and still are. Empty where a training begins.
        joined: groups that come back or come new.
        step: the step that runs from here. Members whose own step is the one before commit that first:
            they hold it.
        fresh: nobody has computed any of it.
        store: address of the store to meet at.
        quorum: number of the quorum that it was made in.
        waiting: replicas that may join at the next step boundary.
        refused: replicas whose group goes on with another life.
        ended: why, by replica, of those that have no part in the training and are to end.
    """

    previous: int
    epoch: int
    quorum: int
    members: tuple[Member, ...]
    base: tuple[int, ...]
    joined: tuple[int, ...]
    step: int
    fresh: bool
    store: str
    waiting: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    ended: Mapping[str, str] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[int, ...]:
        return tuple(member.group for member in self.members)

    def place_of(self, replica: str) -> Member | None:
        return next((member for member in self.members if member.replica == replica), None)

    def continues(self, replica: str) -> bool:
        """It was in the last membership, and this one follows on what it has."""
        place = self.place_of(replica)
        return place is not None and place.synced


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Nobody may go on with this quorum: ask again. ``over``: there is no training in it. ``base``: replicas
    of the last membership, which wait. ``for_now``: who is missing may come in a moment. ``ended``: see
    :class:`Decision`."""

    reason: str
    over: bool = False
    for_now: bool = False
    base: tuple[str, ...] = ()
    ended: Mapping[str, str] = field(default_factory=dict)

    def continues(self, replica: str) -> bool:
        """It is in the last membership still."""
        return replica in self.base


def decide(reports: Sequence[Report], *, groups: int, quorum: int, created_ns: int) -> Decision | Refusal:
    """What the members of a quorum do; ``groups``: N of the placement; ``quorum``, ``created_ns``: its number
    and time.

    The order of ``reports`` does not matter. Who alone is wrong is named in ``ended``.

    Raises:
        MembershipError: members contradict each other.
    """
    reports = sorted(reports, key=lambda report: (report.group, report.born_ns, report.replica))
    ready = max((report.ready for report in reports), default=0)
    if ready == 0:
        return _begin(reports, groups, quorum, created_ns)
    base = [report for report in reports if ready in (report.ready, report.entered)]
    _check_base(base)
    known = [report for report in base if report.ready == ready]
    refusal = _check_whole(base, known, quorum)
    inside = {report.replica for report in base}
    if refusal is not None:
        return refusal if refusal.for_now else _begin_without(refusal, reports, groups, quorum, created_ns)
    top = max(report.step for report in base)
    if any(report.step < top and not report.held for report in base):
        behind = next(report for report in base if report.step < top and not report.held)
        raise MembershipError(
            f"group {behind.group} is in step {behind.step} without its gradient while another is in step "
            f"{top}; expected a step to be committed by all or by none: this is a fault of prismcore"
        )
    commits = all(report.held for report in base if report.step == top)
    step = top + 1 if commits else top
    fresh = all(report.fresh for report in base if report.step == step)
    sources = [report.group for report in base if report.step == step and report.fresh]
    outside = [report for report in reports if report.replica not in inside]
    ended = _misfits(outside, groups, base[0].terms)
    outside = [report for report in outside if report.replica not in ended]
    others, refused = _newest(outside, taken={report.group for report in base})
    members = [Member(group=report.group, replica=report.replica, synced=True) for report in base]
    joined: list[int] = []
    if fresh and sources:
        vacant = sorted(set(range(groups)) - {r.group for r in base} - {r.group for r in others})
        joining = [(r.group, r) for r in others if r.group != NO_GROUP]
        joining += list(zip(vacant, (r for r in others if r.group == NO_GROUP), strict=False))
        for number, (group, report) in enumerate(sorted(joining)):
            source = sources[number % len(sources)]
            members.append(Member(group=group, replica=report.replica, synced=False, source=source))
            joined.append(group)
    placed = {member.replica for member in members}
    return Decision(
        previous=ready,
        epoch=_next_epoch(reports, created_ns),
        quorum=quorum,
        members=tuple(sorted(members, key=lambda member: member.group)),
        base=tuple(report.group for report in base),
        joined=tuple(joined),
        step=step,
        fresh=fresh,
        store=base[0].store,
        waiting=tuple(report.replica for report in others if report.replica not in placed),
        refused=refused,
        ended=ended,
    )


def _check_whole(base: Sequence[Report], known: Sequence[Report], quorum: int) -> Refusal | None:
    """Whether those of an epoch that are there may go on without the others."""
    size = max(report.members for report in known)
    missing = size - len(base)
    standings = {report.lighthouse for report in known}
    replicas = tuple(report.replica for report in base)
    if missing == 0:
        return None
    if "settling" in standings:
        return Refusal(
            reason=f"the lighthouse has begun anew, and {missing} of {size} groups may still come to it",
            for_now=True,
            base=replicas,
        )
    if "new" in standings:
        if 2 * len(base) > size:
            return None
        return Refusal(
            reason=f"the lighthouse has begun anew, and only {len(base)} of {size} groups are there; "
            "expected more than half",
            base=replicas,
        )
    if quorum > 1 + max(report.quorum for report in known):  # there was one without any of these
        named = ", ".join(str(report.group) for report in base)
        reason = (
            f"{f'group {named} was' if len(base) == 1 else f'groups {named} were'} away while others went on "
            "with the training, and these are gone or through; if they are not, start all groups again from "
            "the last checkpoint"
        )
        return Refusal(reason=reason, over=True, ended=dict.fromkeys(replicas, reason))
    return None


def _begin_without(
    refusal: Refusal, reports: Sequence[Report], groups: int, quorum: int, created_ns: int
) -> Decision | Refusal:
    """Those of the last membership may not go on. Where all groups have been started again, these begin."""
    base = refusal.base or tuple(refusal.ended)
    rest = [report for report in reports if report.ready == 0 and report.replica not in base]
    begun = _begin(rest, groups, quorum, created_ns)
    if isinstance(begun, Refusal):  # those that wait until more of the base are there do not end
        return replace(refusal, ended={**begun.ended, **refusal.ended})
    left = f"{refusal.reason}; all groups have begun again without them"
    return replace(
        begun, epoch=_next_epoch(reports, created_ns), ended={**begun.ended, **dict.fromkeys(base, left)}
    )


def _begin(reports: Sequence[Report], groups: int, quorum: int, created_ns: int) -> Decision | Refusal:
    """Nobody has been in a membership yet: a training begins, or is begun again from a checkpoint."""
    numbered = [report for report in reports if report.group != NO_GROUP]
    come = {report.group for report in numbered}
    waited = any(report.waited for report in numbered)
    if not come or (len(come) < groups and not waited):
        return Refusal(reason=f"{len(come)} of {groups} groups are there to begin", over=True)
    ended = _misfits(reports, groups, common_terms([report.terms for report in numbered]))
    reports = [report for report in reports if report.replica not in ended]
    present, refused = _newest([report for report in numbered if report.replica not in ended], taken=set())
    if len(present) < groups and not waited:
        reason = f"{len(present)} of {groups} groups are there to begin, {len(ended)} with other options"
        return Refusal(reason=reason, over=True, ended=ended)
    step = max(report.step for report in present)
    if step < 0:
        return Refusal(reason="no group that is there has a state to begin from", ended=ended)
    source = next(report.group for report in present if report.step == step)
    members = [
        Member(
            group=report.group,
            replica=report.replica,
            synced=report.group == source or (report.alike and report.step == step),
            source=source,
        )
        for report in present
    ]
    return Decision(
        previous=0,
        epoch=_next_epoch(reports, created_ns),
        quorum=quorum,
        members=tuple(members),
        base=(),
        joined=tuple(member.group for member in members),
        step=step,
        fresh=True,
        store=present[0].store,
        waiting=tuple(report.replica for report in reports if report.group == NO_GROUP),
        refused=refused,
        ended=ended,
    )


def _misfits(reports: Sequence[Report], groups: int, terms: Terms) -> dict[str, str]:
    """Why, by replica, of those that cannot be in the training: they alone end."""
    ended = {}
    for report in reports:
        text = difference(report.terms, terms)
        if not text and not NO_GROUP <= report.group < groups:
            text = f"group {report.group} found, expected 0 to {groups - 1}"
        if text:
            who = "this spare" if report.group == NO_GROUP else f"group {report.group}"
            ended[report.replica] = (
                f"{who} has other options than the training ({text}); expected the same placement, "
                "micro_batches, seed, deterministic, backend, positions and version of prismcore everywhere: "
                "this process ends, the others go on"
            )
    return ended


def _next_epoch(reports: Sequence[Report], created_ns: int) -> int:
    """Two quorums never give the same: a member that alone entered one is in no other for that."""
    return max(created_ns, 1 + max(max(report.ready, report.entered) for report in reports))


def _newest(reports: Sequence[Report], taken: set[int]) -> tuple[list[Report], tuple[str, ...]]:
    """One life of each group that is not taken, the newest; and the lives that have no place. Spares, who
    have no number, all stay."""
    newest = {report.group: report for report in reports if report.group not in taken}  # sorted by birth
    kept = [r for r in reports if r.group == NO_GROUP or newest.get(r.group) is r]
    names = {report.replica for report in kept}
    return kept, tuple(report.replica for report in reports if report.replica not in names)


def _check_base(base: Sequence[Report]) -> None:
    seen: set[int] = set()
    for report in base:
        if report.group in seen:
            raise MembershipError(
                f"group {report.group} is twice in one membership; expected one life: this is a fault of "
                "prismcore"
            )
        seen.add(report.group)
