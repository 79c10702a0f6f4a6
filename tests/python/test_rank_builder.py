import numpy as np
import pytest

from prismcore import GraphBuilder
from prismcore.errors import GraphError
from prismcore.graph import (
    OP_DTYPE,
    CopyDirection,
    DataType,
    Event,
    Gemm,
    MarkKind,
    MemoryPeaks,
    OpFlag,
    OpKind,
    Provenance,
    Reduction,
)


def test_peers_are_relative_so_that_neighbours_share_a_program():
    builder = GraphBuilder(8)
    ring = builder.communicator("ring", [7, 5, 3, 1, 0, 2, 4, 6])
    order = builder.members(ring).tolist()
    for i, r in enumerate(order):
        rank = builder.rank(r)
        with rank.group():
            rank.send(ring, to=order[(i + 1) % 8], bytes=8, tag=4)
            rank.recv(ring, source=order[i - 1], bytes=8, tag=4)
    graph = builder.finish()
    assert graph.num_programs == 1
    send, recv = graph.ops(3)
    assert (send["peer"], recv["peer"], send["tag"]) == (1, 7, 4)
    assert (send["kind"], recv["kind"]) == (OpKind.SEND, OpKind.RECV)


def test_a_group_is_one_launch_and_nested_groups_are_the_outer_one():
    builder = GraphBuilder(2)
    world = builder.communicator("world", range(2))
    rank = builder.rank(0)
    with rank.group():
        rank.send(world, to=1, bytes=1, call_site="a.py:1")
        with rank.group():
            rank.recv(world, source=1, bytes=2)
        rank.recv(world, source=1, bytes=3)
    with rank.group():
        pass
    rank.all_reduce(world, bytes=4, call_site="a.py:9")
    graph = builder.finish()
    continues = (graph.ops(0)["flags"] & OpFlag.GROUP_CONTINUES != 0).tolist()
    assert continues == [True, True, False, False]
    assert graph.num_blocks == 2
    assert graph.program_call_sites(0) == ["a.py:1", "a.py:9"]


def test_events_are_named_by_how_many_records_ago():
    builder = GraphBuilder(1)
    rank = builder.rank(0)
    first = rank.record(stream=3)
    other = rank.record(stream=1)
    second = rank.record(stream=3)
    rank.wait(first, stream=0)
    rank.wait(second, stream=0)
    rank.sync(other)
    rank.sync(stream=3)
    rank.sync()
    rank.record(stream=3)
    rank.wait(first, stream=2)
    ops = builder.finish().ops(0)
    waits = [
        (int(o["stream"]), int(o["event_stream"]), int(o["peer"]))
        for o in ops
        if o["kind"] == OpKind.EVENT_WAIT
    ]
    assert waits == [(0, 3, 2), (0, 3, 1), (2, 3, 3)]
    kinds = [OpKind(k) for k in ops["kind"][5:8]]
    assert kinds == [OpKind.EVENT_SYNC, OpKind.STREAM_SYNC, OpKind.DEVICE_SYNC]
    assert (ops[5]["event_stream"], ops[5]["peer"]) == (1, 1)


