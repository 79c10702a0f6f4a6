import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from graph_jobs import NamedOp, blocks_of, build, jobs, named, slots_of
from hypothesis import given
from hypothesis import strategies as st

import prismcore
from prismcore import Graph, GraphBuilder, _core
from prismcore.errors import GraphError, GraphFormatError
from prismcore.graph import BINDING_DTYPE, OP_DTYPE, DataType, Gemm, Kernel, MemoryPeaks, OpKind, Provenance
from prismcore.graph.metadata import dump_metadata


def full(op: NamedOp) -> NamedOp:
    """An op with the fields that it left at zero."""
    kind, name, fields = op
    keys = [key for key in OP_DTYPE.names or () if key not in ("kind", "ref", "dtype")]
    return kind, name, tuple((key, dict(fields).get(key, 0)) for key in keys)


def small() -> Graph:
    builder = GraphBuilder(2)
    world = builder.communicator("world", range(2))
    for r in range(2):
        rank = builder.rank(r)
        rank.kernel("gemm", duration_ns=10, gemm=Gemm(m=2, n=3, k=4), provenance=Provenance.TABLE)
        rank.all_reduce(world, bytes=64, duration_ns=7, call_site="train.py:3")
        rank.mark_iteration("step")
    return builder.finish({"device": "none"})


@given(jobs())
def test_ops_come_back_as_they_were_given(job):
    graph = build(job)
    assert graph.ranks.tolist() == sorted(job.ranks)
    assert graph.world_size == job.world_size
    for rank, ops in job.ranks.items():
        assert named(graph, rank) == [full(op) for op in ops]
    again = Graph.from_bytes(graph.to_bytes())
    assert again.to_bytes() == graph.to_bytes()


@given(jobs())
def test_blocks_and_programs_are_stored_once_by_content(job):
    graph = build(job)
    # As the graph sees them: communicators of a rank by slot.
    programs = set()
    for ops in job.ranks.values():
        slots = slots_of(ops)
        by_slot = [
            (k, str(slots[n]) if OpKind(k).is_communication else n, full((k, n, f))[2]) for k, n, f in ops
        ]
        programs.add(tuple(blocks_of(by_slot)))
    blocks = {block for program in programs for block in program}
    assert graph.num_programs == len(programs)
    assert graph.num_blocks == len(blocks)
    assert graph.num_ops == sum(len(block) for block in blocks)
    assert graph.block_offsets.tolist()[-1] == graph.num_ops


@given(jobs())
def test_statistics_are_the_sums_of_the_ops(job):
    graph = build(job)
    for rank in job.ranks:
        ops = graph.ops(rank)
        kinds = [OpKind(k) for k in ops["kind"]]
        communication = np.array([k.is_communication for k in kinds], dtype=bool)
        on_device = communication | np.isin(ops["kind"], (OpKind.KERNEL, OpKind.COPY, OpKind.SET))
        statistics = graph.statistics(rank)
        assert statistics.ops == len(ops)
        assert statistics.by_kind == {k: kinds.count(k) for k in kinds}
        assert statistics.bytes_sent == ops["bytes"][communication & (ops["kind"] != OpKind.RECV)].sum()
        assert statistics.iterations == ((ops["kind"] == OpKind.MARK) & (ops["detail"] == 0)).sum()
        for source, total in statistics.device_ns.items():
            assert total == ops["duration_ns"][on_device & (ops["flags"] & 3 == source)].sum()
    assert graph.iterations == max((graph.statistics(r).iterations for r in job.ranks), default=0)


SHAPES = st.tuples(
    *[st.tuples(*[st.integers(1, 2**31)] * 3)] * 2,
    st.integers(0, 2**31),
    st.sampled_from([int(dtype) for dtype in DataType]),
    st.integers(0, 3),
    st.one_of(
        st.tuples(*[st.integers(1, 2**40)] * 4),  # a product
        st.tuples(st.just(0), st.integers(0, 2**40), st.integers(0, 2**40), st.just(0)),
    ),
)


@given(SHAPES)
def test_kernels_keep_all_that_the_core_knows_of_them(shape):
    builder = GraphBuilder(1)
    builder.rank(0).mark_iteration()
    id = builder.core.kernel("k", shape)
    assert Kernel.from_core("k", shape).core_shape() == shape
    assert builder.kernel(Kernel.from_core("k", shape)) == id


def test_a_graph_tells_what_it_holds(tmp_path):
    graph = small()
    path = tmp_path / "job.prism"
    graph.save(path)
    assert os.listdir(tmp_path) == ["job.prism"]
    graph = Graph.open(path)
    assert graph.file_bytes == path.stat().st_size
    assert graph.metadata == {"device": "none"}
    assert (graph.num_programs, graph.num_blocks, graph.num_ops, graph.iterations) == (1, 2, 3, 1)
    assert graph.kernel(0) == Kernel(name="gemm", gemm=Gemm(m=2, n=3, k=4))
    assert graph.communicator(0).members.tolist() == [0, 1]
    assert graph.program_blocks(0).tolist() == [0, 1]
    assert graph.program_call_sites(0) == ["train.py:3", ""]
    assert graph.rank(1).bindings.tolist() == [(0, 1)]
    assert graph.statistics(0).device_ns[Provenance.TABLE] == 10
    assert graph.statistics(0).device_ns[Provenance.MODEL] == 7
    assert graph.statistics(0).communication == {OpKind.ALL_REDUCE: 1}
    assert "world_size=2" in repr(graph)


