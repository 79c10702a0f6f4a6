"""Dumps of torch's flight recorder as graphs: rings on paper, torch's own, and files that mean harm."""

import gzip
import io
import json
import os
import pickle
import subprocess
import sys

import pytest
from foreign_values import plain_values
from hypothesis import given, settings
from hypothesis import strategies as st

from prismcore.cli.main import main
from prismcore.comm import collective_cost, p2p_cost
from prismcore.errors import TraceError
from prismcore.graph import Graph, OpKind
from prismcore.profiles.cluster import load_cluster
from prismcore.replay import Perturbation, SlowRank, replay
from prismcore.traces.flight_recorder import read_flight_records
from prismcore.traces.flight_recorder_ops import graph_of_flight_records
from prismcore.traces.plain_pickle import load_plain

A100 = load_cluster("a100-8x")
WORLD = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}


def entry(record, number, created, *, name="all_reduce", span=None, group=("0", "default_pg"), **more):
    told = {
        "record_id": record, "pg_id": 0, "process_group": group, "collective_seq_id": number, "p2p_seq_id": 0,
        "op_id": record + 1, "profiling_name": f"nccl:{name}", "time_created_ns": created,
        "input_sizes": [[1024, 4]], "input_dtypes": ["Float"], "output_sizes": [[1024, 4]],
        "output_dtypes": ["Float"], "state": "scheduled", "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None, "retired": False, "timeout_ms": 600_000, "is_p2p": False,
        "frames": [],
    }  # fmt: skip
    if span is not None:
        told |= {"state": "completed", "retired": True, "time_discovered_started_ns": span[0]}
        told |= {"time_discovered_completed_ns": span[1], "duration_ms": (span[1] - span[0]) / 1e6}
    return told | more


def message(record, number, created, name, **more):
    more = {"group": ("5", "pp"), "p2p_seq_id": number, "is_p2p": True} | more
    return entry(record, 0, created, name=name, **more)


def dump(entries, *, config=None, version="2.10"):
    return {
        "version": version, "pg_config": WORLD if config is None else config, "comm_lib_version": "2.30.7",
        "pg_status": {}, "entries": entries,
    }  # fmt: skip


def write(folder, dumps, name="nccl_trace_rank_{}"):
    paths = []
    for rank, content in dumps.items():
        paths.append(folder / name.format(rank))
        paths[-1].write_bytes(pickle.dumps(content, protocol=2))
    return paths


def graph_of(paths):
    return graph_of_flight_records(read_flight_records(paths), A100)


def all_reduce_ns(bytes=16384, members=(0, 1)):
    return collective_cost("all_reduce", bytes, members, cluster=A100).duration_ns


def timed_job(calls, *, late=1000, transfer=5000, begin=1_700_000_000_000_000_000):
    """Two ranks: calls every 20 us, rank 1 later each time; both leave when the transfer is done."""
    entries = {0: [], 1: []}
    for number in range(1, calls + 1):
        created = begin + 20_000 * number
        end = created + late * number + transfer
        for rank in range(2):
            came = created + late * number * rank
            entries[rank].append(entry(number - 1, number, came, span=(came, end)))
    return entries


def test_timed_calls_end_when_they_ended_and_lose_their_waiting(tmp_path):
    entries = timed_job(3)
    graph, warnings = graph_of(write(tmp_path, {r: dump(e) for r, e in entries.items()}))
    assert warnings == []
    result = replay(graph, timeline_ranks=[0, 1])
    begin = entries[0][0]["time_created_ns"]
    ends = [e["time_discovered_completed_ns"] - begin for e in entries[0]]
    assert result.iteration_time_ns.tolist() == [ends[-1]]
    timeline = result.timeline
    for rank in range(2):
        chosen = (timeline.rank == rank) & (timeline.end_ns - timeline.start_ns == 5000)
        assert timeline.end_ns[chosen].tolist() == ends
    assert result.provenance["measured"] == 1
    slow = replay(graph, perturbation=Perturbation(slow_ranks=[SlowRank(rank=0, factor=2)]))
    assert slow.iteration_time_ns[0] >= ends[-1]


