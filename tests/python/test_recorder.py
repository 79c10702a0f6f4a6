import numpy as np
import pytest
from graph_jobs import build, jobs, named, record
from hypothesis import given
from hypothesis import strategies as st

from prismcore import Graph, GraphBuilder, _core
from prismcore.errors import GraphError
from prismcore.graph import OP_DTYPE, OpKind, RankOrigin


@given(jobs(), st.integers(0, 3))
def test_merged_recordings_equal_the_graph_built_whole(job, seed):
    whole = build(job)
    builder = GraphBuilder(job.world_size)
    for rank in job.ranks:
        graph = Graph(record(job, rank, seed))
        assert Graph.from_bytes(graph.to_bytes()).ranks.tolist() == [rank]
        builder.merge(graph, RankOrigin.CHECKED)
    merged = Graph.from_bytes(builder.finish().to_bytes())
    assert merged.digest() == whole.digest()
    assert merged.communication_digest() == whole.communication_digest()
    assert merged.num_blocks == whole.num_blocks
    assert merged.num_programs == whole.num_programs
    assert merged.iterations == whole.iterations
    for rank in job.ranks:
        assert named(merged, rank) == named(whole, rank)
        assert merged.rank(rank).origin is RankOrigin.CHECKED


@given(jobs(), st.integers(0, 3))
def test_an_inferred_rank_has_the_program_of_its_like(job, seed):
    builder = GraphBuilder(job.world_size + 1)
    last = job.world_size
    for rank in job.ranks:
        single = Graph(record(job, rank, seed))
        ids = []
        for i, binding in enumerate(single.rank(rank).bindings.tolist()):
            # The same communicators, with the new rank in the place of this one.
            members = [last if m == rank else m for m in single.communicator(binding[0]).members.tolist()]
            ids.append((builder.communicator(f"own{i}", members), binding[1]))
        builder.core.merge(_in_larger_world(single, job.world_size + 1), 0)
        builder.infer(last, rank, ids)
        blocks = builder.program_of(last)
        assert blocks.tolist() == builder.program_of(rank).tolist()
        graph = builder.finish()
        assert graph.rank(last).program == graph.rank(rank).program
        assert graph.ops(last).tolist() == graph.ops(rank).tolist()
        assert graph.rank(last).origin is RankOrigin.INFERRED


def _in_larger_world(graph: Graph, world_size: int) -> _core.Graph:
    builder = GraphBuilder(world_size)
    rank = int(graph.ranks[0])
    bindings = []
    for communicator, position in graph.rank(rank).bindings.tolist():
        known = graph.communicator(communicator)
        bindings.append((builder.communicator(known.name, known.members), position))
    for i in range(1, graph.core.num_strings):
        builder.string(graph.string(i))
    for i in range(graph.num_kernels):
        builder.kernel(graph.kernel(i))
    builder.set_rank(rank, graph.ops(rank), bindings)
    return builder.finish().core


def test_counts_go_on_while_blocks_repeat():
    recorder = _core.Recorder(0, 1)
    slot = recorder.add_communicator("self", 1, 0)
    recorder.set_members(slot, np.zeros(1, dtype=np.uint32))
    ops = np.zeros(3, dtype=OP_DTYPE)
    ops["kind"] = [OpKind.HOST_GAP, OpKind.MARK, OpKind.ALL_REDUCE]
    for _ in range(1000):
        recorder.append_many(ops.view(np.uint8))
    assert recorder.num_ops == 3000
    assert recorder.num_communication_ops == 1000
    assert recorder.num_iterations == 1000
    graph = Graph(recorder.finish())
    assert graph.num_ops == 3
    assert graph.iterations == 1000
    assert len(graph.ops(0)) == 3000


def test_unaligned_and_odd_arrays():
    recorder = _core.Recorder(0, 1)
    ops = np.zeros(2, dtype=OP_DTYPE)
    ops["duration_ns"] = [3, 4]
    shifted = np.frombuffer(b"\0" * 4 + ops.tobytes(), dtype=np.uint8)[4:]
    recorder.append_many(shifted)
    assert Graph(recorder.finish()).ops(0)["duration_ns"].tolist() == [3, 4]
    with pytest.raises(ValueError, match="whole number of records"):
        recorder.append_many(shifted[:-1])


def test_what_cannot_be_recorded_is_named():
    with pytest.raises(GraphError, match="rank 4 of a world of 4"):
        _core.Recorder(4, 4)
    recorder = _core.Recorder(0, 2)
    slot = recorder.add_communicator("pair", 2, 0)
    ops = np.zeros(1, dtype=OP_DTYPE)
    ops["kind"] = OpKind.ALL_REDUCE
    ops["ref"] = slot
    recorder.append_many(ops.view(np.uint8))
    with pytest.raises(GraphError, match="'pair' is used but its members were never set"):
        recorder.finish()
    recorder.set_members(slot, np.arange(2, dtype=np.uint32))  # and now it can be finished
    assert Graph(recorder.finish()).num_ops == 1
