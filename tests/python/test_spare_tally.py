"""What travels in the tail of the gradients: counts, losses, and whether a boundary is wanted."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prismcore.errors import SpareError
from prismcore.spare.reorderer import Part
from prismcore.spare.runtime.tally import Tally, loss_of

STEP = 7
LOSSES = st.floats(min_value=-1e30, max_value=1e30)


@st.composite
def steps(draw: st.DrawFn) -> tuple[int, int, dict[Part, float], list[dict[Part, float]]]:
    """N, m, the loss of each part, and what of it each of some groups gives."""
    shards, micro_batches = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    parts = [Part(shard, number) for shard in range(shards) for number in range(micro_batches)]
    losses = {part: draw(LOSSES) for part in parts}
    givers: list[dict[Part, float]] = [{} for _ in range(draw(st.integers(1, shards)))]
    for part, loss in losses.items():
        draw(st.sampled_from(givers))[part] = loss
    return shards, micro_batches, losses, givers


def summed(tally: Tally, givers: list[dict[Part, float]], *, wanted: int = -1) -> torch.Tensor:
    total = torch.zeros(tally.length)
    for number, given_here in enumerate(givers):
        tail = torch.full((tally.length,), 7.0)  # what is there before does not count
        tally.enter(tail, given_here, step=STEP, boundary_wanted=number == wanted)
        total += tail
    return total


@given(steps(), st.integers(-1, 4))
def test_the_mean_is_that_of_all_losses_whoever_gives_them(
    step: tuple[int, int, dict[Part, float], list[dict[Part, float]]], wanted: int
) -> None:
    shards, micro_batches, losses, givers = step
    tally = Tally(shards, micro_batches)
    mean, boundary = tally.read(summed(tally, givers, wanted=wanted), step=STEP)
    size = max(abs(loss) for loss in losses.values())
    assert mean == pytest.approx(math.fsum(losses.values()) / len(losses), rel=0, abs=1e-13 * size + 1e-44)
    assert boundary == (0 <= wanted < len(givers))
    assert tally.read(summed(tally, [losses]), step=STEP)[0] == mean  # to the last bit


@given(st.lists(LOSSES | st.sampled_from([math.inf, -math.inf, math.nan, 1e300]), min_size=1, max_size=6))
def test_a_device_enters_what_the_processor_enters(losses: list[float]) -> None:
    tally = Tally(len(losses), 1)
    here, there = torch.empty(tally.length), torch.empty(tally.length)
    tally.enter(here, {Part(shard, 0): loss for shard, loss in enumerate(losses)}, step=STEP)
    tensors: dict[Part, torch.Tensor | float] = {
        Part(shard, 0): torch.tensor(loss, dtype=torch.float64) for shard, loss in enumerate(losses)
    }
    tally.enter(there, tensors, step=STEP)
    assert torch.equal(here.nan_to_num(nan=0.5), there.nan_to_num(nan=0.5))


@given(steps(), st.data())
def test_a_part_that_is_missing_or_twice_there_is_named(
    step: tuple[int, int, dict[Part, float], list[dict[Part, float]]], data: st.DataObject
) -> None:
    shards, micro_batches, losses, _ = step
    tally = Tally(shards, micro_batches)
    part = data.draw(st.sampled_from(sorted(losses)))
    without = {other: loss for other, loss in losses.items() if other != part}
    name = rf"1 micro-batches .*: \({part.type}, {part.part}\) do not count once"
    with pytest.raises(SpareError, match=name):
        tally.read(summed(tally, [without]), step=STEP)
    with pytest.raises(SpareError, match=name):
        tally.read(summed(tally, [losses, {part: losses[part]}]), step=STEP)


@given(steps(), st.data())
def test_gradients_of_two_steps_in_one_sum_are_found_out(
    step: tuple[int, int, dict[Part, float], list[dict[Part, float]]], data: st.DataObject
) -> None:
    """By each group, whichever step it is in itself."""
    shards, micro_batches, losses, _ = step
    tally = Tally(shards, micro_batches)
    number = data.draw(st.integers(0, 2**40))
    late = data.draw(st.sets(st.sampled_from(sorted(losses)), min_size=1))
    total = torch.zeros(tally.length)
    for behind in (0, 1):
        given_here = {part: loss for part, loss in losses.items() if (part in late) == behind}
        tail = torch.empty(tally.length)
        tally.enter(tail, given_here, step=number + 1 - behind)
        total += tail
    with pytest.raises(SpareError, match=rf"in step {number + 1}, or are of another"):
        tally.read(total, step=number + 1)
    if len(late) < len(losses):
        with pytest.raises(SpareError, match=rf"in step {number}, or are of another"):
            tally.read(total, step=number)


def test_a_loss_is_copied_and_is_one_number() -> None:
    loss = torch.tensor([2.5], requires_grad=True)
    kept = loss_of(loss)
    with torch.no_grad():
        loss += 1
    assert kept == 2.5
    assert loss_of(3) == 3.0
    with pytest.raises(SpareError, match=r"loss of shape \[2\] found, expected one number"):
        loss_of(torch.zeros(2))
