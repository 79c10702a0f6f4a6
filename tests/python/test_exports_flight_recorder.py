"""Dumps of the flight recorder: against the replay, and as torch's own analyser judges them."""

import json
import pickle
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import jobs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_programs import programs

from prismcore.errors import DeadlockError, MismatchError
from prismcore.exports.call_sites import frames_of
from prismcore.exports.flight_recorder import write_flight_recorder
from prismcore.graph import DataType, GraphBuilder, OpFlag
from prismcore.profiles.cluster import cluster_text
from prismcore.replay import Perturbation, RankFailure, replay


def dumped(graph, folder, ranks=None, **options):
    folder.mkdir(exist_ok=True)
    size = write_flight_recorder(folder, graph, graph.ranks.tolist() if ranks is None else ranks, **options)
    dumps = {int(p.name.removeprefix("rank_")): pickle.loads(p.read_bytes()) for p in folder.iterdir()}
    assert size.ranks == len(dumps)
    assert size.entries == sum(len(d["entries"]) for d in dumps.values())
    states = [e["state"] for d in dumps.values() for e in d["entries"]]
    assert size.unfinished == len(states) - states.count("completed")
    return size, dumps


def skipped():
    """Rank 2 leaves out an all-reduce that the others wait in; 0 and 1 have queued more behind it."""
    builder = GraphBuilder(world_size=3)
    world = builder.communicator("world:0", range(3))
    pair = builder.communicator("pair:1", [0, 1])
    for r in range(3):
        rank = builder.rank(r)
        rank.all_reduce(world, bytes=64, duration_ns=100, host_ns=10)
        rank.kernel("work", duration_ns=1_000, host_ns=10)
        if r != 2:
            rank.all_reduce(
                world, bytes=128, duration_ns=100, host_ns=10 * r, call_site="a.py:3 step < a.py:9"
            )
            rank.all_gather(pair, bytes=32, duration_ns=50)
            rank.sync()
            rank.all_reduce(pair, bytes=32, duration_ns=50)
    return builder.finish()


def test_entries_say_what_the_replay_did(tmp_path):
    graph = jobs.pipeline(iterations=2)
    size, dumps = dumped(graph, tmp_path)
    assert (size.unfinished, size.failure) == (0, None)
    shown = replay(graph, timeline_ranks=[1]).timeline
    spans = sorted(zip(shown.arrive_ns.tolist(), shown.end_ns.tolist(), strict=True))
    for rank, dump in dumps.items():
        assert dump["version"] == "2.10"
        entries = dump["entries"]
        assert [e["record_id"] for e in entries] == list(range(len(entries)))
        assert len(entries) == 2 * (1 + (8 if rank == 1 else 4))
        for e in entries:
            assert (
                e["time_created_ns"] <= e["time_discovered_started_ns"] <= e["time_discovered_completed_ns"]
            )
            assert dump["pg_config"][e["process_group"][0]]["desc"] == e["process_group"][1]
            if rank == 1:
                assert (e["time_discovered_started_ns"], e["time_discovered_completed_ns"]) in spans
    reduces = [[e for e in d["entries"] if not e["is_p2p"]] for d in dumps.values()]
    assert [[e["collective_seq_id"] for e in of] for of in reduces] == [[1, 2]] * 3
    ends = {tuple(e["time_discovered_completed_ns"] for e in of) for of in reduces}
    assert len(ends) == 1  # together on all ranks
    (entry, _) = reduces[0]
    assert entry["profiling_name"] == "nccl:all_reduce"
    assert entry["process_group"] == ("0", "default_pg:0")
    assert (entry["input_sizes"], entry["input_dtypes"]) == ([[1 << 20]], ["Float"])
    assert entry["frames"] == [{"name": "", "filename": "train.py", "line": 77}]
    assert dumps[0]["pg_config"]["0"]["ranks"] == "[0, 1, 2]"
    assert dumps[0]["pg_status"]["0"] == {
        f"last_{w}_collective": 2 for w in ("enqueued", "started", "completed")
    }


def test_messages_stand_under_a_group_for_each_direction(tmp_path):
    _, dumps = dumped(jobs.ring(), tmp_path)
    for rank, dump in dumps.items():
        names = {e["process_group"][0]: e["profiling_name"] for e in dump["entries"]}
        right, left = (rank + 1) % 4, (rank - 1) % 4
        for source, target, kind in ((rank, right, "send"), (left, rank, "recv")):
            ranks = sorted([source, target])
            a, b = ranks.index(source), ranks.index(target)
            expected = f"nccl:send {a}->{b}" if kind == "send" else f"nccl:recv {b}<-{a}"
            assert names[f"0:{source}->{target}"] == expected
            assert dump["pg_config"][f"0:{source}->{target}"]["ranks"] == str(ranks)


