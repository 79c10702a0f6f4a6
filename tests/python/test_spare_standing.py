"""How long members wait for each other at a lighthouse that has begun anew."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismcore.spare.runtime.guard import Guard, MembersLostError
from prismcore.spare.runtime.lighthouse import Heard, Lighthouse
from prismcore.spare.runtime.standing import Settling

MEMBERS = ("a", "b", "c", "d")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def heard(*alive: str, **silent_s: float) -> dict[str, Heard]:
    """Of some a moment ago; of others so long ago that they count as dead."""
    return {name: Heard(ago_s=0.1, dead=False) for name in alive} | {
        name: Heard(ago_s=ago_s, dead=True) for name, ago_s in silent_s.items()
    }


def test_one_that_lists_all_is_known_and_says_who_is_dead() -> None:
    settling = Settling(10, Clock())
    assert settling.standing(MEMBERS, heard("a", "b", c=0.6, d=900), present="ab") == "known"
    assert settling.standing((), {}, present="") == "known"


def test_one_that_has_begun_anew_is_given_its_time() -> None:
    clock = Clock()
    settling = Settling(10, clock)
    for now, expected in ((100, "settling"), (110, "settling"), (110.1, "new")):
        clock.now = now
        assert settling.standing(MEMBERS, heard("a", "b", "c"), present="abc") == expected


def test_its_time_begins_when_it_answers() -> None:
    """However long it was away."""
    clock = Clock()
    settling = Settling(10, clock)
    for _ in range(3):
        clock.now += 50
        assert settling.standing(MEMBERS, None, present="abcd") == "settling"
    assert settling.standing(MEMBERS, heard("a"), present="abcd") == "settling"
    clock.now += 11
    assert settling.standing(MEMBERS, heard("a"), present="a") == "new"
    settling.expect()
    assert settling.standing(MEMBERS, heard("a"), present="a") == "settling"


def test_who_is_alive_and_does_not_ask_is_waited_for() -> None:
    clock = Clock()
    settling = Settling(10, clock)
    settling.standing(MEMBERS, heard(), present="")
    clock.now += 300
    assert settling.standing(MEMBERS, heard("a", "b", "c"), present="ab") == "settling"
    assert settling.standing(MEMBERS, heard("a", "b", "c"), present="abc") == "new"


def test_a_program_that_hangs_is_not_waited_for_without_end() -> None:
    """It shows signs of life for ever: c, which came late, and asks for nothing."""
    clock = Clock()
    settling = Settling(10, clock)
    settling.standing(MEMBERS, heard("a", "b"), present="ab")
    clock.now += 9
    found = []
    for _ in range(12):
        found.append(settling.standing(MEMBERS, heard("a", "b", "c"), present="ab"))
        clock.now += 1
    assert found == ["settling"] * 11 + ["new"]


def test_who_waits_for_the_sum_waits_as_long_for_a_lighthouse_that_has_begun_anew() -> None:
    """Timeouts.settle_s is one time for both."""

    class Anew(Lighthouse):
        def heard(self, *, within_s: float = 1.0) -> dict[str, Heard]:
            return heard("a")

    line = Anew("x:1", replica="a", host="localhost", heartbeat_s=1, timeout_s=1, told=print)
    guard = Guard(line, {"b": 1}, timeout_s=60, settle_s=0.3)
    with pytest.raises(MembersLostError, match="no sign of life from group 1 for 0"):
        guard.wait(lambda seconds: bool(time.sleep(seconds)), "the sum")
    assert not Guard(line, {"b": 1}, timeout_s=60, settle_s=10).look()


def test_who_came_and_fell_silent_has_the_time_again() -> None:
    """It may be late for its heartbeat because all begin at once."""
    clock = Clock()
    settling = Settling(10, clock)
    settling.standing(MEMBERS, heard("a"), present="a")
    clock.now += 11
    for present in ("ab", "abc"):  # in the last quorum or not: it will not be in the next
        assert settling.standing(MEMBERS, heard("a", "b", c=0.6), present=present) == "settling"
        assert settling.standing(MEMBERS, heard("a", "b", c=10.1), present=present) == "new"


@given(st.lists(st.tuples(st.floats(0.01, 5), st.sets(st.sampled_from(MEMBERS))), max_size=60))
def test_nobody_is_given_up_who_was_heard_of_within_the_time(turns: list[tuple[float, set[str]]]) -> None:
    clock = Clock()
    settling = Settling(10, clock)
    first, last = clock.now, dict.fromkeys(MEMBERS[:3], clock.now)
    listed: set[str] = set()
    for pause_s, signs in turns:
        signs -= {"d"}  # is lost
        last |= dict.fromkeys(signs, clock.now)
        listed |= signs
        lives = {n: Heard(ago_s=clock.now - last[n], dead=clock.now - last[n] > 0.45) for n in listed}
        present = {name for name, life in lives.items() if not life.dead}
        standing = settling.standing(MEMBERS, lives, present)
        late = {name for name in MEMBERS if name not in present and clock.now - last.get(name, first) <= 10}
        assert standing == ("settling" if late else "new")
        clock.now += pause_s
