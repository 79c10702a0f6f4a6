"""What cannot go on, in the shapes that public reports describe."""

from __future__ import annotations

import pytest

from prismcore.errors import DeadlockError, GraphError, MismatchError
from prismcore.graph import DataType, Graph, GraphBuilder, OpKind, RankBuilder
from prismcore.replay import replay


def test_a_partial_graph_names_the_ranks_it_lacks() -> None:
    builder = GraphBuilder(4)
    world = builder.communicator("world", range(4))
    builder.rank(1).all_reduce(world, bytes=8, duration_ns=5)
    with pytest.raises(GraphError, match=r"lacks rank 0, 2, 3; rank 1 meets them on communicator 'world'"):
        replay(builder.finish())
    builder = GraphBuilder(4)
    world = builder.communicator("world", range(4))
    alone = builder.communicator("alone", [1])
    builder.rank(1).all_reduce(alone, bytes=8, duration_ns=5)
    builder.rank(1).send(world, to=2, bytes=8, duration_ns=5)
    builder.rank(2).recv(world, source=1, bytes=8, duration_ns=5)
    assert replay(builder.finish()).iteration_time_ns.tolist() == [10]


def programs_of(*scripts: list[tuple[str, object]]) -> GraphBuilder:
    builder = GraphBuilder(len(scripts))
    builder.communicator("world", range(len(scripts)))
    for r, script in enumerate(scripts):
        for name, arguments in script:
            getattr(builder.rank(r), name)(**arguments)
    return builder


def reduce(
    site: str = "", *, group: int = 0, size: int = 64, stream: int = 0
) -> tuple[str, dict[str, object]]:
    return "all_reduce", {
        "communicator": group,
        "bytes": size,
        "duration_ns": 5,
        "stream": stream,
        "call_site": site,
    }


def test_a_kind_mismatch_names_both_call_sites() -> None:
    other = "all_to_all", {"communicator": 0, "bytes": 64, "duration_ns": 5, "call_site": "moe.py:7"}
    graph = programs_of([reduce(), reduce("loss.py:3")], [reduce(), other]).finish()
    with pytest.raises(MismatchError) as found:
        replay(graph)
    text = str(found.value)
    assert "communicator 'world' meet in collective 1 with different kinds" in text
    assert "rank 0 op 1 (all_reduce sum float32 of 64 bytes) at loss.py:3" in text
    assert "rank 1 op 1 (all_to_all float32 of 64 bytes) at moe.py:7" in text


@pytest.mark.parametrize(
    ("field", "value", "word"),
    [("bytes", 65, "sizes"), ("dtype", DataType.BFLOAT16, "data types"), ("reduction", 4, "reductions")],
)
def test_members_must_agree(field: str, value: int, word: str) -> None:
    name, arguments = reduce()
    graph = programs_of([reduce()], [(name, {**arguments, field: value})], [reduce()]).finish()
    with pytest.raises(MismatchError, match=f"different {word}.*rank 1"):
        replay(graph)


def test_roots_must_agree_and_gathers_may_be_larger_there() -> None:
    def rooted(kind: OpKind, root: int, size: int) -> tuple[str, dict[str, object]]:
        return kind.name.lower(), {"communicator": 0, "root": root, "bytes": size, "duration_ns": 5}

    with pytest.raises(MismatchError, match="different roots"):
        replay(programs_of([rooted(OpKind.BROADCAST, 0, 8)], [rooted(OpKind.BROADCAST, 1, 8)]).finish())
    for kind in (OpKind.GATHER, OpKind.SCATTER):
        sizes = [8, 24, 8]
        graph = programs_of(*[[rooted(kind, 1, size)] for size in sizes]).finish()
        assert replay(graph).iteration_time_ns.tolist() == [5]
        with pytest.raises(MismatchError, match="different sizes"):
            replay(programs_of(*[[rooted(kind, 1, size)] for size in (8, 25, 8)]).finish())
        with pytest.raises(MismatchError, match="different sizes"):
            replay(programs_of(*[[rooted(kind, 1, size)] for size in (8, 24, 9)]).finish())


def test_ranks_that_do_the_same_are_named_with_their_own_call_sites() -> None:
    """Two branches of a program that do the same: `if rank == 0: ... else: ...`."""
    sites = ["train.py:10", "train.py:20", "train.py:20", "train.py:20"]
    other = "all_to_all", {"communicator": 0, "bytes": 64, "duration_ns": 5, "call_site": "moe.py:7"}
    graph = programs_of(*[[reduce(site), reduce(site, size=8)] for site in sites[:3]], [other]).finish()
    assert graph.num_programs == 3
    assert len({graph.rank(r).rank_class for r in range(3)}) == 1
    with pytest.raises(MismatchError) as mismatch:
        replay(graph)
    assert "rank 0 op 0 (all_reduce sum float32 of 64 bytes) at train.py:10" in str(mismatch.value)
    assert "rank 3 op 0 (all_to_all float32 of 64 bytes) at moe.py:7" in str(mismatch.value)

    builder = GraphBuilder(4)
    ring = builder.communicator("ring", range(4))
    for r, site in enumerate(sites):
        builder.rank(r).recv(ring, source=(r - 1) % 4, bytes=8, duration_ns=5, call_site=site)
        builder.rank(r).send(ring, to=(r + 1) % 4, bytes=8, duration_ns=5, call_site=site)
    graph = builder.finish()
    assert graph.num_programs == 2
    with pytest.raises(DeadlockError) as deadlock:
        replay(Graph.from_bytes(graph.to_bytes()))
    for r, site in enumerate(sites):
        assert f"rank {r} op 0 (recv float32 of 8 bytes) at {site} waits" in str(deadlock.value)


