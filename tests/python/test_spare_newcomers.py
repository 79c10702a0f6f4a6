"""For whom members agree again."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from prismcore.spare.runtime.newcomers import Newcomers


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_one_that_asks_is_met_at_every_look() -> None:
    newcomers = Newcomers(1.0, Clock())
    for _ in range(5):
        assert newcomers.wait({"group1:a"}, is_vacant=True)
        newcomers.came(["group0:a", "group1:a"])
    assert not newcomers.wait(set(), is_vacant=True)


def test_a_spare_is_met_for_a_vacancy() -> None:
    newcomers = Newcomers(1.0, Clock())
    assert not newcomers.wait({"spare:a"}, is_vacant=False)
    assert newcomers.wait({"spare:a", "group1:a"}, is_vacant=False)
    newcomers.came(["group1:a"])  # the spare was not to be met
    assert newcomers.wait({"spare:a"}, is_vacant=True)


def test_one_that_never_asks_is_passed_over_for_longer_and_longer() -> None:
    clock = Clock()
    newcomers = Newcomers(1.0, clock)
    met = []
    for tenth in range(3600):
        clock.now = 100 + tenth / 10
        if newcomers.wait({"group0:old"}, is_vacant=True):
            met.append(tenth / 10)
            newcomers.came(["group1:a"])
    pauses = [round(b - a) for a, b in pairwise(met)]
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert newcomers.wait({"group0:old", "group2:new"}, is_vacant=True)  # others are met as ever
    newcomers.came(["group2:new", "group0:old"])
    assert newcomers.wait({"group0:old"}, is_vacant=True)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=200))
def test_what_is_gone_is_forgotten(steps: list[tuple[str, bool]]) -> None:
    clock = Clock()
    newcomers = Newcomers(1.0, clock)
    for name, asks in steps:
        clock.now += 0.5
        newcomers.wait({name}, is_vacant=True)
        newcomers.came([name] if asks else [])
        assert len(newcomers._passed_over) <= 1
        assert not newcomers._met