def test_clocks_of_machines_become_one(tmp_path):
    entries = timed_job(5)
    expected, _ = graph_of(write(tmp_path, {r: dump(e) for r, e in entries.items()}))
    for one in entries[1]:
        for key in ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"):
            one[key] += 7_000_000_000
    graph, warnings = graph_of(write(tmp_path, {r: dump(e) for r, e in entries.items()}))
    assert any("clocks of ranks 1 differ" in text for text in warnings)
    assert replay(graph).iteration_end_ns.tolist() == replay(expected).iteration_end_ns.tolist()


def test_ends_that_the_watchdog_sees_late_take_nothing_from_durations(tmp_path):
    """All calls seem to end when the watchdog looked; the device timed them."""
    entries = timed_job(5, late=0, transfer=15_000)
    looked = entries[0][-1]["time_discovered_completed_ns"] + 40_000_000
    for rank, of in entries.items():
        for one in of:
            one["time_discovered_completed_ns"] = looked + rank * 9_000_000
    graph, warnings = graph_of(write(tmp_path, {r: dump(e) for r, e in entries.items()}))
    assert warnings == []
    ops = graph.ops(1)
    assert ops["duration_ns"][ops["kind"] == OpKind.ALL_REDUCE].tolist() == [15_000] * 5


def test_calls_without_times_take_the_model(tmp_path):
    dumps = {
        rank: dump([entry(n, n + 1, 1000 * n + rank, retired=True) for n in range(4)]) for rank in range(2)
    }
    graph, warnings = graph_of(write(tmp_path, dumps))
    assert any("8 communication ops were not timed on all members" in text for text in warnings)
    assert replay(graph).iteration_time_ns.tolist() == [1 + 4 * all_reduce_ns()]


def test_the_json_form_says_the_same(tmp_path):
    entries = timed_job(3)
    paths = write(tmp_path, {r: dump(e) for r, e in entries.items()})
    graph, _ = graph_of(paths)
    for rank, path in enumerate(paths):
        told = dump([e | {"process_group": list(e["process_group"])} for e in entries[rank]])
        path.unlink()
        with gzip.open(tmp_path / f"dump_{rank}.json.gz", "wt") as file:
            json.dump(told, file)
    again, _ = graph_of(sorted(tmp_path.glob("dump_*")))
    assert again.digest() == graph.digest()


def test_rings_that_start_late_meet_by_number(tmp_path):
    """pytorch#125173: a ring holds the latest calls only, on each rank others."""
    entries = timed_job(6)
    dumps = {0: dump(entries[0][1:]), 1: dump(entries[1][3:])}
    graph, warnings = graph_of(write(tmp_path, dumps))
    assert "rings of ranks 0-1 start late: the calls before are not in them" in warnings
    assert any("the traces of ranks 1 begin later (collectives 2-3)" in text for text in warnings)
    result = replay(graph)
    begin = entries[0][1]["time_created_ns"]
    assert result.iteration_time_ns.tolist() == [entries[0][5]["time_discovered_completed_ns"] - begin]
    shared = [graph.communicator(c).members.tolist() for c in range(graph.num_communicators)]
    assert sorted(shared) == [[0], [0, 1]]


