"""Where a training stands, by the events of its groups.

Several groups tell of the same failure, plan or re-join; here it counts once. Events come about in the order
of time, also over files and machines; what is older than what is known already changes no state.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass

from prismcore.spare.runtime.events import Event

__all__ = ["ALIVE", "STATES", "Group", "Progress", "integers", "number"]

STATES = (
    *("lost", "wiped out", "silent", "re-joining", "agreeing", "patching", "starting", "spare", "stopped"),
    *("training", "no log"),
)
"""What a group may be doing, what needs a look first. ``silent``: its log says nothing, though others have
committed :data:`SILENT_STEPS` steps since. ``no log``: only others tell of it."""

ALIVE = frozenset({"silent", "agreeing", "patching", "training"})
SILENT_STEPS = 3
SILENT_NS = 1_000_000_000
_RATE_STEPS = 33  # commits that the rate is taken of


@dataclass(slots=True)
class Group:
    """One group as it and others tell."""

    number: int
    state: str = "no log"  #: of STATES, ``silent`` apart: see :meth:`Progress.state`
    state_ns: int = -1
    position: int = 1 << 62  #: the rank inside the group that speaks for it: the lowest heard of
    step: int = -1
    last: Event | None = None  #: the newest of its own events
    lost: Event | None = None  #: how others told of its loss
    committed: int | None = None  #: its last committed step
    loss: float | None = None  #: of that step; may be nan
    parts: int | None = None  #: micro-batches that it computed for that step
    step_ms: float | None = None
    life: int = 0  # how often it went back to an older step
    joined_ns: int = -1
    patches: bool = False  # the newest plan gives it some
    loss_counted: bool = False
    away: bool = True  # a re-join would count
    failed: bool = False  # that is why it stopped

    def become(self, state: str, time_ns: int) -> None:
        if time_ns >= self.state_ns:
            self.state, self.state_ns = state, time_ns


class Progress:
    """The training as a whole, and its groups by number."""

    def __init__(self) -> None:
        self._newest_ns = 0
        self.groups: dict[int, Group] = {}  #: -1: all hot spares without a place
        self.size: int | None = None  #: N, where a group has told it
        self.redundancy: int | None = None
        self.micro_batches: int | None = None
        self.epoch: int | None = None  #: of membership
        self.depth: int | None = None  #: of the stacks
        self.committed = 0  #: steps committed, those again after a wipe-out too
        self.last_committed: int | None = None
        self.committed_ns: int | None = None  #: when
        self.failures = 0  #: groups lost
        self.patches = 0  #: micro-batches computed in patches, of all groups
        self.rejoins = 0  #: groups that came back or joined
        self.spares = 0  #: processes that wait without a place
        self.wipe_outs = 0
        self.wiped_out: Event | None = None  #: the one that nothing was committed after
        self.checkpoint: int | None = None  #: step of the newest
        self.lighthouse_lost: Event | None = None
        self.events = 0
        self._life = 0
        self._commits: deque[int] = deque(maxlen=_RATE_STEPS)

    def add(self, event: Event) -> None:
        """Take in one event."""
        self.events += 1
        self._newest_ns = max(self._newest_ns, event.time_ns)
        group = self._group(event.group)
        if event.position < group.position:
            group.position, group.committed = event.position, None
        if group.last is None or event.time_ns >= group.last.time_ns:
            group.last, group.step = event, event.step
        handle = _HANDLERS.get(event.event)
        if handle is not None:
            handle(self, group, event)

    def state(self, group: Group) -> str:
        """Of STATES."""
        newest = max(group.step, -1 if group.committed is None else group.committed)
        behind = -1 if self.last_committed is None else self.last_committed - newest
        quiet_ns = self._newest_ns - (group.last.time_ns if group.last is not None else 0)
        is_silent = behind >= SILENT_STEPS and quiet_ns > SILENT_NS  # quick steps: logs are read in turn
        return "silent" if group.state in ALIVE and is_silent else group.state

    def step(self) -> int | None:
        """The newest that a living group runs, or has run."""
        steps = [group.step for group in self.groups.values() if group.state in ALIVE and group.step >= 0]
        return max(steps, default=self.last_committed)

    def size_known(self) -> int:
        """N, or as many groups as were heard of."""
        return max(self.groups, default=-1) + 1 if self.size is None else self.size

    def alive(self) -> int:
        """Groups that take part in the running step."""
        return sum(group.state in ALIVE for group in self.groups.values())

    def states(self) -> dict[str, int]:
        """How many groups are in each state that occurs, in the order of STATES."""
        count = Counter(map(self.state, self.groups.values()))
        return {state: count[state] for state in STATES if count[state]}

    def steps_per_s(self) -> float | None:
        """Over the last commits; None before the second."""
        if len(self._commits) < 2 or self._commits[-1] <= self._commits[0]:
            return None
        return 1e9 * (len(self._commits) - 1) / (self._commits[-1] - self._commits[0])

    def _group(self, number: int) -> Group:
        if number not in self.groups:
            self.groups[number] = Group(number, life=self._life)
        return self.groups[number]

    def _start(self, group: Group, event: Event) -> None:
        self.size = _whole(event, "groups", self.size)
        self.redundancy = _whole(event, "redundancy", self.redundancy)
        self.micro_batches = _whole(event, "micro_batches", self.micro_batches)
        others = any(g.state in ALIVE and g is not group for g in self.groups.values())
        joins = others and self.last_committed is not None
        group.become("re-joining" if joins else "starting", event.time_ns)
        group.joined_ns = event.time_ns
        group.loss_counted, group.away = False, True
        if self.wiped_out is not None and event.time_ns > self.wiped_out.time_ns:
            self.wiped_out = None

    def _membership(self, group: Group, event: Event) -> None:
        members = set(integers(event, "members"))
        self.epoch = _whole(event, "epoch", self.epoch)
        for number in members:
            member = self._group(number)
            if member.state in ("starting", "no log"):
                member.become("training" if member.last else "no log", event.time_ns)
            elif member.state in ("lost", "stopped") and event.time_ns > member.state_ns:
                member.become("re-joining", event.time_ns)
                member.loss_counted = False
        if group.state == "agreeing":
            group.become("patching" if group.patches else "training", event.time_ns)
        for other in self.groups.values() if members else ():
            if other.number not in members and other.state in ALIVE:
                other.become("lost", event.time_ns)

    def _failure(self, group: Group, event: Event) -> None:
        lost = integers(event, "lost")
        for number in lost:
            other = self._group(number)
            ended = other.state == "wiped out" or (other.state == "stopped" and not other.failed)
            if event.time_ns < other.joined_ns or ended:
                continue
            if not other.loss_counted:
                self.failures += 1
                other.lost, other.loss_counted, other.away = event, True, True
            other.become("lost", event.time_ns)
        if group.number not in lost and group.state in ("training", "patching", "starting"):
            group.become("agreeing", event.time_ns)

    def _plan(self, group: Group, event: Event) -> None:
        self.depth = _whole(event, "depth", self.depth)
        group.patches = bool(_whole(event, "mine", 0))
        if group.state in ALIVE:  # some tell of the plan before they tell of the failure
            group.become("patching" if group.patches else "training", event.time_ns)

    def _patch(self, group: Group, event: Event) -> None:
        if event.position == group.position:
            self.patches += _whole(event, "parts", 0) or 0
        if group.state in ALIVE:
            group.become("patching", event.time_ns)

    def _commit(self, group: Group, event: Event) -> None:
        group.become("training", event.time_ns)
        group.loss_counted = group.patches = False
        if event.position != group.position:
            return
        if group.committed is not None and event.step <= group.committed:
            group.life += 1  # restarted from an older checkpoint
        group.committed = event.step
        group.loss = number(event, "loss")
        group.parts = _whole(event, "parts", None)
        group.step_ms = number(event, "step_ms")
        if group.life > self._life:
            self._life, self.last_committed = group.life, None
            self._commits.clear()
        if self.last_committed is None or event.step > self.last_committed:
            self.committed += 1
            self.last_committed, self.committed_ns = event.step, event.time_ns
            self._commits.append(event.time_ns)
            self.wiped_out = None

    def _rejoin(self, group: Group, event: Event) -> None:
        self.depth = _whole(event, "depth", self.depth)
        for other in map(self._group, integers(event, "joined")):
            if event.time_ns < other.state_ns:
                continue
            self.rejoins += other.away
            other.away = other.loss_counted = False
            other.joined_ns = event.time_ns
            other.become("training" if other.last else "no log", event.time_ns)

    def _spare(self, group: Group, event: Event) -> None:
        group.away = True
        if group.number >= 0:
            group.become("re-joining", event.time_ns)
        elif event.fields.get("waiting") is not False:
            self.spares += 1
            group.become("spare", event.time_ns)
        else:
            self._spare_leaves(group, event)

    def _spare_leaves(self, group: Group, event: Event) -> None:
        self.spares = max(0, self.spares - 1)
        if not self.spares:
            group.become("stopped", event.time_ns)

    def _wipe_out(self, group: Group, event: Event) -> None:
        self.wipe_outs += self.wiped_out is None
        self.wiped_out = event
        group.become("wiped out", event.time_ns)

    def _checkpoint(self, group: Group, event: Event) -> None:
        self.checkpoint = event.step

    def _lighthouse(self, group: Group, event: Event) -> None:
        self.lighthouse_lost = event if event.fields.get("state") == "lost" else None

    def _stop(self, group: Group, event: Event) -> None:
        if group.number < 0:
            self._spare_leaves(group, event)
        else:
            group.become("stopped", event.time_ns)
            group.failed = event.fields.get("reason") == "failed"


_HANDLERS = {
    "start": Progress._start,
    "membership": Progress._membership,
    "failure": Progress._failure,
    "plan": Progress._plan,
    "patch": Progress._patch,
    "commit": Progress._commit,
    "rejoin": Progress._rejoin,
    "spare": Progress._spare,
    "wipe_out": Progress._wipe_out,
    "checkpoint": Progress._checkpoint,
    "lighthouse": Progress._lighthouse,
    "stop": Progress._stop,
}


def number(event: Event, name: str) -> float | None:
    """Field `name` as a number, nan and infinity too; None where it is missing or none."""
    value = event.fields.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return float(value) if value in ("nan", "inf", "-inf") else None


def integers(event: Event, name: str) -> list[int]:
    """Field `name` as whole numbers; what is none is left out."""
    value = event.fields.get(name)
    parts = value if isinstance(value, list) else [value]
    return [part for part in parts if type(part) is int]


def _whole(event: Event, name: str, otherwise: int | None) -> int | None:
    """Field `name` as a whole number; of a list, how many there are."""
    value = event.fields.get(name)
    if isinstance(value, list):
        return len(value)
    return value if type(value) is int else otherwise
