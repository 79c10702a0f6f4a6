"""Iterations found in the repetition of blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.collect.iterations import find_repetition, mark_iterations
from prismcore.graph import GraphBuilder
from prismcore.graph.op import MarkKind, OpKind


@settings(max_examples=150, deadline=None)
@given(
    period=st.integers(2, 12),
    micro_batches=st.integers(1, 6),
    count=st.integers(2, 5),
    setup=st.integers(0, 9),
    tail=st.integers(0, 3),
)
def test_the_iteration_is_found_and_not_the_micro_batch(period, micro_batches, count, setup, tail):
    # An iteration: micro-batches that repeat inside it, then an optimizer block that does not.
    iteration = list(range(period)) * micro_batches + [900]
    blocks = [*range(1000, 1000 + setup), *iteration * count, *range(2000, 2000 + tail)]
    found = find_repetition(blocks)
    assert found is not None
    assert (found.start, found.period, found.count) == (setup, len(iteration), count)
    assert found.boundaries[-1] == setup + len(iteration) * count


def test_where_nothing_repeats_nothing_is_found():
    assert find_repetition([]) is None
    assert find_repetition([1]) is None
    assert find_repetition([1, 2, 3, 4]) is None


def test_marks_stand_between_iterations_and_nothing_else_changes():
    builder = GraphBuilder(world_size=2)
    world = builder.communicator("default_pg:0", range(2))
    rank = builder.rank(1)
    rank.kernel("setup", duration_ns=5)
    rank.all_reduce(world, bytes=8, call_site="train.py:1 main")
    rank.mark_phase("training")
    for _ in range(3):
        rank.kernel("step", duration_ns=7)
        rank.all_reduce(world, bytes=64, call_site="train.py:2 main")
        rank.kernel("optimizer", duration_ns=3)
        rank.all_reduce(world, bytes=16)
    plain = builder.finish()
    marked = mark_iterations(plain, 1)
    before, after = plain.ops(1), marked.ops(1)
    is_mark = (after["kind"] == OpKind.MARK) & (after["detail"] == MarkKind.ITERATION)
    kept = after[~is_mark]
    for field in set(before.dtype.names) - {"ref"}:
        assert np.array_equal(kept[field], before[field])
    kernels = after["kind"] == OpKind.KERNEL
    names = [marked.kernel(int(i)).name for i in after["ref"][kernels]]
    assert names == ["setup"] + ["step", "optimizer"] * 3
    assert marked.iterations >= 2
    assert [s for s in marked.program_call_sites(0) if s].count("train.py:2 main") == 3
    phase = (after["kind"] == OpKind.MARK) & (after["detail"] == MarkKind.PHASE)
    assert [marked.string(int(i)) for i in after["ref"][phase]] == ["training"]