def test_holes_missing_ranks_and_mixed_versions_are_told(tmp_path):
    entries = timed_job(5)
    config = {"0": WORLD["0"] | {"ranks": "[0, 1, 2]"}}
    dumps = {
        0: dump(entries[0][:2] + entries[0][3:], config=config),
        1: dump(entries[1], config=config, version="2.4"),
    }
    graph, warnings = graph_of(write(tmp_path, dumps))
    said = "\n".join(warnings)
    assert "1 calls are missing between its first and last" in said
    assert "ranks 0 lack what others did (collectives 3)" in said
    assert "dumps of versions 2.10, 2.4 are mixed" in said
    assert "rank 2 (of 3) has no dump" in said
    assert (graph.world_size, list(graph.ranks)) == (3, [0, 1])
    replay(graph)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("nccl_trace_rank_host12_0", "nccl_trace_rank_host12_1"), None),
        (("rank0_of_host-77.pickle", "rank1_of_host-77.pickle"), None),
        (("dump_0", "a-copy"), "its name does not tell its rank; it is taken as 1"),
    ],
)
def test_renamed_files_are_placed_by_their_members(tmp_path, names, said):
    entries = timed_job(2)
    paths = []
    for rank, name in enumerate(names):
        paths += write(tmp_path, {rank: dump(entries[rank])}, name)
    records = read_flight_records(paths)
    assert [record.rank for record in records] == [0, 1]
    assert [record.path for record in records] == [str(path) for path in paths]
    told = [text for record in records for text in record.warnings]
    assert any(said in text for text in told) if said else told == []


def test_ranks_that_cannot_be_told(tmp_path):
    entries = timed_job(2)
    paths = [*write(tmp_path, {0: dump(entries[0])}, "one"), *write(tmp_path, {1: dump(entries[1])}, "two")]
    with pytest.raises(
        TraceError, match=r"one: its rank is not told by its name, and it is one of ranks 0-1"
    ):
        read_flight_records(paths)
    (path,) = write(tmp_path, {0: dump(entries[0])})
    with pytest.raises(TraceError, match="rank 0 found, which"):
        read_flight_records([path, path])


@pytest.mark.parametrize("ranks", ["[0, 546730670]", "[0, 16777216]", "[0, 0]", "[0, -1]", [0, "x"], [None]])
def test_members_that_no_group_can_have_are_not_taken(tmp_path, ranks):
    entries = timed_job(2)
    config = {"0": WORLD["0"] | {"ranks": ranks}}
    graph, warnings = graph_of(write(tmp_path, {r: dump(e, config=config) for r, e in entries.items()}))
    assert sum("the members of 1 process groups cannot be" in text for text in warnings) == 2  # of each dump
    assert graph.world_size == 2
    replay(graph)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"profiling_name": "nccl:_all_gather_base"},
            "different ones, all_reduce and all_gather (collectives 3)",
        ),
        ({"input_sizes": [[8]], "output_sizes": [[8]]}, "brought 16,384 and 32 bytes (collectives 3)"),
    ],
)
def test_calls_that_differ_between_ranks_are_told(tmp_path, change, said):
    entries = timed_job(4)
    entries[1][2] |= change
    graph, warnings = graph_of(write(tmp_path, {r: dump(e) for r, e in entries.items()}))
    assert any(said in text for text in warnings), warnings
    replay(graph)


def test_a_job_that_hangs_says_who_waits_for_whom(tmp_path):
    """As fr_trace: rank 1 never called the fourth all-reduce."""
    entries = timed_job(3)
    at = entries[0][-1]["time_created_ns"]
    entries[0].append(entry(3, 4, at + 50_000, state="started", time_discovered_started_ns=at + 60_000))
    graph, warnings = graph_of(write(tmp_path, {r: dump(e) for r, e in entries.items()}))
    assert any(
        "communicator 0: all_reduce 4 did not end (started on ranks 0, never called on ranks 1)" in text
        for text in warnings
    )
    assert any("ranks 1 lack what others did (collectives 4)" in text for text in warnings)
    replay(graph)


