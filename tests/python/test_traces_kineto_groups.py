"""Who met whom in traces of torch's profiler: members told or not, messages, clocks of several nodes."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_events import ALL_REDUCE, SEND_RECEIVE, call, event, group, imported, launch, met

from prismcore.errors import TraceError
from prismcore.graph import OpKind
from prismcore.rank_list import format_ranks
from prismcore.replay import replay

GENERIC = "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"


def meetings(rank, times, *, stream=24, first=0, clock=0, name=ALL_REDUCE, **args):
    """Kernels of one communicator: (begin of each rank, end of all)."""
    events = []
    for n, (begins, end) in enumerate(times):
        begin = begins[rank] if isinstance(begins, dict) else begins
        told = {key: value[n] if isinstance(value, list) else value for key, value in args.items()}
        events += launch(
            first + n, clock + begin - 8, clock + begin, end - begin, name=name, stream=stream, **told
        )
    return events


def ends_us(traces):
    return (replay(traces.graph()).iteration_end_ns[:, -1] / 1000).tolist()


def told_groups(rank, *, clock, lag=0):
    """Ten all-reduces of tensor-parallel pairs {0,1}, {2,3}, one of data-parallel pairs {0,2}, {1,3}."""
    pair = (0, 1) if rank < 2 else (2, 3)
    tp = [(10 + 100 * n + rank + lag * (rank > 1), 90 + 100 * n + lag * (rank > 1)) for n in range(10)]
    dp = [(1100 + rank, 1200 + rank % 2 * 10)]
    return [
        event("cpu_op", "begin", clock, 1),
        *meetings(rank, tp, clock=clock, **group("tp", pair)),
        *meetings(rank, dp, clock=clock, stream=28, first=50, **group("dp", (rank % 2, rank % 2 + 2))),
    ]


def test_clocks_reach_ranks_that_never_met(tmp_path):
    clocks = [0, 0, 3_000_000, 3_000_000]
    traces = imported(tmp_path, {rank: told_groups(rank, clock=clocks[rank]) for rank in range(4)})
    begin = 2  # of the earliest launch
    assert max(ends_us(traces)) == 1210 - begin
    assert [text for text in traces.warnings if "clocks of ranks 2-3 differ" in text] == traces.warnings
    assert sorted(met(traces))[-1] == (2, 3)


def test_ranks_that_share_nothing_are_told(tmp_path):
    events = {
        rank: meetings(rank, [(100, 200)], **group("tp", (rank // 2 * 2, rank // 2 * 2 + 1)))
        for rank in range(4)
    }
    traces = imported(tmp_path, events)
    assert any("ranks 0-1; 2-3 share no collective" in text for text in traces.warnings)


def untold(rank, lag, count=10):
    """Pairs {0,1} and {2,3} of traces without a word about members; the second ``lag`` later."""
    late = lag if rank > 1 else 0
    return meetings(
        rank,
        [
            (10 + 900 * n + 7 * rank + late, 90 + 900 * n + late + 30 * (n % 3) * (rank > 1))
            for n in range(count)
        ],
    )


@st.composite
def jobs_without_members(draw):
    """Groups of a world of 2 to 8 ranks that lie evenly, and by how much each of them runs late; some are in
    lockstep to the microsecond."""
    size = draw(st.integers(1, 4))
    stride = draw(st.integers(1, 8 // size))
    sets = draw(st.integers(1, max(1, 8 // (size * stride))))
    groups = [
        tuple(at * size * stride + first + stride * member for member in range(size))
        for at in range(sets)
        for first in range(stride)
    ]
    lags = draw(st.lists(st.sampled_from([0, 0, 20, 55, 300]), min_size=len(groups), max_size=len(groups)))
    return list(zip(groups, lags, strict=True)), draw(st.integers(3, 12))


@settings(max_examples=60, deadline=None)
@given(job=jobs_without_members(), early=st.randoms(use_true_random=False))
def test_ranks_of_different_groups_are_never_joined_without_a_warning(tmp_path_factory, job, early):
    groups, count = job
    of_ranks = {}
    for members, lag in groups:
        for rank in members:
            times = [(10 + lag + 900 * n + early.randrange(40), 90 + lag + 900 * n) for n in range(count)]
            of_ranks[rank] = meetings(rank, times)
    traces = imported(tmp_path_factory.mktemp("job"), of_ranks)
    told = [text for text in traces.warnings if "look like one" in text]
    right = {members for members, _ in groups}
    for ranks in set(met(traces)) - right:
        assert any(re.search(rf"[:;] {re.escape(format_ranks(ranks))}[;.]", text) for text in told), ranks


@pytest.mark.parametrize("lag", [300, 450])
def test_groups_that_do_the_same_are_not_one(tmp_path, lag):
    traces = imported(tmp_path, {rank: untold(rank, lag) for rank in range(4)})
    assert set(met(traces)) == {(0, 1), (2, 3)}
    assert not any("differ from that" in text for text in traces.warnings)
    assert any("by their times these ranks met: 0-1; 2-3" in text for text in traces.warnings)
    assert max(ends_us(traces)) == 90 + 8100 + lag - 2


def test_groups_whose_ranks_lie_apart(tmp_path):
    order = {0: 0, 1: 2, 2: 1, 3: 3}  # pairs {0,2}, {1,3}
    traces = imported(tmp_path, {rank: untold(place, 400) for rank, place in order.items()})
    assert set(met(traces)) == {(0, 2), (1, 3)}


def test_one_group_on_two_clocks_is_one(tmp_path):
    """Both clocks have pairs that end together; that others still waited shows that they are one."""
    events = {}
    for rank in range(4):
        clock = 5_000_000 if rank > 1 else 0
        late = [200 if (rank > 1) == n % 2 else 7 * rank for n in range(10)]
        times = [(10 + 900 * n + late[n], 300 + 900 * n) for n in range(10)]
        events[rank] = meetings(rank, times, clock=clock)
    traces = imported(tmp_path, events)
    assert set(met(traces)) == {(0, 1, 2, 3)}
    assert any("clocks of ranks 2-3" in text for text in traces.warnings)


def test_what_nothing_explains_is_matched_with_nobody(tmp_path):
    events = {rank: meetings(rank, [(10 + 5000 * rank, 200 + 5000 * rank)] * 1) for rank in range(3)}
    traces = imported(tmp_path, events)
    assert met(traces) == []
    assert any("3 collectives of ranks 0-2 are matched with nobody's" in text for text in traces.warnings)
    assert ends_us(traces)[2] == 10_200 - 2


def chain(rank, *, told):
    """Activations from stage to stage of four: (source, begin of both, end)."""
    events = []
    for micro in range(3):
        for source in range(3):
            at = 1000 * micro + 200 * source
            if rank not in (source, source + 1):
                continue
            sends = rank == source
            args = group("pp", range(4), **{"Collective name": "send" if sends else "recv"}) if told else {}
            if told:
                args["Dst Rank" if sends else "Src Rank"] = source + 1 if sends else source
                args |= {"In msg nelems": 1024, "Out msg nelems": 1024, "dtype": "BFloat16"}
            begin = at + (20 if sends else 60)
            number = 10 * micro + source
            events += launch(number, begin - 8, begin, at + 100 - begin, name=SEND_RECEIVE, stream=30, **args)
    return events


def test_messages_have_a_sender_and_a_receiver(tmp_path):
    traces = imported(tmp_path, {rank: chain(rank, told=True) for rank in range(4)})
    assert traces.warnings == []
    assert sorted(met(traces)) == sorted([(n, n + 1) for n in range(3)] * 3)
    sends = traces.ops.kind == OpKind.SEND
    assert (traces.ops.peer[sends] == traces.rows.rank[sends] + 1).all()
    assert set(traces.ops.bytes[sends].tolist()) == {2048}
    assert traces.timing.duration_ns[sends].tolist() == [40_000] * 9
    assert ends_us(traces) == [2088, 2288, 2488, 2488]
    part = imported(tmp_path, {rank: chain(rank, told=True) for rank in (0, 1, 3)})
    assert any("6 sends and receives have no other side (6 because its rank" in t for t in part.warnings)


def test_messages_of_unknown_ranks_are_no_meeting_of_all(tmp_path):
    traces = imported(tmp_path, {rank: chain(rank, told=False) for rank in range(4)})
    assert (0, 3) not in met(traces)
    assert (0, 1, 2, 3) not in met(traces)
    named = {rank: chain(rank, told=False) for rank in range(4)}
    for events in named.values():
        for one in events:
            if one["cat"] == "kernel":
                one["args"] |= group("pp", range(4))
    traces = imported(tmp_path, named)
    assert met(traces) == []
    assert any("to and from whom is not told" in text for text in traces.warnings)
    assert ends_us(traces) == [2088, 2288, 2488, 2488]


@pytest.mark.parametrize("told", ["numbers", "members", "nothing"])
def test_a_ring_that_begins_late_costs_its_head(tmp_path, told):
    """Three all-reduces, of which rank 1 has the last two."""
    times = [(10, 90), (410, 520), (1100, 1190)]
    events = {}
    for rank in range(2):
        args = {} if told == "nothing" else group("7", (0, 1))
        if told == "numbers":
            args["Seq"] = [5, 6, 7][rank:]
        events[rank] = [call("cudaEventQuery", 0, 1), *meetings(rank, times[rank:], **args)]
    traces = imported(tmp_path, events)
    assert met(traces) == [(0, 1)] * 2
    assert sum("begin later" in text or "nobody's" in text for text in traces.warnings) == 1
    assert ends_us(traces) == [1190, 1190]


def test_a_member_that_did_nothing_is_told(tmp_path):
    events = {0: meetings(0, [(10, 90)], **group("7", (0, 1))), 1: launch(1, 2, 10, 50)}
    traces = imported(tmp_path, events)
    assert any("communicator 7: its members did not do the same" in text for text in traces.warnings)
    assert met(traces) == []


def test_kinds_come_from_the_trace_before_the_name(tmp_path):
    events = {
        rank: meetings(
            rank, [(10, 90)], name=GENERIC, **group("7", (0, 1), **{"Collective name": "allreduce"})
        )
        + meetings(rank, [(110, 190)], first=9, name=GENERIC)
        for rank in range(2)
    }
    traces = imported(tmp_path, events)
    assert met(traces) == [(0, 1)]
    assert sorted(traces.ops.kind[traces.rows.lane > 0].tolist()) == sorted(
        [OpKind.KERNEL, OpKind.ALL_REDUCE] * 2
    )
    assert [text for text in traces.warnings if "rank 0: 1 kernels of NCCL of a kind" in text]


def test_members_of_long_lists_come_from_the_header(tmp_path):
    members = [*range(0, 80, 2), 81]
    args = {"Process Group Name": "3", "Process Group Ranks": "[0, 2, 4, ..., 81]", "Group size": 41}
    config = [{"pg_name": "3", "pg_desc": "dp", "pg_size": 41, "ranks": members}]
    events = {rank: meetings(rank, [(10, 90)], **args) for rank in (0, 2)}
    traces = imported(tmp_path, events, pg_config=config, world_size=96)
    assert traces.told_members == [tuple(members)]
    assert any("(of 41) have no trace" in text for text in traces.warnings)


def record(at, dur, **args):
    return event("cpu_op", "record_param_comms", at, dur, **args)


def test_the_innermost_call_that_still_runs_names_the_communicator(tmp_path):
    """A launch behind an inner call, which has ended, belongs to the outer one."""
    inner = record(2, 3, **group("inner", (0,), **{"Collective name": "allgather"}))
    outer = record(1, 50, **group("outer", (0,), **{"Collective name": "allreduce"}))
    traces = imported(tmp_path, {0: [outer, inner, *launch(1, 10, 20, 10, name=GENERIC)]})
    assert traces.ops.communicators == [("outer", (0,))]


@pytest.mark.parametrize(
    ("dims", "types", "kernel", "size"),
    [
        ([[[4, 8], [16]], []], ["TensorList", "Scalar"], ALL_REDUCE, 96),
        ([[4, 8], []], ["c10::BFloat16", "Scalar"], ALL_REDUCE, 64),
        ([[], []], ["TensorList", "Scalar"], ALL_REDUCE, 0),
        ([[], []], ["float", "Scalar"], ALL_REDUCE, 4),
        ([[4, 8], []], ["float", "Scalar"], "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", 8 * 128),
    ],
)
def test_payloads_of_older_records(tmp_path, dims, types, kernel, size):
    inputs = ["", "3", "93825114103440", "0", "", "[]", "[]", "8"]
    told = record(1, 50, **{"Input Dims": dims, "Input type": types, "Concrete Inputs": inputs})
    traces = imported(tmp_path, {0: [told, *launch(1, 10, 20, 10, name=kernel)]})
    assert int(traces.ops.bytes.max()) == size


def test_members_that_cannot_be_are_not_believed(tmp_path):
    for members in ([5, 6], [0, 0], [0, -1], [0, 9]):
        traces = imported(tmp_path, {0: meetings(0, [(10, 90)], **group("7", members))}, world_size=8)
        assert traces.ops.communicators == [("7", (0,))]
        assert traces.told_members == [None]


VALUES = st.sampled_from(
    ["[" * 5000, "9" * 25, "-5", "[[1e999]]", "[5, 6]", "[0, 1]", "[[[2], [3]]]", "{}", "nan", "", 10**30, -1,
     0, 2**63, 1e300, None, [], [[]], [[-1]], [[10**40]], "1e999", True]
)  # fmt: skip
KEYS = ("In msg nelems", "Out msg nelems", "Process Group Ranks", "Process Group Name", "Group size",
        "Global rank start", "Global rank stride", "Input Dims", "Input type", "Concrete Inputs", "Seq",
        "dtype", "Src Rank", "Dst Rank", "Collective name", "wait_on_stream",
        "wait_on_cuda_event_record_corr_id", "stream", "device", "correlation")  # fmt: skip


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_any_argument_is_an_error_in_one_line_or_a_graph(tmp_path_factory, data):
    kernel = data.draw(st.sampled_from([ALL_REDUCE, SEND_RECEIVE, GENERIC]))
    events = [
        *launch(1, 2, 10, 20, name=kernel, stream=24),
        record(1, 8),
        event("cuda_sync", "Stream Wait Event", 40, 1, correlation=3, device=0, stream=7),
        call("cudaStreamSynchronize", 50, 5, correlation=3),
        *launch(4, 60, 70, 5),
    ]
    for one in events:
        for key in data.draw(st.lists(st.sampled_from(KEYS), max_size=4)):
            one["args"][key] = data.draw(VALUES)
        name = data.draw(st.sampled_from([None, "allreduce", "send", "recv", "coalesced"]))
        if name is not None:
            one["args"]["Collective name"] = name
    error = ""
    try:
        traces = imported(tmp_path_factory.mktemp("trace"), {0: events})
    except TraceError as refused:
        error = str(refused)
    else:
        replay(traces.graph())
        assert (np.asarray(traces.ops.bytes) >= 0).all()
    assert "\n" not in error