def test_arrays_keep_the_graph_alive_and_are_read_only():
    graph = small()
    blocks, bindings, members = graph.program_blocks(0), graph.rank(0).bindings, graph.communicator(0).members
    del graph
    gc.collect()
    assert blocks.tolist() == [0, 1]
    assert members.tolist() == [0, 1]
    for array in (blocks, bindings, members):
        assert not array.flags.writeable


def test_absent_things_are_errors(tmp_path):
    graph = small()
    for call in (
        graph.rank,
        graph.kernel,
        graph.communicator,
        graph.block,
        graph.program_blocks,
        graph.string,
    ):
        with pytest.raises(GraphError, match="99"):
            call(99)
    with pytest.raises(GraphError, match=r"none\.prism: cannot be opened: No such file"):
        Graph.open(tmp_path / "none.prism")
    with pytest.raises(GraphError, match="cannot be written"):
        graph.save(tmp_path / "no" / "job.prism")


def test_damaged_bytes_are_a_format_error(tmp_path):
    data = small().to_bytes()
    for damaged in (b"", data[:100], data[:-1], b"x" + data[1:], data[:-70] + b"\xff" + data[-69:]):
        with pytest.raises(GraphFormatError, match=r"^graph bytes: "):
            Graph.from_bytes(damaged)
    newer = data[:8] + (2).to_bytes(4, "little") + data[12:]
    (tmp_path / "newer.prism").write_bytes(newer)
    with pytest.raises(GraphFormatError, match=r"format version 2 found, .* reads up to version 1; upgrade"):
        Graph.open(tmp_path / "newer.prism")


def test_metadata_must_be_a_json_object():
    for text in ("[1]", "{", ""):
        graph = Graph(_core.GraphBuilder(1).finish(text))
        with pytest.raises(GraphFormatError, match="metadata"):
            _ = graph.metadata
    assert dump_metadata({"b": 1, "a": 2}) == '{"a":2,"b":1}'


def test_metadata_that_json_cannot_hold_is_an_error():
    cyclic: dict[str, object] = {}
    cyclic["self"] = cyclic
    for value in ({1, 2}, b"bytes", object(), float("nan"), float("inf"), cyclic):
        with pytest.raises(GraphError, match="metadata: expected a dictionary that JSON can hold"):
            GraphBuilder(1).finish({"key": value})
    for metadata in ([1], "text", {(1, 2): 3}):
        with pytest.raises(GraphError, match="metadata"):
            GraphBuilder(1).finish(metadata)
    odd = {"argv": [os.fsdecode(b"\xff.py")]}  # a file name need not be UTF-8
    assert Graph.from_bytes(GraphBuilder(1).finish(odd).to_bytes()).metadata == odd


def test_names_are_any_text():
    builder = GraphBuilder(1)
    builder.rank(0).kernel("k\u00e9rnel \U0001f525 " * 100, duration_ns=1)
    data = builder.finish().to_bytes()
    assert Graph.from_bytes(data).kernel(0).name == "kérnel 🔥 " * 100


def test_a_path_need_not_be_utf8(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.prism"
    small().save(os.fsdecode(path))
    assert Graph.open(os.fsdecode(path)).world_size == 2


def test_numbers_are_those_of_the_core():
    assert OP_DTYPE.itemsize == 40
    assert BINDING_DTYPE.itemsize == 8
    named_kinds = {i: _core.op_kind_name(i) for i in range(256) if _core.op_kind_name(i) != "unknown"}
    assert named_kinds == {kind.value: kind.name.lower() for kind in OpKind}
    assert max(DataType) == 255


def test_peaks_are_kept():
    builder = GraphBuilder(1)
    peaks = MemoryPeaks(requested_bytes=1, allocated_bytes=2, reserved_bytes=3, device_bytes=1 << 40)
    builder.rank(0).peaks = peaks
    assert builder.finish().rank(0).peaks == peaks


def test_importing_the_package_loads_neither_numpy_nor_torch():
    code = (
        "import sys, prismcore; print([m for m in ('numpy', 'torch', 'prismcore._core') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'Grpah'"):
        _ = prismcore.Grpah


def test_ids_outside_the_file_format_are_absent_too(tmp_path):
    graph = small()
    for number in (-1, 2**40):
        for call in (graph.rank, graph.kernel, graph.communicator, graph.block, graph.string):
            with pytest.raises(GraphError, match=str(number)):
                call(number)
        assert not graph.has_rank(number)
    with pytest.raises(GraphError, match="null byte"):
        graph.save(f"{tmp_path}/a\0b.prism")
    assert not list(tmp_path.iterdir())
