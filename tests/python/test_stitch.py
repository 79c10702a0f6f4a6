"""What measured ops are stitched by: meetings, waits, timing, programs."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import prismcore
from prismcore.graph import OpKind
from prismcore.stitch.clocks import find_clocks, on_one_clock, set_clocks
from prismcore.stitch.meetings import TOLERANCE_NS, apart, first_believed, meet
from prismcore.stitch.programs import RowOps, build_graph
from prismcore.stitch.rows import Rows, last_before, ordinals, segment_reduce
from prismcore.stitch.timing import drop_circles, time_rows
from prismcore.stitch.waits import add_rule, shown_waits

MS = 1_000_000


def rows_of(table):
    """Rows from tuples (rank, step, lane, start, end); each a launch of its own."""
    rank, step, lane, start, end = (np.array(c, dtype=np.int64) for c in zip(*table, strict=True))
    launch = np.arange(len(rank))
    return Rows(rank=rank, step=step, lane=lane, launch=launch, start_ns=start, end_ns=end)


def alone(count):
    return meet(np.arange(count))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=40))
def test_meetings_are_equal_keys(keys):
    a, b = np.array(keys).T
    meetings = meet(a, b)
    for i, j in itertools.combinations(range(len(keys)), 2):
        assert (meetings.id[i] == meetings.id[j]) == (keys[i] == keys[j])
    assert meetings.size.tolist() == [keys.count(k) for k in keys]
    assert sorted(set(meetings.id.tolist())) == list(range(len(set(keys))))


@given(st.lists(st.integers(0, 4), min_size=1, max_size=40))
def test_ordinals_and_reductions(groups):
    array = np.array(groups)
    assert ordinals(array).tolist() == [groups[:i].count(g) for i, g in enumerate(groups)]
    dense = meet(array).id
    values = np.arange(len(groups)) * 7 % 11
    expected = [max(v for v, h in zip(values, groups, strict=True) if h == g) for g in groups]
    assert segment_reduce(np.maximum, values, dense).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 1), st.booleans(), st.booleans()), min_size=1, max_size=30))
def test_the_last_before_is_of_the_same_rank_and_an_earlier_launch(drawn):
    drawn = sorted(drawn, key=lambda d: d[0])
    rows = rows_of([(rank, 0, 0, i, i) for i, (rank, _, _) in enumerate(drawn)])
    joins = np.array([i > 0 and d[1] and drawn[i - 1][0] == d[0] for i, d in enumerate(drawn)])
    rows.launch = np.maximum.accumulate(np.where(joins, 0, np.arange(len(drawn))))
    chosen = np.array([d[2] for d in drawn])
    for i, found in enumerate(last_before(rows, chosen).tolist()):
        expected = [
            j for j in range(len(drawn)) if chosen[j] and drawn[j][0] == drawn[i][0] and j < rows.launch[i]
        ]
        assert found == (expected[-1] if expected else -1)


def test_waits_show_where_nothing_ever_overlaps():
    # Lane 1 begins behind lane 0 always; lane 2 overlaps it half of the time.
    table = []
    for step in range(100):
        table += [(0, step, 0, 0, 10 * MS), (0, step, 1, 10 * MS, 11 * MS)]
        table += [(0, step, 2, (5 if step % 2 else 12) * MS, 20 * MS)]
    table.sort(key=lambda row: (row[1], row[3]))
    rows = rows_of(table)
    waits = shown_waits(rows, rows.lane, 3)
    for i, (_, step, lane, start, _) in enumerate(table):
        if lane == 1:
            assert table[waits[i, 0]][:3] == (0, step, 0)
        if lane == 2:
            assert waits[i, 0] == -1, start


def test_a_few_contradictions_do_not_hide_a_wait_and_do_not_wait():
    table = []
    for step in range(200):
        begin = 5 * MS if step == 7 else 10 * MS - TOLERANCE_NS // 2
        table += [(0, step, 0, 0, 10 * MS), (0, step, 1, begin, 12 * MS)]
    rows = rows_of(table)
    waits = shown_waits(rows, rows.lane, 2)
    seconds = waits[rows.lane == 1, 0]
    assert [i for i, w in enumerate(seconds) if w < 0] == [7]


def test_a_rule_fills_what_the_times_do_not_show():
    rows = rows_of([(0, 0, 0, 0, 5 * MS), (0, 0, 1, 5 * MS, 9 * MS), (0, 0, 1, 9 * MS, 10 * MS)])
    waits = np.full((3, 2), -1)
    assert add_rule(rows, waits, 0, np.array([-1, 0, -1])) == 0
    assert waits.tolist() == [[-1, -1], [0, -1], [-1, -1]]
    rows.start_ns[2] = 1 * MS
    assert add_rule(rows, waits, 0, np.array([-1, -1, 0])) == 1
    assert waits[2].tolist() == [-1, -1]


def test_transfer_is_what_the_last_to_arrive_saw():
    rows = rows_of([(0, 0, 0, 0, 10 * MS), (1, 0, 0, 7 * MS, 10 * MS + 9)])
    meetings = meet(np.zeros(2, dtype=np.int64))
    timing = time_rows(rows, np.full((2, 1), -1), meetings)
    assert timing.duration_ns.tolist() == [3 * MS, 3 * MS]
    assert timing.gap_ns.tolist() == [0, 7 * MS]


def test_waits_that_close_a_circle_are_dropped():
    """Two collectives on two lanes, each shorter than the tolerance, begun in either order."""
    table = [
        (0, 0, 0, 0, 5 * MS + 50_000),
        (0, 0, 1, 5 * MS, 5 * MS + 50_000),
        (1, 0, 1, 0, 5 * MS + 50_000),
        (1, 0, 0, 5 * MS, 5 * MS + 50_000),
    ]
    rows = rows_of(table)
    waits = shown_waits(rows, rows.lane, 2)
    assert waits[1, 0] == 0
    assert waits[3, 1] == 2
    assert drop_circles(rows, waits, meet(rows.lane)) == 2
    assert (waits < 0).all()


def test_waits_on_the_host_stay():
    """A kernel that begins with its launch, or before, is behind it all the same; lane 0 is the host."""
    rows = rows_of([(0, 0, 0, 0, 10), (0, 0, 1, 0, 20), (0, 0, 2, 0, 20)])
    waits = np.array([[-1, -1, -1], [0, -1, -1], [0, 1, -1]])
    assert drop_circles(rows, waits, alone(3), hosts=1) == 1
    assert waits.tolist() == [[-1, -1, -1], [0, -1, -1], [0, -1, -1]]


def test_ops_that_cannot_end_as_measured_are_counted():
    rows = rows_of([(0, 0, 0, 0, 5 * MS), (0, 0, 1, 0, MS)])
    waits = np.array([[-1, -1], [0, -1]])
    timing = time_rows(rows, waits, alone(2))
    assert (timing.late, timing.settled) == (1, True)
    assert ["1 ops end later than measured" in text for text in timing.warnings] == [True]


def test_times_that_do_not_settle_are_told(monkeypatch):
    """Each op ends before the one that it waits for, so that one moves the next."""
    count = 9
    rows = rows_of([(0, 0, lane, 0, 10 * MS - lane * MS) for lane in range(count)])
    waits = np.full((count, count), -1)
    waits[np.arange(1, count), np.arange(count - 1)] = np.arange(count - 1)
    assert time_rows(rows, waits, alone(count)).settled
    monkeypatch.setattr("prismcore.stitch.timing.MOST_PASSES", 4)
    timing = time_rows(rows, waits, alone(count))
    assert not timing.settled
    assert any("did not settle in 4 passes" in text for text in timing.warnings)


@given(st.data())
def test_clocks_are_found_over_neighbours(data):
    """Any tree of pairs that met, each more often than not exactly, tells all clocks."""
    count = data.draw(st.integers(2, 7))
    offsets = [0, *(data.draw(st.integers(-10, 10)) * MS for _ in range(count - 1))]
    pairs = [(data.draw(st.integers(0, b - 1)), b) for b in range(1, count)]
    table, keys = [], []
    for n, (a, b) in enumerate(pairs):
        for i in range(data.draw(st.integers(3, 5))):
            for rank in (a, b):
                end = 100 * MS * (i + 1) + offsets[rank] + (MS // 2 if i == 0 and rank == b else 0)
                table.append((rank, 0, 0, end - MS, end))
                keys.append(10 * n + i)
    order = sorted(range(len(table)), key=lambda i: (table[i][0], keys[i]))
    rows = rows_of([table[i] for i in order])
    meetings = meet(np.array(keys)[order])
    clocks = find_clocks(rows, meetings)
    assert clocks.offset_ns.tolist() == offsets
    assert clocks.component.tolist() == [0] * count
    before = rows.end_ns.copy()
    moved = on_one_clock(rows, clocks)
    assert (rows.end_ns == before).all()
    set_clocks(rows, clocks)
    assert (rows.end_ns == moved.end_ns).all()
    assert (rows.end_ns == before - np.array(offsets)[rows.rank]).all()


def test_clocks_beyond_all_time_are_refused():
    table, keys = [], []
    for a in range(4):
        for rank, end in ((a, 0), (a + 1, 2**60)):
            table.append((rank, 0, 0, end, end))
            keys.append(a)
    order = sorted(range(len(table)), key=lambda i: table[i][0])
    with pytest.raises(prismcore.errors.TraceError, match="expected clocks of one time"):
        find_clocks(rows_of([table[i] for i in order]), meet(np.array(keys)[order]))


def test_ranks_that_never_met_have_clocks_of_their_own():
    rows = rows_of([(rank, 0, 0, 0, 9 * MS * (rank + 1)) for rank in range(4)])
    loose = np.array([True, True, False, False])
    clocks = find_clocks(rows, meet(np.array([0, 0, 1, 1])), loose)
    assert clocks.component.tolist() == [0, 0, 2, 2]
    assert clocks.offset_ns.tolist() == [0, 9 * MS, 0, 9 * MS]


def test_groups_that_left_before_others_came_are_not_believed():
    rows = rows_of([(0, 0, 0, 0, MS), (1, 0, 0, 0, MS), (2, 0, 0, 5 * MS, 6 * MS), (3, 0, 0, 5 * MS, 6 * MS)])
    world, halves = np.zeros(4, dtype=np.int64), np.array([0, 0, 1, 1])
    assert apart(rows, meet(world)).all()
    found = first_believed(rows, {"world": [world], "halves": [halves]})
    assert found is not None
    assert (found[0], found[1].size.tolist()) == ("halves", [2, 2, 2, 2])
    assert first_believed(rows, {"world": [world]}) is None


@given(st.data())
def test_programs_replay_what_was_measured(data):
    """Random ops on three lanes of two ranks with collectives: the graph ends each step as measured."""
    table, keys, count = [], [], data.draw(st.integers(1, 12))
    clock = {}
    for step in range(2):
        clock = {(r, lane): 0 for r in range(2) for lane in range(3)}
        for i in range(count):
            lane = data.draw(st.integers(0, 2))
            begins = [clock[r, lane] + data.draw(st.integers(0, 50)) for r in range(2)]
            lengths = [data.draw(st.integers(0, 50)) for _ in range(2)]
            ends = [b + n for b, n in zip(begins, lengths, strict=True)]
            if meets := data.draw(st.booleans()):
                ends = [max(begins) + lengths[0]] * 2
            for r in range(2):
                clock[r, lane] = ends[r]
                table.append((r, step, lane, begins[r], ends[r]))
                keys.append((step * 100 + i, -1 if meets else r))
    order = sorted(range(len(table)), key=lambda i: (*table[i][:2], table[i][3], keys[i][0]))
    rows = rows_of([table[i] for i in order])
    meetings = meet(*np.array([keys[i] for i in order]).T)
    # Rows of one rank and step have rising begins; on a lane their order is that of the job.
    waits = shown_waits(rows, rows.lane, 3)
    drop_circles(rows, waits, meetings)
    timing = time_rows(rows, waits, meetings)
    ops = RowOps(
        kind=np.where(meetings.size > 1, OpKind.ALL_REDUCE, OpKind.KERNEL),
        # A communicator for each lane: collectives keep the order of their stream.
        ref=np.where(meetings.size > 1, rows.lane, 0),
        peer=np.full(len(order), -1),
        tag=np.zeros(len(order), dtype=np.int64),
        kernels=["k"],
        communicators=[(f"lane {lane}", (0, 1)) for lane in range(3)],
    )
    graph = build_graph(rows, ops, waits, timing, world_size=2, steps=["a", "b"])
    result = prismcore.replay(graph)
    expected = [max(row[4] for row in table if row[1] == step) for step in range(2)]
    assert result.iteration_time_ns.tolist() == expected


def test_a_graph_needs_rows_that_fit_together():
    rows = rows_of([(0, 0, 0, 0, 1)])
    ops = RowOps(
        kind=np.array([OpKind.KERNEL]),
        ref=np.array([0]),
        peer=np.array([-1]),
        tag=np.array([0]),
        kernels=["k"],
        communicators=[],
    )
    waits = np.full((1, 1), -1)
    with pytest.raises(prismcore.errors.GraphError, match="world"):
        build_graph(rows, ops, waits, time_rows(rows, waits, alone(1)), world_size=0, steps=["a"])
