"""Slow ranks and links and uneven kernels, against their definitions."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perturbation_oracle import Changes, jitter_factor
from replay_oracle import Oracle
from replay_programs import Programs, Seeded, make_programs, programs

from prismcore.errors import DeadlockError, GraphError
from prismcore.graph import Graph, GraphBuilder
from prismcore.profiles.cluster import cluster_text, parse_cluster
from prismcore.replay import (
    FailureReport,
    Jitter,
    Perturbation,
    RankFailure,
    ReplayResult,
    SlowLink,
    SlowRank,
    replay,
)

# Pairs of ranks on a node, so that trees and rings cross nodes.
CLUSTER = cluster_text("a100-8x").replace("gpus_per_node = 8", "gpus_per_node = 2")
WIRING = parse_cluster(CLUSTER, "cluster of the test")


def perturbations_of(by: Any, ranks: int) -> Perturbation:
    def span() -> dict[str, int | None]:
        if by.integer(0, 1):
            return {}
        begin = by.integer(0, 400)
        return {"from_ns": begin, "to_ns": by.pick([None, begin + by.integer(0, 400)])}

    def link() -> SlowLink:
        rank = by.integer(0, ranks - 1)
        other = by.pick([None, (rank + by.integer(1, ranks - 1)) % ranks])
        return SlowLink(rank=rank, other=other, factor=by.pick([1.0, 1.5, 2.75, 40.0]), **span())

    return Perturbation(
        slow_ranks=[
            SlowRank(rank=by.integer(0, ranks - 1), factor=by.pick([0.0, 0.5, 1.5, 3.3]), **span())
            for _ in range(by.integer(0, 3))
        ],
        slow_links=[link() for _ in range(by.integer(0, 3) if ranks > 1 else 0)],
        jitter=by.pick([None, Jitter(seed=by.integer(0, 2**40), sigma=by.pick([0.0, 0.1, 1.0]))]),
    )


def check_against_oracle(p: Programs, perturbation: Perturbation, eager_bytes: int) -> None:
    graph = p.build({"cluster": CLUSTER})
    oracle = Oracle(graph, eager_bytes=eager_bytes, changes=Changes(perturbation, WIRING))
    oracle.run()
    result = replay(graph, eager_bytes=eager_bytes, perturbation=perturbation)
    ends = [oracle.iteration_ends(r) for r in oracle.ranks]
    iterations = min(len(e) for e in ends)
    assert result.iteration_end_ns.tolist() == [e[:iterations] for e in ends]
    assert result.splits.tolist() == [[list(s) for s in oracle.splits(r, iterations)] for r in oracle.ranks]
    again = replay(
        graph, eager_bytes=eager_bytes, perturbation=perturbation, threads=2, timeline_ranks=[0, p.ranks - 1]
    )
    assert result.iteration_end_ns.tolist() == again.iteration_end_ns.tolist()
    assert result.splits.tolist() == again.splits.tolist()


@pytest.mark.parametrize("batch", range(8))
def test_equals_the_naive_replay(batch: int) -> None:
    for seed in range(40 * batch, 40 * batch + 40):
        by = Seeded(seed)
        p = make_programs(by, max_ranks=6, max_actions=60, asynchronous=seed % 3 > 0)
        p.swap_independent(by)
        check_against_oracle(p, perturbations_of(by, p.ranks), by.pick([0, 8]))


def check_failures_against_oracle(p: Programs, perturbation: Perturbation, eager_bytes: int) -> None:
    graph = p.build({"cluster": CLUSTER})
    oracle = Oracle(graph, eager_bytes=eager_bytes, changes=Changes(perturbation, WIRING))
    oracle.run_until_nothing_moves()
    result = replay(graph, eager_bytes=eager_bytes, perturbation=perturbation, timeline_ranks=[0])
    report = result.failure
    assert report is not None
    ends = [oracle.ended_iterations(r) for r in oracle.ranks]
    iterations = min(map(len, ends))
    assert list(report.iterations.values()) == [len(e) for e in ends]
    assert result.iteration_end_ns.tolist() == [e[:iterations] for e in ends]
    assert result.splits.tolist() == [[list(s) for s in oracle.splits(r, iterations)] for r in oracle.ranks]
    fails = {f.rank for f in perturbation.failures}
    assert sorted(report.failed) == [
        r.rank for r in oracle.ranks if r.rank in fails and not oracle.is_done(r)
    ]
    assert all(report.failed[rank] == oracle.changes.fails(rank) for rank in report.failed)
    waiting = {r.rank: (r.op, r.since_ns) for wait in report.waits for r in wait.ranks if r.rank not in fails}
    assert waiting == {
        r.rank: oracle.waits(r) for r in oracle.ranks if r.rank not in fails and not oracle.is_done(r)
    }
    for wait in report.waits:
        assert wait.missing
        assert wait.failed
        assert set(wait.failed) <= set(report.failed)
    again = replay(graph, eager_bytes=eager_bytes, perturbation=perturbation, threads=2)
    assert again.to_json() | {"wall_time_s": 0} == result.to_json() | {"wall_time_s": 0}


def failing(by: Any, ranks: int) -> Perturbation:
    p = perturbations_of(by, ranks)
    failures = [
        RankFailure(rank=by.integer(0, ranks - 1), at_ns=by.integer(0, by.pick([100, 1000, 3000])))
        for _ in range(by.integer(1, 3))
    ]
    return dataclasses.replace(p, failures=failures)


@pytest.mark.parametrize("batch", range(8))
def test_failures_equal_the_naive_replay(batch: int) -> None:
    for seed in range(80 * batch, 80 * batch + 80):
        by = Seeded(seed)
        p = make_programs(by, max_ranks=6, max_actions=50, asynchronous=seed % 3 > 0)
        p.swap_independent(by)
        check_failures_against_oracle(p, failing(by, p.ranks), by.pick([0, 8]))


@given(programs(), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_nothing_perturbed_is_the_plain_replay(p: Programs, random: Any) -> None:
    graph = p.build({"cluster": CLUSTER})
    one = random.randrange(p.ranks)
    nothing = Perturbation(
        slow_ranks=[SlowRank(rank=one, factor=1.0)],
        slow_links=[SlowLink(rank=one, other=None, factor=1.0)],
        jitter=Jitter(seed=random.randrange(2**63), sigma=0.0),
    )
    plain, other = replay(graph), replay(graph, perturbation=nothing)
    assert plain.iteration_end_ns.tolist() == other.iteration_end_ns.tolist()
    assert plain.splits.tolist() == other.splits.tolist()


# Golden values.


def line(ranks: int = 4, metadata: dict[str, Any] | None = None) -> Graph:
    """A kernel of 1000 ns, an all-reduce of 100 ns, and a message of 10 ns from 0 to the last rank."""
    builder = GraphBuilder(ranks)
    world = builder.communicator("world", range(ranks))
    for r in range(ranks):
        rank = builder.rank(r)
        rank.kernel("k", duration_ns=1000)
        rank.all_reduce(world, bytes=1 << 20, duration_ns=100)
        if r == 0:
            rank.send(world, to=ranks - 1, bytes=8, duration_ns=10)
        if r == ranks - 1:
            rank.recv(world, source=0, bytes=8, duration_ns=10)
    return builder.finish({"cluster": CLUSTER} if metadata is None else metadata)


def time_of(graph: Graph, **changes: Any) -> int:
    return int(replay(graph, perturbation=Perturbation(**changes)).iteration_time_ns[0])


def test_a_slow_link_in_ns() -> None:
    graph = line()
    assert time_of(graph) == 1110
    # All-reduce of 1 MiB over two nodes of two: ranks 1 and 2 are neighbours, 0 and 2 are not.
    assert time_of(graph, slow_links=[SlowLink(rank=1, other=2, factor=1.505)]) == 1000 + 151 + 10
    assert time_of(graph, slow_links=[SlowLink(rank=2, other=1, factor=1.505)]) == 1000 + 151 + 10
    assert time_of(graph, slow_links=[SlowLink(rank=0, other=2, factor=3)]) == 1110
    # Both cross all links of rank 3.
    assert time_of(graph, slow_links=[SlowLink(rank=3, other=None, factor=3)]) == 1000 + 300 + 30
    # The message starts at 1100.
    late = SlowLink(rank=3, other=None, factor=3, from_ns=1100, to_ns=1101)
    assert time_of(graph, slow_links=[late]) == 1000 + 100 + 30
    early = SlowLink(rank=3, other=None, factor=3, from_ns=1000, to_ns=1100)
    assert time_of(graph, slow_links=[early]) == 1000 + 300 + 10


def test_a_slow_ghost_moves_the_job_by_what_it_is_slower() -> None:
    assert time_of(line(), slow_ranks=[SlowRank(rank=2, factor=1.5)]) == 1500 + 110


def test_jitter_in_ns() -> None:
    kernels = [math.floor(1000 * jitter_factor(7, 0.25, rank, 0) + 0.5) for rank in range(4)]
    assert len(set(kernels)) == 4
    assert time_of(line(), jitter=Jitter(seed=7, sigma=0.25)) == max(kernels) + 110
    both = {"jitter": Jitter(seed=7, sigma=0.25), "slow_ranks": [SlowRank(rank=1, factor=5.0)]}
    slow = math.floor(1000 * (5.0 * jitter_factor(7, 0.25, 1, 0)) + 0.5)
    assert time_of(line(), **both) == slow + 110


def test_a_rank_that_fails_in_ns() -> None:
    graph = line()

    def report(rank: int, at_ns: int) -> FailureReport:
        failure = replay(
            graph, eager_bytes=0, perturbation=Perturbation(failures=[RankFailure(rank=rank, at_ns=at_ns)])
        ).failure
        assert failure is not None
        return failure

    # The all-reduce lasts from 1000 to 1100, the message between 0 and 3 to 1110.
    lost = report(2, 1099)
    assert lost.failed == {2: 1099}
    assert lost.waiting == [0, 1, 3]
    (wait,) = lost.waits
    assert (wait.communicator, wait.number, wait.missing, wait.failed) == ("world", 0, [2], [2])
    assert {(r.op, r.since_ns) for r in wait.ranks} == {(1, 1000)}
    assert lost.iterations == dict.fromkeys(range(4), 0)
    # Rank 2 has nothing more to do by then.
    assert report(2, 1100).failed == {}
    # The message is lost with rank 3: rank 0 waits.
    lost = report(3, 1109)
    (wait,) = lost.waits
    assert (wait.number, wait.missing, lost.waiting, wait.ranks[0].since_ns) == (None, [3], [0], 1100)
    assert lost.iterations == {0: 0, 1: 1, 2: 1, 3: 0}
    assert wait.describe() == (
        "rank 0 on communicator 'world': rank 0 op 2 (send float32 of 8 bytes), since 1.100 us, for rank 3"
    )


def test_those_behind_others_are_told_which_failure_it_was() -> None:
    """0 and 1 meet, then 1 and 2: 0 fails, 1 waits for it, 2 for 1."""
    builder = GraphBuilder(4)
    pairs = [builder.communicator(f"pair{k}", (k, k + 1)) for k in range(2)]
    builder.rank(0).kernel("k", duration_ns=50)
    builder.rank(0).allocate(100)
    for k, ranks in enumerate([(0, 1), (1, 2)]):
        for r in ranks:
            builder.rank(r).all_reduce(pairs[k], bytes=8, duration_ns=10)
    builder.rank(0).allocate(1000)
    builder.rank(3).kernel("k", duration_ns=70)
    result = replay(builder.finish(), perturbation=Perturbation(failures=[RankFailure(rank=0, at_ns=40)]))
    report = result.failure
    assert report is not None
    by_rank = {r.rank: wait for wait in report.waits for r in wait.ranks}
    assert {rank: (wait.missing, wait.failed) for rank, wait in by_rank.items()} == {
        1: ([0], [0]),
        2: ([1], [0]),
    }
    assert "because of rank 0" in by_rank[2].describe()
    assert report.iterations == {0: 0, 1: 0, 2: 0, 3: 1}
    assert len(result.iteration_time_ns) == 0
    assert result.to_json()["median_iteration_time_ns"] is None
    with pytest.raises(GraphError, match="no iteration ended"):
        _ = result.median_iteration_time_ns
    with pytest.raises(GraphError, match="no iteration ended"):
        _ = result.split


def test_a_program_that_locks_up_by_itself_stays_a_deadlock() -> None:
    builder = GraphBuilder(4)
    pair = builder.communicator("pair", (0, 1))
    builder.rank(0).all_reduce(pair, bytes=8, duration_ns=1)
    builder.rank(1).kernel("k", duration_ns=50)
    builder.rank(2).kernel("k", duration_ns=50)
    builder.rank(3).kernel("k", duration_ns=50)
    graph = builder.finish()
    for at_ns in (10, 10**9):
        with pytest.raises(DeadlockError, match="rank 1"):
            replay(graph, perturbation=Perturbation(failures=[RankFailure(rank=2, at_ns=at_ns)]))


def test_memory_and_ops_of_a_rank_end_where_it_fails() -> None:
    builder = GraphBuilder(1)
    rank = builder.rank(0)
    for _ in range(3):
        rank.allocate(100)
        rank.kernel("k", duration_ns=5, host_ns=10)
        rank.sync(stream=0)
    result = replay(builder.finish(), perturbation=Perturbation(failures=[RankFailure(rank=0, at_ns=26)]))
    # Kernels at 10 and 25: the second is issued and does not end, nothing behind it is issued.
    assert result.peak_allocated_bytes.tolist() == [200]
    assert result.events == 6
    assert result.failure is not None
    assert not result.failure.stopped


def test_slow_links_of_another_cluster_are_those_of_its_wiring() -> None:
    graph = line()
    flat = parse_cluster(cluster_text("a100-8x"), "eight on a node")
    slow = Perturbation(slow_links=[SlowLink(rank=1, other=2, factor=10.0)])

    def moved(cluster: Any) -> list[int]:
        results: list[ReplayResult] = [
            replay(graph, cluster=cluster, perturbation=changes) for changes in (Perturbation(), slow)
        ]
        return [int(r.iteration_time_ns[0]) for r in results]

    for cluster in (WIRING, flat):
        plain, slowed = moved(cluster)
        assert slowed > plain


# Bad values.


def test_slow_links_need_to_know_the_wiring() -> None:
    graph = line(metadata={})
    with pytest.raises(GraphError, match=r"communicator 'world'.*give a cluster profile"):
        time_of(graph, slow_links=[SlowLink(rank=0, other=1, factor=2.0)])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"slow_links": [SlowLink(rank=0, other=4, factor=2.0)]}, "names rank 4"),
        ({"slow_links": [SlowLink(rank=9, other=None, factor=2.0)]}, "names rank 9"),
        ({"slow_links": [SlowLink(rank=1, other=1, factor=2.0)]}, "to itself"),
        ({"slow_links": [SlowLink(rank=0, other=1, factor=0.5)]}, "from 1 on"),
        ({"slow_links": [SlowLink(rank=0, other=1, factor=math.nan)]}, "from 1 on"),
        ({"slow_links": [SlowLink(rank=0, other=1, factor=math.inf)]}, "from 1 on"),
        ({"slow_links": [SlowLink(rank=0, other=1, factor="2x")]}, "from 1 on"),
        ({"slow_links": [SlowLink(rank=0, other=2**32 - 1, factor=2.0)]}, "rank of a slow link"),
        ({"slow_links": [SlowLink(rank=0, other=1, factor=2.0, from_ns=3, to_ns=2)]}, "not before"),
        ({"slow_links": [SlowLink(rank=0, other=1, factor=1e300)]}, "past 64 bits"),
        ({"slow_ranks": [SlowRank(rank=0, factor=1e300)]}, "past 64 bits"),
        ({"failures": [RankFailure(rank=4, at_ns=1)]}, "names rank 4"),
        ({"failures": [RankFailure(rank=0, at_ns=-1)]}, "time of a failure"),
        ({"failures": [RankFailure(rank=-1, at_ns=1)]}, "rank that fails"),
        ({"jitter": Jitter(seed=1, sigma=-0.1)}, "from 0 to 2"),
        ({"jitter": Jitter(seed=1, sigma=2.1)}, "from 0 to 2"),
        ({"jitter": Jitter(seed=1, sigma=math.nan)}, "from 0 to 2"),
        ({"jitter": Jitter(seed=1, sigma=None)}, "from 0 to 2"),
        ({"jitter": Jitter(seed=-1, sigma=0.1)}, "seed of the jitter"),
    ],
)
def test_values_that_cannot_be_are_errors(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(GraphError, match=words):
        time_of(line(), **changes)