def test_messages_meet_by_the_ranks_in_their_names(tmp_path):
    config = {"5": {"name": "5", "desc": "pp", "ranks": "[2, 3]"}}
    dumps = {
        2: dump([message(n, n + 1, 100 * n, "send 0->1", retired=True) for n in range(3)], config=config),
        3: dump([message(n, n + 1, 100 * n, "recv 1<-0", retired=True) for n in range(3)], config=config),
    }
    for of in dumps.values():
        of["entries"].append(entry(3, 1, 900, name="coalesced", group=("5", "pp"), retired=True,
                                   input_sizes=[], output_sizes=[]))  # fmt: skip
    graph, _ = graph_of(write(tmp_path, dumps))
    ops = graph.ops(2)
    assert int((ops["kind"] == OpKind.SEND).sum()) == 3
    cost = p2p_cost(16384, same_node=True, cluster=A100).duration_ns
    assert replay(graph).iteration_time_ns.tolist() == [3 * cost]
    dumps[3]["entries"] = dumps[3]["entries"][1:]  # a ring that starts late: the first send is alone
    late, warnings = graph_of(write(tmp_path, dumps))
    assert any("1 of 5 sends and receives have no other side" in text for text in warnings)
    assert replay(late).iteration_time_ns[0] > 0


def test_coalesced_calls_are_told(tmp_path):
    dumps = {
        rank: dump([entry(0, 1, 0, name="coalesced", retired=True, input_sizes=[], output_sizes=[])])
        for rank in range(2)
    }
    graph, warnings = graph_of(write(tmp_path, dumps))
    assert any("2 coalesced calls do not tell what is in them" in text for text in warnings)
    assert int((graph.ops(0)["kind"] == OpKind.ALL_GATHER).sum()) == 1


def test_command_line(tmp_path, capsys):
    folder = tmp_path / "dumps"
    folder.mkdir()
    dumps = {rank: dump([entry(0, 1, 0, retired=True)]) for rank in range(2)}
    write(folder, dumps)
    out = tmp_path / "job.prism"
    command = ["import", "flight-recorder", str(folder), "-o", str(out), "--json"]
    assert main([*command, "--cluster", "a100-8x"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["ranks"], found["provenance"]["model"]) == (2, 1)
    graph = Graph.open(out)
    assert graph.metadata["imported_from"] == "flight-recorder"
    assert replay(graph).iteration_time_ns.tolist() == [all_reduce_ns()]
    write(folder, {rank: dump(entries) for rank, entries in timed_job(2).items()})
    assert main(command) == 0
    assert main([*command, "--cluster", "a100-8x"]) == 2  # it would change nothing


class Harm:
    def __init__(self, wants, *args):
        self.wants, self.args = wants, args

    def __reduce__(self):
        return self.wants, self.args


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Harm(os.system, "touch harm"), r"(posix|nt)\.system"),
        (Harm(eval, "1"), r"(builtins|__builtin__)\.eval"),
        ({"entries": [Harm(bytearray, 1 << 40)]}, r"(builtins|__builtin__)\.bytearray"),
        ({"entries": [io.BytesIO]}, r"_io\.BytesIO"),
    ],
)  # fmt: skip
def test_a_pickle_that_wants_a_global_is_refused_by_its_name(tmp_path, monkeypatch, protocol, value, wanted):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rank_0"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    with pytest.raises(TraceError, match=f"rank_0: the pickle wants '{wanted}'"):
        read_flight_records([path])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "data",
    [
        b"r\xff\xff\xff\x7f.",  # memo of 2^31
        b"\x80\x02}r\xff\xff\xff\x7f.",
        b"p2147483647\n.",
        b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".",  # a byte array of 2^40
        b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b".",  # bytes of 2^40
        b"\x80\x04\x95" + (1 << 60).to_bytes(8, "little") + b"}.",  # a frame of 2^60
        b"\x82\x01.",  # from the registry of extensions
        b"Pid\n.",  # a persistent id
        b"\x80\x02](h\x05.",
        b"",
        b"\x80",
        b"K",
        b"}",
        b"0.",
        b"\x80\x02}q\x00(]K\x01u.",  # a list as a key
        b"L" + b"9" * 10_000 + b"L\n.",
        b"(((((((tttttttttt.",
    ],
)
def test_damaged_and_hostile_pickles_are_trace_errors_and_take_no_memory(data):
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TraceError):
        load_plain(data, "dump")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 18  # KiB


