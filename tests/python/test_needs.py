"""Which ranks run next when some wait for objects of others."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismcore.collect.needs import MOST_TRIES, next_to_run
from prismcore.errors import CollectError
from prismcore.launch.need import ObjectNeed


def need(root: int, key: str = "") -> ObjectNeed:
    return ObjectNeed(
        key=key or str(root), root=root, function="broadcast_object_list", number=3, group="pp:4", size=8,
        site="train.py:7 main",
    )  # fmt: skip


def following(needs, *, given=(), ran=(), allowed=range(8), tries=None):
    return next_to_run(needs, given=given, ran=ran, allowed=allowed, tries=tries or {})


def test_ranks_in_need_run_when_their_object_is_there_and_their_root_before():
    assert following({}) == []
    assert following({1: need(0), 2: need(5)}, given={"0"}) == [1, 5]
    assert following({1: need(5), 2: need(5)}) == [5]
    assert following({1: need(2), 2: need(5)}, given={"5"}) == [2]


@pytest.mark.parametrize(
    ("needs", "options", "words"),
    [
        ({1: need(0)}, {"ran": [0]}, "rank 0 ended without giving it"),
        ({1: need(0)}, {"allowed": [1, 2]}, r"add it to --ranks \(0-2\)"),
        ({1: need(2), 2: need(1)}, {}, "in a circle"),
        ({1: need(0)}, {"given": {"0"}, "tries": {1: MOST_TRIES}}, "64 times"),
    ],
)
def test_what_nobody_will_give_is_an_error_that_names_all_of_it(needs, options, words):
    with pytest.raises(CollectError, match=words) as caught:
        following(needs, **options)
    for part in ("rank 1 needs", "broadcast_object_list at train.py:7 main", "object 3 of communicator pp:4"):
        assert part in str(caught.value)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=12))
def test_a_program_that_goes_on_when_all_ranks_run_ends(calls):
    """Ranks give objects in one order: (root, receiver) calls that each of the two comes to in turn."""
    calls = [(root, receiver) for root, receiver in calls if root != receiver]
    values: set[str] = set()
    ended: set[int] = set()
    tries: Counter[int] = Counter()
    needs: dict[int, ObjectNeed] = {}
    waiting = list(range(8))
    for _ in range(100):
        for rank in waiting:
            tries[rank] += 1
            needs.pop(rank, None)
            for number, (root, receiver) in enumerate(calls):
                if rank == root:
                    values.add(str(number))
                elif rank == receiver and str(number) not in values:
                    needs[rank] = need(root, str(number))
                    break
            else:
                ended.add(rank)
        if not needs:
            break
        waiting = following(needs, given=values, ran=ended, tries=tries)
    assert ended == set(range(8))