def test_every_method_writes_its_fields():
    builder = GraphBuilder(4)
    world = builder.communicator("world", [3, 2, 1, 0])
    rank = builder.rank(1)
    rank.host_gap(5)
    rank.copy(bytes=8, duration_ns=2, direction=CopyDirection.DEVICE_TO_HOST, blocking=True, stream=1)
    rank.fill(bytes=9, duration_ns=3)
    rank.host_callback(4, stream=2)
    rank.reserve(100)
    rank.allocate(50)
    rank.free(50)
    rank.release(100)
    rank.mark_phase("forward")
    rank.mark_micro_batch()
    rank.mark_iteration()
    rank.all_reduce(world, bytes=1, reduction=Reduction.MAX, provenance=Provenance.MEASURED, host_ns=6)
    rank.reduce_scatter(world, bytes=2)
    rank.all_gather(world, bytes=3)
    rank.all_to_all(world, bytes=4)
    rank.broadcast(world, root=3, bytes=5)
    rank.reduce(world, root=0, bytes=6, reduction=Reduction.AVG, call_site="x.py:1", blocking=True)
    rank.gather(world, root=0, bytes=7)
    rank.scatter(world, root=0, bytes=8, dtype=DataType.BFLOAT16, stream=4, duration_ns=9)
    graph = builder.finish()
    ops = graph.ops(1)
    assert [OpKind(k).name for k in ops["kind"]] == [
        *("HOST_GAP", "COPY", "SET", "HOST_CALLBACK", "RESERVE", "ALLOCATE", "FREE", "RELEASE"),
        *("MARK", "MARK", "MARK", "ALL_REDUCE", "REDUCE_SCATTER", "ALL_GATHER", "ALL_TO_ALL"),
        *("BROADCAST", "REDUCE", "GATHER", "SCATTER"),
    ]
    assert ops["duration_ns"][:4].tolist() == [5, 2, 3, 4]
    assert ops["flags"][1] == OpFlag.BLOCKING | Provenance.MODEL
    assert ops["detail"][1] == CopyDirection.DEVICE_TO_HOST
    assert ops["bytes"][4:8].tolist() == [100, 50, 50, 100]
    assert ops["detail"][8:11].tolist() == [MarkKind.PHASE, MarkKind.MICRO_BATCH, MarkKind.ITERATION]
    assert graph.string(int(ops["ref"][8])) == "forward"
    assert ops["bytes"][11:].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (ops["detail"][11], ops["flags"][11], ops["host_ns"][11]) == (
        Reduction.MAX,
        Provenance.MEASURED,
        6,
    )
    assert ops["peer"][15:].tolist() == [0, 3, 3, 3]  # positions of ranks 3 and 0
    assert (ops["detail"][16], ops["flags"][16]) == (Reduction.AVG, OpFlag.BLOCKING | Provenance.MODEL)
    assert (ops["dtype"][18], ops["stream"][18], ops["duration_ns"][18]) == (DataType.BFLOAT16, 4, 9)
    assert graph.program_call_sites(0)[5:] == ["x.py:1", "", ""]
    assert graph.iterations == 1


def test_mistakes_are_named():
    builder = GraphBuilder(3)
    pair = builder.communicator("pair", [0, 1])
    with pytest.raises(GraphError, match="rank 2 is no member of communicator 0"):
        builder.rank(2).all_reduce(pair, bytes=1)
    with pytest.raises(GraphError, match="rank 2 is no member"):
        builder.rank(0).send(pair, to=2, bytes=1)
    with pytest.raises(GraphError, match="communicator id 9 found"):
        builder.rank(0).all_reduce(9, bytes=1)
    with pytest.raises(GraphError, match="rank 2 is no member"):
        builder.rank(0).gather(pair, root=2, bytes=1)
    with pytest.raises(GraphError, match="event of rank 1"):
        builder.rank(0).wait(builder.rank(1).record())
    with pytest.raises(GraphError, match="not both"):
        builder.rank(0).sync(builder.rank(0).record(), stream=0)
    with pytest.raises(GraphError, match="kernel in a group"), builder.rank(0).group():
        builder.rank(0).kernel("k", duration_ns=1)
    builder.rank(1).kernel("k", duration_ns=-1)
    with pytest.raises(GraphError, match="rank 1: op 1: kernel: duration_ns -1 found"):
        builder.finish()


def test_set_rank_takes_arrays_of_other_layouts():
    builder = GraphBuilder(2)
    ops = np.zeros(4, dtype=OP_DTYPE)
    ops["duration_ns"] = [1, 2, 3, 4]
    builder.set_rank(0, ops[::2])
    builder.set_rank(1, np.frombuffer(b"\0" + ops.tobytes(), dtype=OP_DTYPE, offset=1))
    with pytest.raises(GraphError, match="rank 1: has a program already"):
        builder.set_rank(1, ops)
    graph = builder.finish()
    assert graph.ops(0)["duration_ns"].tolist() == [1, 3]
    assert graph.ops(1)["duration_ns"].tolist() == [1, 2, 3, 4]


