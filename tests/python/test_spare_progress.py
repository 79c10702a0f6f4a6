"""What the events of all groups say of the training: each thing once, however many tell of it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.spare.runtime.events import Event
from prismcore.spare.runtime.progress import ALIVE, STATES, Progress, integers, number

N = 6


class Fleet:
    """Emits what groups would, every survivor its own, and keeps the counts itself."""

    def __init__(self, positions=1):
        self.progress = Progress()
        self.time_ns = 0
        self.positions = positions
        self.alive = set(range(N))
        self.step = 0
        self.epoch = 1
        self.counts = {"committed": 0, "failures": 0, "rejoins": 0, "patches": 0, "wipe_outs": 0}
        self.start()

    def tell(self, tellers, event, /, step=None, **fields):
        for group in tellers:
            for position in reversed(range(self.positions)):
                self.time_ns += 1_000
                at = self.step if step is None else step
                self.progress.add(Event(self.time_ns, group, position, at, event, fields))

    def start(self):
        self.alive = set(range(N))
        self.tell(self.alive, "start", step=-1, groups=N, redundancy=3, micro_batches=4, replica="x")
        self.tell(self.alive, "membership", epoch=self.epoch, members=sorted(self.alive), quorum=1, cost_ms=1)

    def commit(self, _):
        self.tell(self.alive, "commit", loss=0.5, parts=4, step_ms=100.0, epoch=self.epoch)
        self.step += 1
        self.counts["committed"] += 1

    def lose(self, pick):
        if len(self.alive) == 1:
            return
        lost = {sorted(self.alive)[pick % len(self.alive)]}
        self.alive -= lost
        self.epoch += 1
        self.tell(self.alive, "failure", lost=sorted(lost), how="collective", detail="", noticed_ms=3.0)
        members = sorted(self.alive)
        self.tell(members, "membership", epoch=self.epoch, members=members, quorum=self.epoch, cost_ms=2.0)
        self.tell(
            members, "plan", outcome="patched", depth=2, patches=2, mine=1, moved=1, digest="a", cost_ms=1
        )
        self.tell(members, "patch", parts=2, cost_ms=5.0)
        self.counts["failures"] += 1
        self.counts["patches"] += 2 * len(members)

    def rejoin(self, pick):
        away = sorted(set(range(N)) - self.alive)
        if not away:
            return
        joined = away[pick % len(away)]
        self.tell([joined], "start", step=-1, groups=N, redundancy=3, micro_batches=4, replica="y")
        self.alive.add(joined)
        self.epoch += 1
        members = sorted(self.alive)
        self.tell(members, "membership", epoch=self.epoch, members=members, quorum=self.epoch, cost_ms=2.0)
        self.tell(members, "rejoin", joined=[joined], source=members[0], bytes=8, cost_ms=9.0, depth=1)
        self.counts["rejoins"] += 1

    def restart(self, pick):
        """From a checkpoint that is `pick` steps old."""
        fields = {"lost_types": [1, 2], "last_committed": self.step - 1, "checkpoint": "c"}
        self.tell(self.alive, "wipe_out", **fields)
        self.step = max(0, self.step - pick)
        self.counts["wipe_outs"] += 1
        self.start()


actions = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "commit", "lose", "rejoin", "restart"]), st.integers(0, 7)
    ),
    max_size=40,
)


@given(actions, st.integers(1, 2))
@settings(max_examples=200)
def test_everything_counts_once(taken, positions):
    fleet = Fleet(positions)
    for name, pick in taken:
        getattr(fleet, name)(pick)
        progress = fleet.progress
        assert {name: getattr(progress, name) for name in fleet.counts} == fleet.counts
        assert {n for n, g in progress.groups.items() if g.state in ALIVE} == fleet.alive
        assert progress.alive() == len(fleet.alive)
        assert sum(progress.states().values()) == len(progress.groups) == N
        lost = {n for n, g in progress.groups.items() if progress.state(g) == "lost"}
        assert lost == set(range(N)) - fleet.alive
        if name == "commit":
            assert progress.last_committed == fleet.step - 1 == progress.step()


@given(actions, st.randoms())
@settings(max_examples=100)
def test_any_order_is_survived(taken, random):
    """Logs of another run, clocks that differ: numbers may be odd, nothing fails."""
    fleet = Fleet()
    events = []
    fleet.progress.add = events.append
    for name, pick in taken:
        getattr(fleet, name)(pick)
    random.shuffle(events)
    progress = Progress()
    for event in events:
        progress.add(event)
    assert progress.events == len(events)
    assert set(progress.states()) <= set(STATES)


def states(fleet):
    return {n: fleet.progress.state(g) for n, g in fleet.progress.groups.items()}


def test_states_through_a_failure_and_a_rejoin():
    fleet = Fleet()
    assert set(states(fleet).values()) == {"training"}
    fleet.commit(0)
    fleet.tell(range(5), "failure", lost=[5], how="heartbeat", detail="", noticed_ms=400.0)
    assert states(fleet) == {**dict.fromkeys(range(5), "agreeing"), 5: "lost"}
    fleet.tell(range(5), "membership", epoch=2, members=[0, 1, 2, 3, 4], quorum=2, cost_ms=1.0)
    fleet.tell([0], "plan", outcome="patched", depth=2, patches=1, mine=1, moved=0, digest="a", cost_ms=1.0)
    fleet.tell(range(1, 5), "plan", outcome="patched", depth=2, patches=1, mine=0, digest="a", cost_ms=1.0)
    assert states(fleet) == {0: "patching", **dict.fromkeys(range(1, 5), "training"), 5: "lost"}
    assert fleet.progress.depth == 2
    fleet.alive.discard(5)
    fleet.commit(0)
    fleet.tell([5], "start", step=-1, groups=N)
    assert states(fleet)[5] == "re-joining"
    fleet.tell(range(5), "rejoin", joined=[5], source=0, bytes=1, cost_ms=1.0, depth=1)
    assert set(states(fleet).values()) == {"training"}
    assert fleet.progress.depth == 1
    fleet.tell([3], "stop", reason="done")
    assert states(fleet)[3] == "stopped"
    fleet.tell([0], "failure", lost=[3], how="left", detail="", noticed_ms=1.0)
    assert (states(fleet)[3], fleet.progress.failures) == ("stopped", 1)
    fleet.tell([4], "stop", reason="failed")  # as ranks do whose group has lost one
    fleet.tell([0], "failure", lost=[4], how="inside", detail="", noticed_ms=1.0)
    assert (states(fleet)[4], fleet.progress.failures) == ("lost", 2)


def test_a_group_whose_log_says_nothing_is_silent():
    fleet = Fleet()
    fleet.commit(0)
    fleet.alive.discard(4)
    for _ in range(2):
        fleet.commit(0)
    assert states(fleet)[4] == "training"
    fleet.commit(0)
    assert states(fleet)[4] == "training"  # steps so quick may just be read later
    fleet.time_ns += 2_000_000_000
    fleet.commit(0)
    assert states(fleet)[4] == "silent"


def test_spares_and_groups_without_a_log():
    progress = Progress()
    progress.add(Event(1, -1, 0, -1, "spare", {"waiting": True}))
    progress.add(Event(2, 0, 0, 4, "membership", {"epoch": 1, "members": [0, 1, 7]}))
    progress.add(Event(3, 0, 0, 4, "commit", {"loss": 1.0}))
    assert {n: g.state for n, g in progress.groups.items()} == {
        -1: "spare",
        0: "training",
        1: "no log",
        7: "no log",
    }
    assert progress.size_known() == 8


def test_spares_come_and_go():
    progress = Progress()
    for time_ns in range(2):
        progress.add(Event(time_ns, -1, 0, -1, "spare", {"waiting": True}))
    assert (progress.spares, progress.states()) == (2, {"spare": 1})
    progress.add(Event(2, -1, 0, 5, "spare", {"waiting": False}))
    assert (progress.spares, progress.states()) == (1, {"spare": 1})
    progress.add(Event(3, -1, 0, 6, "stop", {"reason": "closed"}))
    assert (progress.spares, progress.states()) == (0, {"stopped": 1})
    progress.add(Event(4, 7, 0, 6, "spare", {"waiting": True}))  # has a place, and waits for a step to begin
    assert (progress.spares, progress.states()) == (0, {"re-joining": 1, "stopped": 1})


def test_the_plan_may_be_told_before_the_failure():
    fleet = Fleet()
    fleet.alive.discard(5)
    fleet.tell([0], "plan", outcome="patched", depth=2, patches=1, mine=1, moved=0, digest="a", cost_ms=1.0)
    fleet.tell([1], "plan", outcome="patched", depth=2, patches=1, mine=0, moved=0, digest="a", cost_ms=1.0)
    fleet.tell([0, 1], "failure", lost=[5], how="heartbeat", detail="", noticed_ms=400.0)
    fleet.tell([0, 1], "membership", epoch=2, members=[0, 1, 2, 3, 4], quorum=2, cost_ms=1.0)
    assert states(fleet) == {0: "patching", **dict.fromkeys(range(1, 5), "training"), 5: "lost"}
    fleet.commit(0)
    assert states(fleet) == {**dict.fromkeys(range(5), "training"), 5: "lost"}


def test_the_rate_is_of_commits():
    progress = Progress()
    for step in range(5):
        assert (progress.steps_per_s() is None) == (step < 2)
        for group in range(3):
            progress.add(Event(step * 250_000_000 + group, group, 0, step, "commit", {}))
    assert progress.steps_per_s() == 4.0


scalars = st.none() | st.booleans() | st.integers() | st.text() | st.floats()
NAMES = "start membership failure plan patch commit rejoin spare wipe_out checkpoint lighthouse stop new"
FIELDS = "groups members epoch lost depth mine parts loss step_ms joined lost_types state how cost_ms"

names, fields = (st.sampled_from(words.split()) for words in (NAMES, FIELDS))


@given(
    st.lists(
        st.tuples(names, st.integers(-(2**70), 2**70), st.dictionaries(fields, scalars | st.lists(scalars)))
    )
)
def test_whatever_fields_hold_nothing_fails(found):
    progress = Progress()
    for name, odd, values in found:
        event = Event.from_line(Event(odd, odd % 5 - 1, 0, odd, name, values).line())
        progress.add(event)
    progress.states(), progress.alive(), progress.step(), progress.size_known(), progress.steps_per_s()


def test_fields_as_numbers():
    event = Event(
        0, 0, 0, 0, "x", {"a": 1, "b": "nan", "c": "7", "d": True, "e": [1, "2", 3.0, True, 4], "f": 10**400}
    )
    assert number(event, "a") == 1.0
    assert str(number(event, "b")) == "nan"
    assert number(event, "f") == float("inf")
    assert [number(event, name) for name in "cdez"] == [None] * 4
    assert integers(event, "e") == [1, 4]
    assert integers(event, "a") == [1]
    assert integers(event, "b") == integers(event, "z") == []