def test_a_skipped_collective_is_pointed_out() -> None:
    gather = "all_gather", {"communicator": 0, "bytes": 128, "duration_ns": 5}
    full = [reduce(), gather, reduce()]
    graph = programs_of(full, full, full, [reduce(), reduce()]).finish()
    with pytest.raises(MismatchError, match=r"rank 3 seems to have skipped collective 1"):
        replay(graph)


def test_a_rank_that_ends_early_is_named() -> None:
    full = [reduce("step.py:9")] * 3
    graph = programs_of(full, full, full, full[:2]).finish()
    with pytest.raises(DeadlockError) as found:
        replay(graph)
    text = str(found.value)
    assert "3 of 4 ranks cannot go on" in text
    assert "rank 0 op 2 (all_reduce sum float32 of 64 bytes) at step.py:9" in text
    assert "(collective 2) for rank 3" in text
    assert "rank 3 ended its program after 2 ops" in text


def test_split_tables_that_disagree() -> None:
    """An all-to-all of grouped messages: what rank 0 sends to rank 1 is not what rank 1 expects."""
    sends = [[4, 8], [16, 32]]
    receives = [[4, 16], [12, 32]]
    builder = GraphBuilder(2)
    world = builder.communicator("ep", range(2))
    for r in range(2):
        rank = builder.rank(r)
        with rank.group():
            for other in range(2):
                site = f"moe.py:{r}"
                rank.send(world, to=other, bytes=sends[r][other], duration_ns=1, call_site=site)
                rank.recv(world, source=other, bytes=receives[r][other], duration_ns=1, call_site=site)
    with pytest.raises(MismatchError) as found:
        replay(builder.finish())
    text = str(found.value)
    assert "rank 0 op 2 (send float32 of 8 bytes) at moe.py:0" in text
    assert "rank 1 op 1 (recv float32 of 12 bytes) at moe.py:1" in text
    assert "split tables" in text
    assert "rules" not in text  # nobody collected this graph
    assert (found.value.rank, found.value.op) == (1, 1)


@pytest.mark.parametrize("rules", [{}, {"1 counts": 3}])
def test_a_mismatch_of_a_collected_graph_names_what_ghosts_may_have_steered(rules: dict[str, int]) -> None:
    builder = GraphBuilder(2)
    world = builder.communicator("world", range(2))
    for r in range(2):
        rank = builder.rank(r)
        for line, dtype in ((3, DataType.INT64), (4, DataType.FLOAT32)):
            rank.all_to_all(world, bytes=16, duration_ns=1, dtype=dtype, call_site=f"moe.py:{line}")
        rank.all_reduce(world, bytes=8 << r, duration_ns=1, call_site="moe.py:5")
        rank.all_gather(world, bytes=16, duration_ns=1, dtype=DataType.INT64, call_site="moe.py:6")
    with pytest.raises(MismatchError) as found:
        replay(builder.finish({"ranks_run": 2, "rules": rules}))
    text = str(found.value)
    assert f"all_to_all int64 of 16 bytes at moe.py:3 (rank {found.value.rank} op 0)" in text
    assert "moe.py:6" not in text
    assert ("with rules for what the others send (counts)" in text) == bool(rules)
    assert ("give rules to prism collect (--rules FILE, with --ranks all" in text) != bool(rules)


def test_an_unmatched_receive_blocks_its_whole_group() -> None:
    builder = GraphBuilder(2)
    world = builder.communicator("pp", range(2))
    rank = builder.rank(0)
    with rank.group():
        rank.send(world, to=1, bytes=8, duration_ns=1)
        rank.recv(world, source=1, bytes=8, duration_ns=1)
    rank.kernel("after", duration_ns=1)
    builder.rank(1).recv(world, source=0, bytes=8, duration_ns=1)
    with pytest.raises(DeadlockError, match=r"rank 0 op 1 \(recv.*for rank 1; rank 1 ended"):
        replay(builder.finish())