def test_numbers_that_do_not_fit_are_errors_and_never_cut():
    for field, value in (
        ("duration_ns", 2**63),
        ("duration_ns", 1.5),
        ("stream", -1),
        ("host_ns", 2**32),
        ("host_ns", 1.5),
    ):
        builder = GraphBuilder(1)
        builder.rank(0).kernel("k", **{"duration_ns": 1, field: value})
        with pytest.raises(GraphError, match=f"rank 0: op 0: kernel: {field} {value}"):
            builder.finish()
    rank = GraphBuilder(1).rank(0)
    for wrong in ({"grid": (-1, 1, 1)}, {"grid": (1, 1)}, {"gemm": Gemm(m=-1, n=1, k=1)}):
        with pytest.raises(GraphError, match="expected"):
            rank.kernel("k", duration_ns=1, **wrong)
    with pytest.raises(GraphError, match="provenance 9"):
        rank.kernel("k", duration_ns=1, provenance=9)
    event = rank.record(stream=3)
    for number, stream in ((0, 3), (2, 3), (1, 5)):
        with pytest.raises(GraphError, match=f"event {number} of stream {stream} found"):
            rank.wait(Event(rank=0, stream=stream, number=number))
    rank.wait(event)


def test_arrays_that_do_not_fit_are_errors_and_never_cut():
    ops = np.zeros(2, dtype=OP_DTYPE)
    for array in (np.zeros(4), np.zeros((), OP_DTYPE), np.zeros((2, 2), OP_DTYPE), [1, 2], None):
        with pytest.raises(GraphError, match="expected one dimension of OP_DTYPE"):
            GraphBuilder(2).set_rank(0, array)
    for members in ([-1], [2**32], [0.5, 1.5], np.array([0, 2**32]), ["a"], np.zeros((2, 2))):
        with pytest.raises(GraphError, match="members of communicator 'odd'"):
            GraphBuilder(2).communicator("odd", members)
    for bindings in ([(-1, 0)], [(0.5, 0)], np.array([[-(2**32), 0]]), np.array([0, 0, 0], np.uint32)):
        with pytest.raises(GraphError, match="bindings"):
            GraphBuilder(2).set_rank(0, ops, bindings)
    for size in (-1, 2**63, 1.5, None):
        with pytest.raises(GraphError, match=f"requested_bytes {size} found"):
            GraphBuilder(2).set_rank(0, ops, peaks=MemoryPeaks(requested_bytes=size))
    for world in (0, -1, 2**32, 2**63, 1.5):
        with pytest.raises(GraphError, match=r"world size"):
            GraphBuilder(world)
    for rank in (-1, 2, 2**40):
        with pytest.raises(GraphError, match=f"rank {rank}"):
            GraphBuilder(2).rank(rank)


def test_text_that_utf8_cannot_hold_is_an_error():
    for wrong in ("\ud800", b"bytes", None):
        builder = GraphBuilder(1)
        own = builder.communicator("own", [0])
        rank = builder.rank(0)
        for call in (
            lambda wrong=wrong, rank=rank: rank.kernel(wrong, duration_ns=1),
            lambda wrong=wrong, rank=rank: rank.mark_phase(wrong),
            lambda wrong=wrong, builder=builder: builder.communicator(wrong, [0]),
            lambda wrong=wrong, rank=rank, own=own: rank.all_reduce(own, bytes=8, call_site=wrong),
        ):
            with pytest.raises(GraphError, match="expected text that UTF-8 can hold"):
                call()


def test_more_than_is_held_cannot_be_given_back():
    rank = GraphBuilder(1).rank(0)
    rank.allocate(10)
    rank.reserve(20)
    rank.free(4)
    with pytest.raises(GraphError, match="rank 0: free of 7 bytes found, 6 are allocated"):
        rank.free(7)
    with pytest.raises(GraphError, match="rank 0: release of 21 bytes found, 20 are reserved"):
        rank.release(21)
    rank.free(6)
    rank.release(20)
    for call in (rank.allocate, rank.free, rank.reserve, rank.release):
        for size in (-1, 1.5, 2**53 + 1, None):
            with pytest.raises(GraphError, match=f"bytes {size} found, expected a whole number"):
                call(size)


def test_an_argument_that_nobody_knows_is_an_error():
    builder = GraphBuilder(2)
    world = builder.communicator("world", range(2))
    with pytest.raises(TypeError, match=r"all_reduce\(\) got an unexpected keyword argument 'duration'"):
        builder.rank(0).all_reduce(world, bytes=8, duration=5)
