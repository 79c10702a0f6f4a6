"""What comes back through ``prism import`` of what ``prism export`` wrote."""

import tempfile
from collections import defaultdict
from pathlib import Path

import jobs
import pytest
from hypothesis import given, settings
from replay_programs import programs

from prismcore.exports.flight_recorder import write_flight_recorder
from prismcore.graph import OpKind
from prismcore.profiles.cluster import load_cluster
from prismcore.replay import replay
from prismcore.traces.flight_recorder import read_flight_records
from prismcore.traces.flight_recorder_ops import graph_of_flight_records


def talk(graph):
    """By rank: kinds, sizes and types of its collectives by members of their group, and of its messages by
    their ends, in order."""
    found = {}
    for rank in graph.ranks.tolist():
        series = found.setdefault(rank, defaultdict(list))
        bindings = graph.rank(rank).bindings.tolist()
        for op in graph.ops(rank):
            kind = OpKind(int(op["kind"]))
            if not kind.is_communication:
                continue
            id, position = bindings[int(op["ref"])]
            members = graph.communicator(id).members.tolist()
            if kind in (OpKind.SEND, OpKind.RECV):
                ends = (rank, members[(position + int(op["peer"])) % len(members)])
                key = (kind, ends)
            else:
                key = tuple(members)
            series[key].append((kind, int(op["bytes"]), int(op["dtype"])))
    return found


def through_the_flight_recorder(graph):
    with tempfile.TemporaryDirectory() as folder:
        write_flight_recorder(Path(folder), graph, graph.ranks.tolist())
        records = read_flight_records(sorted(Path(folder).iterdir()))
        entries = [entry for record in records for entry in record.entries]
        span = max(e.completed_ns for e in entries) - min(e.created_ns for e in entries)
        back, _ = graph_of_flight_records(records, load_cluster("h100-8x"))
    return back, span


@pytest.mark.parametrize("graph", [jobs.pipeline(), jobs.ring()], ids=["pipeline", "ring"])
def test_communication_comes_back_from_the_flight_recorder(graph):
    back, span = through_the_flight_recorder(graph)
    assert talk(back) == talk(graph)
    assert replay(back).iteration_time_ns.tolist() == [span]


@settings(max_examples=40, deadline=None)
@given(programs(max_ranks=3, max_actions=20))
def test_so_does_that_of_any_program(made):
    graph = made.build()
    if any(talk(graph).values()):
        back, _ = through_the_flight_recorder(graph)
        assert talk(back) == {rank: series for rank, series in talk(graph).items() if rank in back.ranks}