def skip_schedule(order: str) -> Graph:
    """Four stages with a skip connection from the first to the last; batched receives."""
    builder = GraphBuilder(4)
    pp = builder.communicator("pp", range(4))
    first, last = builder.rank(0), builder.rank(3)

    def send(rank: RankBuilder, to: int) -> None:
        rank.send(pp, to=to, bytes=8, duration_ns=1)

    if order == "skip first":
        send(first, 3)  # a rendezvous with a stage that waits for stage 2 first
        send(first, 1)
    else:
        send(first, 1)
        send(first, 3)
    for middle in (1, 2):
        builder.rank(middle).recv(pp, source=middle - 1, bytes=8, duration_ns=1)
        send(builder.rank(middle), middle + 1)
    last.recv(pp, source=2, bytes=8, duration_ns=1)
    last.recv(pp, source=0, bytes=8, duration_ns=1)
    return builder.finish()


def test_skip_connection_in_good_and_bad_order() -> None:
    assert replay(skip_schedule("chain first")).iteration_time_ns.tolist() == [4]
    with pytest.raises(DeadlockError, match="4 of 4 ranks"):
        replay(skip_schedule("skip first"))
    assert replay(skip_schedule("skip first"), eager_bytes=8).iteration_time_ns.tolist() == [5]


def crossing_pipeline(*, receive_first: bool) -> Graph:
    """Four ranks with two virtual stages each: activations travel on while others come back round."""
    builder = GraphBuilder(4)
    pp = builder.communicator("pp", range(4))
    for r in range(4):
        rank = builder.rank(r)
        for chunk in range(2):
            rank.kernel("chunk", duration_ns=10)
            ops = [
                lambda rank=rank, r=r, tag=chunk: rank.send(pp, to=(r + 1) % 4, bytes=8, tag=tag),
                lambda rank=rank, r=r, tag=chunk: rank.recv(pp, source=(r - 1) % 4, bytes=8, tag=tag),
            ]
            if receive_first and r % 2:
                ops.reverse()
            for op in ops:
                op()
    return builder.finish()


def test_crossing_sends_of_an_interleaved_pipeline() -> None:
    assert replay(crossing_pipeline(receive_first=True)).iteration_time_ns.tolist() == [20]
    with pytest.raises(DeadlockError, match=r"these 4 wait for each other; post the receive first"):
        replay(crossing_pipeline(receive_first=False))


def crossed_communicators(stream_of_second: int) -> Graph:
    builder = GraphBuilder(2)
    groups = [builder.communicator(name, range(2)) for name in ("dp", "ep")]
    for r in range(2):
        for c in groups if r == 0 else reversed(groups):
            builder.rank(r).all_reduce(c, bytes=8, duration_ns=5, stream=c * stream_of_second)
    return builder.finish()


def test_launch_orders_that_cross_over_two_communicators() -> None:
    with pytest.raises(DeadlockError) as found:
        replay(crossed_communicators(0))
    text = str(found.value)
    assert "rank 0 op 0" in text
    assert "rank 1 op 0" in text
    assert "over communicators 'dp', 'ep'; launch them in one order" in text
    assert replay(crossed_communicators(1)).iteration_time_ns.tolist() == [5]


def test_membership_that_disagrees() -> None:
    builder = GraphBuilder(3)
    wide, narrow = builder.communicator("tp", [0, 1, 2]), builder.communicator("tp", [0, 1])
    builder.rank(0).all_reduce(narrow, bytes=8)
    builder.rank(1).all_reduce(wide, bytes=8)
    builder.rank(2).all_reduce(wide, bytes=8)
    with pytest.raises(MismatchError, match=r"members of communicator 'tp'.*0, 1, 2"):
        replay(builder.finish())


def test_messages_stay_short_for_many_ranks() -> None:
    ranks = 2000
    builder = GraphBuilder(ranks)
    world = builder.communicator("world", range(ranks))
    for r in range(ranks):
        if r % 3:
            builder.rank(r).all_reduce(world, bytes=8)
        else:
            builder.rank(r).kernel("k", duration_ns=1)
    with pytest.raises(DeadlockError) as found:
        replay(builder.finish())
    assert len(str(found.value)) < 600
    assert "0, 3, 6, 9, ... (667 in all)" in str(found.value)
    ring = GraphBuilder(ranks)
    c = ring.communicator("ring", range(ranks))
    for r in range(ranks):
        ring.rank(r).send(c, to=(r + 1) % ranks, bytes=8)
        ring.rank(r).recv(c, source=(r - 1) % ranks, bytes=8)
    with pytest.raises(DeadlockError, match="1995 more"):
        replay(ring.finish())


def test_an_unreceived_eager_message_is_reported() -> None:
    builder = GraphBuilder(2)
    world = builder.communicator("world", range(2))
    builder.rank(0).send(world, to=1, bytes=8, duration_ns=5, call_site="p2p.py:4")
    builder.rank(1).kernel("k", duration_ns=1)
    graph = builder.finish()
    assert "1 eager messages are sent and never received" in replay(graph, eager_bytes=8).warnings[0]
    assert "p2p.py:4" in replay(graph, eager_bytes=8).warnings[0]
    with pytest.raises(DeadlockError, match=r"p2p\.py:4"):
        replay(graph)


def test_an_empty_graph_is_refused() -> None:
    with pytest.raises(GraphError, match="no rank"):
        replay(GraphBuilder(2).finish())
