from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_oracle import Oracle, StuckError
from replay_programs import Programs, programs

from prismcore.errors import DeadlockError, MismatchError
from prismcore.graph import GraphBuilder
from prismcore.replay import ReplayResult, SlowRank, replay


def same(a: ReplayResult, b: ReplayResult) -> bool:
    arrays = ("iteration_time_ns", "splits", "iteration_end_ns", "peak_allocated_bytes")
    return all(np.array_equal(getattr(a, k), getattr(b, k)) for k in arrays) and a.warnings == b.warnings


# Against the naive replay.


def check_against_oracle(p: Programs, eager_bytes: int) -> None:
    graph = p.build()
    oracle = Oracle(graph, eager_bytes=eager_bytes)
    oracle.run()
    result = replay(graph, eager_bytes=eager_bytes)
    ends = [oracle.iteration_ends(r) for r in oracle.ranks]
    iterations = min(len(e) for e in ends)
    assert result.iteration_end_ns.tolist() == [e[:iterations] for e in ends]
    assert result.splits.tolist() == [[list(s) for s in oracle.splits(r, iterations)] for r in oracle.ranks]
    parts = result.splits.sum(axis=2) - result.splits[:, :, 1]
    assert (parts == np.diff(result.iteration_end_ns, axis=1, prepend=0)).all()
    assert result.events == sum(len(ops) for ops in p.ops)


@given(programs(), st.sampled_from([0, 8, 64]))
@settings(max_examples=150, deadline=None)
def test_equals_the_naive_replay(p: Programs, eager_bytes: int) -> None:
    check_against_oracle(p, eager_bytes)


@given(programs(max_actions=20), st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_deadlocks_exactly_where_the_naive_replay_does(p: Programs, random: object) -> None:
    p.shuffle_launches(random)
    graph = p.build()
    oracle = Oracle(graph)
    try:
        oracle.run()
    except StuckError:
        with pytest.raises((DeadlockError, MismatchError)):
            replay(graph)
        return
    ends = [oracle.iteration_ends(r) for r in oracle.ranks]
    iterations = min(len(e) for e in ends)
    try:
        result = replay(graph)
    except MismatchError:  # the oracle does not compare sizes
        return
    assert result.iteration_end_ns.tolist() == [e[:iterations] for e in ends]


@given(programs(), st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_threads_and_unfolding_change_nothing(p: Programs, rank: int) -> None:
    graph = p.build()
    result = replay(graph)
    assert same(result, replay(graph, threads=2))
    one = rank % p.ranks
    assert same(result, replay(graph, slow_ranks=[SlowRank(rank=one, factor=1.0)]))
    shown = replay(graph, timeline_ranks=[one])
    assert same(result, shown)
    again = replay(graph, timeline_ranks=[one], threads=2)
    assert shown.timeline is not None
    assert again.timeline is not None
    assert (shown.timeline.end_ns == again.timeline.end_ns).all()


# Closed forms.


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (2, 2), (4, 8), (8, 32)])
def test_uniform_pipeline_takes_m_plus_p_minus_1_slots(stages: int, micro_batches: int) -> None:
    forward, backward = 700, 1300
    builder = GraphBuilder(stages)
    world = builder.communicator("pp", range(stages))
    for r in range(stages):
        rank = builder.rank(r)

        def run_forward(rank=rank, r=r) -> None:
            if r > 0:
                rank.recv(world, source=r - 1, bytes=4096, tag=0)
            rank.kernel("f", duration_ns=forward)

        def run_backward(rank=rank, r=r) -> None:
            if r + 1 < stages:
                rank.recv(world, source=r + 1, bytes=4096, tag=1)
            rank.kernel("b", duration_ns=backward)

        def send_forward(rank=rank, r=r) -> None:
            if r + 1 < stages:
                rank.send(world, to=r + 1, bytes=4096, tag=0)

        def send_backward(rank=rank, r=r) -> None:
            if r > 0:
                rank.send(world, to=r - 1, bytes=4096, tag=1)

        warm = min(stages - 1 - r, micro_batches)
        for _ in range(warm):
            run_forward()
            send_forward()
        for _ in range(micro_batches - warm):
            run_forward()
            send_forward()
            run_backward()
            send_backward()
        for _ in range(warm):
            run_backward()
            send_backward()
    graph = builder.finish()
    result = replay(graph, eager_bytes=4096)
    expected = (micro_batches + stages - 1) * (forward + backward)
    assert result.iteration_time_ns.tolist() == [expected]
    busy = micro_batches * (forward + backward)
    assert result.splits[:, 0, 0].tolist() == [busy] * stages
