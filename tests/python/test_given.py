"""What a rule does not do to the program it runs beside."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.torch  # the door stands in front of it


class Ring:
    def __init__(self) -> None:
        self.own = self


@pytest.fixture(autouse=True)
def collector():
    enabled, thresholds = gc.isenabled(), gc.get_threshold()
    gc.enable()
    yield
    gc.set_threshold(*thresholds)
    (gc.enable if enabled else gc.disable)()


@pytest.mark.parametrize("switches", [gc.disable, gc.enable, lambda: None])
@pytest.mark.parametrize("before", [gc.disable, gc.enable])
def test_nothing_is_collected_and_what_the_program_switched_stays(
    before: Callable[[], None], switches: Callable[[], None]
) -> None:
    from prismcore.launch.given import _no_collection

    gc.set_threshold(50, 5, 5)
    before()
    expected = {gc.disable: False, gc.enable: True}.get(switches, gc.isenabled())
    with _no_collection():
        switches()
        ring = weakref.ref(Ring())
        kept = [[number] for number in range(5000)]
        assert ring() is not None
        assert gc.isenabled() == expected  # as the program knows it
    assert len(kept) == 5000
    assert gc.isenabled() == expected
    assert gc.get_threshold() == (50, 5, 5)


def test_a_threshold_that_the_program_sets_meanwhile_stays() -> None:
    from prismcore.launch.given import _no_collection

    gc.set_threshold(50, 5, 5)
    with _no_collection():
        gc.set_threshold(70, 6, 6)
    assert gc.get_threshold() == (70, 6, 6)
