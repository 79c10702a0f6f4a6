"""Times that count for nobody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismcore.launch import pauses as module
from prismcore.launch.pauses import Pauses

moments = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from(["begin", "end", "add 3", "add 9", "add 1"]))
)


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@given(moments, st.integers(0, 20), st.integers(1, 100))
def test_each_second_counts_once(events: list[tuple[int, str]], later: int, seconds: int) -> None:
    """Against a mark for each half second."""
    clock, found, marked, begun = Clock(), Pauses(), set(), None

    def mark(begin: float, end: float) -> None:
        if end - begin >= 1:
            marked.update(range(int(begin * 2), int(end * 2)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "time", clock)
        for at, what in sorted(events, key=lambda event: event[0]):
            clock.now = 100 + at / 2
            if what == "begin":
                found.begin()
                begun = clock.now
            elif what == "end":
                found.end()
                if begun is not None:
                    mark(begun, clock.now)
                begun = None
            else:
                found.add(float(what[4:]))
                mark(clock.now - float(what[4:]), clock.now)
        clock.now = max(clock.now, 100) + later / 2
        if begun is not None:
            mark(begun, clock.now)
        counted = [half for half in marked if (clock.now - seconds) * 2 <= half]
        assert found.within(seconds) == len(counted) / 2
        assert found.lasts == (begun is not None and clock.now - begun >= 1)
