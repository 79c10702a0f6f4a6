"""Traces of tensor, data and pipeline parallel jobs on two clocks, with threads and late rings, as graphs."""

from collections import Counter

import kineto_grid_jobs
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_events import imported, met

from prismcore.replay import replay

times = st.integers(1, 900)


@st.composite
def grids(draw):
    pp, dp, tp = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    count = pp * dp * tp
    maybe = st.none() | times
    layers = [
        kineto_grid_jobs.Layer(
            gap=draw(st.lists(times, min_size=count, max_size=count)),
            kernel=draw(st.lists(times, min_size=count, max_size=count)),
            lead=draw(st.sampled_from([7, 5, 0, -1, -4])),
            tensor=draw(maybe) if tp > 1 else None,
            data=draw(maybe) if dp > 1 else None,
            message=draw(maybe) if pp > 1 else None,
            side=draw(maybe),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]
    late = [0, *draw(st.lists(times, min_size=count - 1, max_size=count - 1))]
    return kineto_grid_jobs.Grid(pp=pp, dp=dp, tp=tp, layers=layers, late=late).run()


def told(traces):
    """Warnings beside those that a kernel begins before its call."""
    return [text for text in traces.warnings if "begin before the call" not in text]


@settings(max_examples=40, deadline=None)
@given(grid=grids(), clock=st.sampled_from([0, 900_000, -3_000_000_000]))
def test_ends_and_meetings_are_those_of_the_job(tmp_path_factory, grid, clock):
    """The second half of the ranks may have another clock."""
    half = max(len(grid.ranks) // 2, 1)
    events = {
        rank: kineto_grid_jobs.shifted(grid.events[rank], 4_000_000_000 + (clock if rank >= half else 0))
        for rank in grid.ranks
    }
    traces = imported(tmp_path_factory.mktemp("job"), events)
    differ = clock != 0 and len(grid.ranks) > 1
    assert len(told(traces)) == differ, traces.warnings
    assert Counter(met(traces)) == Counter(members for members, _ in grid.meetings)
    ends = [[1000 * grid.ends[rank]] for rank in grid.ranks]
    assert traces.measured_end_ns.tolist() == ends
    assert replay(traces.graph()).iteration_end_ns.tolist() == ends


@settings(max_examples=40, deadline=None)
@given(grid=grids(), data=st.data())
def test_a_late_ring_costs_its_head_alone(tmp_path_factory, grid, data):
    events = {rank: kineto_grid_jobs.begun_late(grid.events[rank], 0) for rank in grid.ranks}
    late = data.draw(st.sampled_from(list(grid.ranks)))
    calls = sorted(e["ts"] for e in events[late] if e["cat"] == "cuda_runtime" and "correlation" in e["args"])
    at = data.draw(st.sampled_from(calls))
    events[late] = kineto_grid_jobs.begun_late(events[late], at)
    traces = imported(tmp_path_factory.mktemp("job"), events)
    expected = [members for members, calls in grid.meetings if late not in calls or calls[late] >= at]
    collectives = [m for m in met(traces) if m in {members for members, _ in grid.meetings}]
    assert Counter(met(traces)) == Counter(expected), traces.warnings
    assert len(collectives) == len(expected)
    assert (len(expected) < len(grid.meetings)) <= len(told(traces))
    ends = traces.measured_end_ns.tolist()
    assert replay(traces.graph()).iteration_end_ns.tolist() == ends
