"""Ranks as the warm parent forks them: environment, ends of every kind, members, call sites."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from rank_launcher import descendants, failure, is_running, launcher

from prismcore.errors import CollectError, OutOfMemoryError, RankFailedError
from prismcore.graph import Graph
from prismcore.launch.launcher import RankEnd

PROGRAM = '''
import json, os, signal, subprocess, sys, time
import torch
import torch.distributed as dist


def exchange(rank, world):
    """Unbatched messages round the ring: torch makes a communicator for each pair."""
    x = torch.ones(4, device="cuda")
    sent = dist.isend(x, (rank + 1) % world)
    dist.recv(torch.empty(4, device="cuda"), (rank - 1) % world)
    sent.wait()


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if rank == 1:
        raise RuntimeError("this rank had enough")
    if rank == 2:
        sys.exit(3)
    if rank == 3:
        print("about to die", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 4:
        return  # no process group
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    if rank == 5:
        hog = [torch.empty(30 << 30, dtype=torch.uint8, device="cuda") for _ in range(4)]
    if rank == 6:
        child = subprocess.Popen(["sleep", "600"])
        print(json.dumps({"child": child.pid}), flush=True)
    if rank == 7:
        print("sleeping", flush=True)
        open("asleep", "w").close()
        time.sleep(600)
    if rank == 8:
        sys.exit("the sizes do not fit")
    groups = [dist.new_group(list(range(i, world, 4)), group_desc="quarter") for i in range(4)]
    print(json.dumps(dict(os.environ)), flush=True)
    for _ in range(5):
        dist.all_reduce(torch.ones(8, device="cuda"), group=groups[rank % 4])
        exchange(rank, world)
        torch.cuda.synchronize()
        print("devices", torch.cuda.device_count(), torch.cuda.current_device(), flush=True)


if __name__ == "__main__":
    main()
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    (folder / "train.py").write_text(PROGRAM)
    return folder


@pytest.fixture(scope="module")
def ends(folder: Path) -> dict[int, RankEnd]:
    with launcher(folder) as ranks:
        out = {}
        (folder / "asleep").unlink(missing_ok=True)
        for rank in (0, 1, 2, 3, 4, 5, 6, 8, 15, 7):
            ranks.start(rank, want_groups=True)
            if rank == 7:
                while not (folder / "asleep").exists():
                    assert ranks.end_within(0.1) is None
                ranks._rank_timeout_s = 0.1  # for the others it would be their limit as well
            out[rank] = ranks.next_end()
        assert ranks.running == []
    return out


def graph_of(end: RankEnd) -> Graph:
    return Graph.from_bytes(end.graph)


@pytest.mark.torch
def test_a_rank_has_the_environment_that_torchrun_gives(ends):
    seen = json.loads(ends[15].last_lines(100)[0])
    expected = {
        "RANK": "15",
        "WORLD_SIZE": "16",
        "LOCAL_RANK": "7",
        "LOCAL_WORLD_SIZE": "8",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "15",
        "ROLE_WORLD_SIZE": "16",
        "OMP_NUM_THREADS": "1",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }
    assert {key: seen[key] for key in expected} == expected
    assert {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID"} <= set(seen)
    assert "devices 8 7" in ends[15].last_lines(100)


@pytest.mark.torch
def test_a_rank_that_ends_well_leaves_its_graph_and_all_groups(ends):
    end = ends[0]
    assert failure(end) is None, end.output
    groups = end.summary["groups"]
    assert [(d, ranks) for d, _, ranks in groups] == [("quarter", list(range(i, 16, 4))) for i in range(4)]
    assert end.summary["groups"] == ends[15].summary["groups"]
    assert end.summary["groups_checksum"] == ends[15].summary["groups_checksum"]
    graph = graph_of(end)
    assert graph.rank(0).peaks.allocated_bytes > 0
    assert end.summary["report"]["unimplemented"] == []


@pytest.mark.torch
@pytest.mark.parametrize("rank", [0, 6, 15])
def test_members_of_groups_and_of_pairs_are_known(ends, rank):
    graph = graph_of(ends[rank])
    found = {}
    for binding in graph.rank(rank).bindings:
        communicator = graph.communicator(int(binding["communicator"]))
        members = communicator.members.tolist()
        assert members[int(binding["position"])] == rank
        found.setdefault(communicator.name.partition(":")[0], []).append(members)
    assert found["quarter"] == [list(range(rank % 4, 16, 4))]
    pairs = {tuple(sorted((rank, (rank + step) % 16))) for step in (1, -1)}
    assert {tuple(members) for members in found["default_pg"]} == pairs


@pytest.mark.torch
def test_call_sites_name_the_line_that_communicates(ends):
    graph = graph_of(ends[0])
    sites = graph.program_call_sites(graph.rank(0).program)
    lines = PROGRAM.splitlines()
    told = {site for site in sites if site}
    assert told
    for site in told:
        place, function = site.rsplit(" ", 1)
        file, line = place.rsplit(":", 1)
        assert file == "train.py"
        assert function in ("main", "exchange")
        assert any(word in lines[int(line) - 1] for word in ("all_reduce", "isend", "recv")), site
    assert len(sites) - sites.count("") == 15  # all of 5 x (all-reduce, send, receive)


@pytest.mark.torch
def test_each_kind_of_end_is_an_error_that_says_so(ends):
    for rank, kind, words in (
        (1, RankFailedError, ["rank 1 ended with exit code 1", "this rank had enough"]),
        (2, RankFailedError, ["rank 2 ended with exit code 3", "wrote nothing"]),
        (3, RankFailedError, ["rank 3 was killed by SIGKILL", "about to die"]),
        (4, CollectError, ["rank 4", "without a process group", "init_process_group"]),
        (5, OutOfMemoryError, ["rank 5", "asked for 30.00 GiB", "60.0", "train.py:"]),
        (7, RankFailedError, ["rank 7 was ended after 20 s", "sleeping"]),
        (8, RankFailedError, ["rank 8 ended with exit code 1: the sizes do not fit"]),
    ):
        error = failure(ends[rank])
        assert type(error) is kind, (rank, error)
        assert all(word in str(error) for word in words), error
    assert failure(ends[5]).exit_code == 4


@pytest.mark.torch
def test_an_error_shows_the_program_and_not_how_it_was_started(ends):
    assert "prismcore" not in ends[1].output
    assert 'train.py", line' in ends[1].output


@pytest.mark.torch
def test_what_a_rank_started_ends_with_it(ends):
    child = json.loads(ends[6].last_lines(100)[0])["child"]
    deadline = time.monotonic() + 240
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.torch
def test_closing_ends_ranks_and_leaves_no_process(folder):
    """It waits for none of them."""
    before = descendants(os.getpid())
    with launcher(folder) as ranks:
        ranks.start(7)
        while len(mine := descendants(os.getpid()) - before) < 2:  # the parent and a rank
            time.sleep(0.02)
    assert not [pid for pid in mine if is_running(pid)]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["absent.py"], "absent.py: no such script"),
        (
            ["python3.11", "-u", "train.py"],
            r"; expected the script itself, without python3.11: -- train.py ARGS",
        ),
        (["/usr/bin/torchrun", "x"], "without /usr/bin/torchrun: -- script.py ARGS, or -- -m module ARGS"),
        (["-m", "no.such.module"], "-m no.such.module: no such module"),
        (["-m", "json"], "-m json: a package without a __main__ module"),
        (["-m", "math"], "-m math: not a module of Python source"),
        (["-m", ""], "-m : no such module"),
    ],
)
def test_programs_that_are_not_there(folder, command, words):
    with pytest.raises(CollectError, match=words), launcher(folder, command=command):
        pass


@pytest.mark.torch
def test_preload_of_a_module_that_is_not_there(folder):
    with pytest.raises(CollectError, match="--preload absent_module"):
        launcher(folder, preload=["absent_module"]).__enter__()


@pytest.mark.torch
@pytest.mark.parametrize("body", ["raise ValueError('no luck')", "raise SystemExit('no luck')"])
def test_preload_of_a_module_that_fails_is_one_line(folder, monkeypatch, body):
    (folder / "unlucky.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with pytest.raises(CollectError, match=r"^--preload unlucky: .*no luck$"):
        launcher(folder, preload=["unlucky"]).__enter__()


@pytest.mark.torch
@pytest.mark.parametrize(
    ("code", "status"), [(3, 3), (255, 255), (-1, 255), (259, 3), (2**70, 255), ("no luck", 1)]
)
def test_any_exit_code_becomes_one_that_a_process_can_have(code, status):
    from prismcore.launch.rank import _exit_status

    assert _exit_status(code) == status


OPTIMIZER = """
import sys
import torch
before = set(sys.modules)
torch.optim.SGD([torch.ones(4, device="cuda", requires_grad=True)], lr=0.1)
print(len(set(sys.modules) - before), flush=True)
sys.exit(9)
"""


@pytest.mark.torch
@pytest.mark.parametrize("head", ["", "import os\nos.environ['TORCHDYNAMO_DISABLE'] = '1'\n"])
def test_what_the_first_optimizer_imports_is_imported_once_for_all_ranks(tmp_path, head):
    """Unless the script sets what is read there."""
    (tmp_path / "train.py").write_text(head + OPTIMIZER)
    with launcher(tmp_path) as ranks:
        ranks.start(0)
        end = ranks.next_end()
    assert (int(end.last_lines()[-1]) > 100) == bool(head)