@pytest.mark.parametrize(
    ("kind", "dtype", "size", "name", "inputs", "outputs", "told"),
    [
        ("all_gather", DataType.BFLOAT16, 96, "_all_gather_base", 16, 48, "BFloat16"),
        ("all_gather", DataType.FLOAT32, 40, "all_gather_v", 4, 10, "Float"),
        ("reduce_scatter", DataType.FLOAT32, 24, "_reduce_scatter_base", 6, 2, "Float"),
        ("all_to_all", DataType.INT64, 12, "all_to_all", 12, 12, "Byte"),
        ("all_reduce", DataType.FLOAT8E5M2, 5, "all_reduce", 5, 5, "Float8_e5m2"),
    ],
)
def test_sizes_of_both_buffers(tmp_path, *, kind, dtype, size, name, inputs, outputs, told):
    builder = GraphBuilder(world_size=3)
    world = builder.communicator("world", range(3))
    for r in range(3):
        getattr(builder.rank(r), kind)(world, bytes=size, dtype=dtype, duration_ns=1)
    _, dumps = dumped(builder.finish(), tmp_path)
    (entry,) = dumps[2]["entries"]
    assert entry["profiling_name"] == f"nccl:{name}"
    assert (entry["input_sizes"], entry["output_sizes"]) == ([[inputs]], [[outputs]])
    assert (entry["input_dtypes"], entry["output_dtypes"]) == ([told], [told])


def test_what_never_ends_is_started_or_scheduled(tmp_path):
    graph = skipped()
    with pytest.raises(DeadlockError):
        replay(graph)
    size, dumps = dumped(graph, tmp_path)
    (wait,) = size.failure.waits
    assert (wait.communicator, wait.number, wait.missing, wait.failed) == ("world:0", 1, [2], [])
    for rank in (0, 1):
        first, second, queued = dumps[rank]["entries"]  # the host waits behind it
        assert (first["state"], second["state"], queued["state"]) == ("completed", "started", "scheduled")
        since = {r.rank: r.since_ns for r in wait.ranks}[rank]
        assert second["time_discovered_started_ns"] == since
        assert second["time_discovered_completed_ns"] is None
        assert queued["time_discovered_started_ns"] is None
        assert not second["retired"]
        assert [f["line"] for f in second["frames"]] == [3, 9]
        status = dumps[rank]["pg_status"]["0"]
        assert [status[f"last_{w}_collective"] for w in ("enqueued", "started", "completed")] == [2, 2, 1]
    assert [e["state"] for e in dumps[2]["entries"]] == ["completed"]


def test_a_failed_rank_lists_what_it_has_ended(tmp_path):
    graph = jobs.pipeline()
    middle = int(replay(graph).iteration_end_ns[:, 0].max()) + 2_000_000
    size, dumps = dumped(
        graph, tmp_path, perturbation=Perturbation(failures=[RankFailure(rank=1, at_ns=middle)])
    )
    assert list(size.failure.failed) == [1]
    assert {e["state"] for e in dumps[1]["entries"]} == {"completed"}
    assert max(e["time_discovered_completed_ns"] for e in dumps[1]["entries"]) <= middle
    for wait in size.failure.waits:
        for waiting in wait.ranks:
            unfinished = [e for e in dumps[waiting.rank]["entries"] if e["state"] == "started"]
            assert waiting.since_ns in [e["time_discovered_started_ns"] for e in unfinished]


@settings(max_examples=30, deadline=None)
@given(programs(max_ranks=4, max_actions=25, asynchronous=True), st.randoms(use_true_random=False))
def test_jobs_in_any_order_stop_for_all_members_alike(made, random):
    made.swap_any(random)
    graph = made.build()
    try:
        result = replay(graph)
    except (DeadlockError, MismatchError):
        result = None
    with tempfile.TemporaryDirectory() as name:
        size, dumps = dumped(graph, Path(name))
    assert (size.failure is None) == (result is not None) == (size.unfinished == 0)
    ends, issued = defaultdict(set), 0
    shares = OpFlag.GROUP_CONTINUES
    grouped = {r for r, ops in enumerate(made.ops) if any(op.get("flags", 0) & shares for op in ops)}
    for rank, dump in dumps.items():
        states = {"completed": 0, "started": 0, "scheduled": 0}
        for e in dump["entries"]:
            states[e["state"]] += 1
            issued += 1
            if not e["is_p2p"]:
                group = e["process_group"][0]
                key = (group, dump["pg_config"][group]["ranks"], e["collective_seq_id"])
                ends[key].add(
                    (rank, e["time_discovered_completed_ns"] if e["state"] == "completed" else None)
                )
        if size.failure is not None and rank in size.failure.waiting:
            assert states["started"] > 0
    for (_, members, _), seen in ends.items():
        if {end for _, end in seen} != {None}:  # it took place: for all of them
            assert {rank for rank, _ in seen} == set(json.loads(members))
            late = {rank for rank, end in seen if end is None}  # a launch that it shares is not over there
            assert late <= set(size.failure.waiting if size.failure is not None else ()) & grouped
    if result is not None:
        assert issued == sum(sum(graph.statistics(r).communication.values()) for r in graph.ranks.tolist())