def test_bombs_of_references_do_not_explode(tmp_path):
    """Ten lists, each of ten times the one before: a file of a hundred bytes, 10^10 elements to walk."""
    inner: list = []
    for _ in range(40):
        inner = [inner] * 10
    path = tmp_path / "rank_0"
    path.write_bytes(pickle.dumps(dump([entry(0, 1, 0, input_sizes=inner, output_sizes=[inner] * 4)])))
    with pytest.raises(TraceError, match="counting those used again"):
        read_flight_records([path])


def test_each_call_has_its_own_record_id(tmp_path):
    path = tmp_path / "rank_0"
    path.write_bytes(pickle.dumps(dump([entry(7, 1, 0), entry(7, 2, 0)])))
    with pytest.raises(TraceError, match="2 calls with 1 different record ids found"):
        read_flight_records([path])


@settings(max_examples=60, deadline=None)
@given(value=plain_values, protocol=st.integers(0, 5))
def test_plain_values_come_back(value, protocol):
    found = load_plain(pickle.dumps(value, protocol=protocol), "dump")
    assert repr(found) == repr(value)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_wrong_types_anywhere_give_a_graph_or_a_trace_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fr")
    entries = timed_job(3)
    content = dump(entries[0])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from([content, content["pg_config"], *entries[0]]))
        if isinstance(place, dict) and place:
            place[data.draw(st.sampled_from(sorted(place)))] = data.draw(plain_values)
    try:
        graph, _ = graph_of(write(folder, {0: content, 1: dump(entries[1])}))
    except TraceError:
        return
    replay(graph)


@pytest.mark.torch
def test_torchs_own_dump(tmp_path):
    """Two gloo ranks; states of gloo stay 'scheduled', retired says that a call is done."""
    pytest.importorskip("torch")
    program = tmp_path / "train.py"
    program.write_text(
        "import os, pickle, sys, time, torch, torch.distributed as dist\n"
        "from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json\n"
        "child = os.fork()\n"
        "rank, folder = int(child == 0), sys.argv[1]\n"
        "store = dist.FileStore(folder + '/store', 2)\n"
        "dist.init_process_group('gloo', store=store, rank=rank, world_size=2)\n"
        "t = torch.ones(1000)\n"
        "for _ in range(3): dist.all_reduce(t)\n"
        "dist.barrier()\n"
        "while not all(e['retired'] for e in pickle.loads(_dump_fr_trace())['entries']): time.sleep(0.01)\n"
        "open(f'{folder}/dump_{rank}', 'wb').write(_dump_fr_trace())\n"
        "told = _dump_fr_trace_json()\n"
        "told = told if isinstance(told, bytes) else told.encode()\n"
        "open(f'{folder}/dump_{rank}.json', 'wb').write(told)\n"
        "dist.destroy_process_group()\n"
        "if child: sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": "100"}
    ran = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], env=environment, timeout=120, check=False
    )
    assert ran.returncode == 0
    pickled = [tmp_path / f"dump_{rank}" for rank in range(2)]
    records = read_flight_records(pickled)
    assert {e.state for r in records for e in r.entries} == {"completed"}
    graph, _ = graph_of(pickled)
    ops = graph.ops(0)
    sizes = ops["bytes"][ops["kind"] == OpKind.ALL_REDUCE].tolist()
    assert sizes[:3] == [4000] * 3
    result = replay(graph)
    assert result.provenance["model"] == 1
    as_json, _ = graph_of([tmp_path / f"dump_{rank}.json" for rank in range(2)])
    assert as_json.communication_digest() == graph.communication_digest()