def test_a_send_that_its_rank_did_not_end_is_not_in_its_dump(tmp_path):
    builder = GraphBuilder(world_size=2)
    pair = builder.communicator("pair", range(2))
    builder.rank(0).kernel("work", duration_ns=100)
    builder.rank(0).send(pair, to=1, bytes=8, duration_ns=50)
    builder.rank(1).recv(pair, source=0, bytes=8, duration_ns=50)
    graph = builder.finish({"cluster": cluster_text("h100-8x")})  # so small that it does not wait
    for at, ended in ((120, False), (150, True)):
        lost = Perturbation(failures=[RankFailure(rank=0, at_ns=at)])
        size, dumps = dumped(graph, tmp_path / str(at), perturbation=lost)
        assert [e["state"] for e in dumps[0]["entries"]] == ["completed"] * ended
        assert [e["state"] for e in dumps[1]["entries"]] == ["completed" if ended else "started"]
        assert [w.missing for w in size.failure.waits] == [[0]] * (not ended)


def test_call_sites_as_frames():
    assert frames_of("") == []
    assert frames_of("C:/a b.py:12 f < /x:y/z.py:3 <module> < odd") == [
        {"name": "f", "filename": "C:/a b.py", "line": 12},
        {"name": "<module>", "filename": "/x:y/z.py", "line": 3},
        {"name": "odd", "filename": "", "line": 0},
    ]


ANALYSE = """
import json, pickle, sys
from torch.distributed.flight_recorder.fr_trace import main
for folder in sys.argv[1:]:
    main([folder, "-p", "rank_", "-o", folder + ".db"])
    with open(folder + ".db", "rb") as file:
        _, db = pickle.load(file)
    print("RESULT", json.dumps([
        {"group": c.pg_desc, "number": c.collective_seq_id, "state": c.collective_state,
         "passed": c.pass_check, "missing": sorted(c.missing_ranks or ()),
         "culprits": {r: str(m.type_of_mismatch) for r, m in (c.mismatch_collectives or {}).items()}}
        for c in db.collectives]), flush=True)
"""


@pytest.mark.torch
def test_torch_s_own_analyser(tmp_path):
    failing = jobs.pipeline()
    at = int(replay(failing).iteration_end_ns[:, 0].max()) + 2_000_000
    lost = Perturbation(failures=[RankFailure(rank=1, at_ns=at)])
    size = {}
    for name, graph, options in (
        ("whole", jobs.pipeline(), {}),
        ("ring", jobs.ring(), {}),
        ("skipped", skipped(), {}),
        ("mismatch", jobs.mismatch(), {}),
        ("failed", failing, {"perturbation": lost}),
    ):
        size[name], _ = dumped(graph, tmp_path / name, **options)
    done = subprocess.run(
        [sys.executable, "-c", ANALYSE, *(str(tmp_path / name) for name in size)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line.removeprefix("RESULT ") for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    found = dict(zip(size, map(json.loads, lines), strict=True))

    for name in ("whole", "ring"):  # without complaint
        assert all(c["passed"] and not c["missing"] for c in found[name]), found[name]
        assert {c["state"] for c in found[name]} == {"completed"}
    assert len(found["whole"]) == 3 * (8 + 1)
    assert len(found["ring"]) == 4

    odd = [c for c in found["skipped"] if c["missing"]]
    assert [(c["number"], c["missing"], c["group"]) for c in odd] == [(2, [2], "0:world:0")]

    (sums,) = found["mismatch"]
    assert not sums["passed"]
    assert list(sums["culprits"]) == ["1"]
    assert "SIZE_OR_SYNTAX_MISMATCH" in sums["culprits"]["1"]

    missing = {rank for c in found["failed"] for rank in c["missing"]}
    assert 1 in missing
    assert 1 in size["failed"].failure.waits[0].missing
