"""Ranks as the warm parent forks them: environment, ends of every kind, members, call sites."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from prismcore.errors import CollectError, OutOfMemoryError, RankFailedError
from prismcore.graph import Graph
from prismcore.launch import scout
from prismcore.launch.failures import failure_of
from prismcore.launch.launcher import Launcher, RankEnd
from prismcore.launch.modules import find_program, is_installed, mentions, top_level_imports
from prismcore.profiles.cluster import cluster_text

WORLD = 16

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
    with launcher(folder, rank_timeout_s=20) as ranks:
        out = {}
        for rank in (0, 1, 2, 3, 4, 5, 6, 7, 8, 15):
            ranks.start(rank, want_groups=True)
            out[rank] = ranks.next_end()
        assert ranks.running == []
    return out


def launcher(folder: Path, **options) -> Launcher:
    settings = {
        "command": ["train.py", "--flag"],
        "folder": folder,
        "world_size": WORLD,
        "gpus_per_node": 8,
        "device": "h100",
        "cluster_text": cluster_text("h100-8x"),
        "measure_host": False,
        "iterations": 3,
    }
    return Launcher(**(settings | options))


def failure(end: RankEnd):
    return failure_of(end, world_size=WORLD, timeout_s=20)


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
    deadline = time.monotonic() + 10
    while is_running(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.torch
def test_closing_ends_ranks_within_a_second_and_leaves_no_process(folder):
    before = descendants(os.getpid())
    with launcher(folder) as ranks:
        ranks.start(7)
        time.sleep(0.5)
        mine = descendants(os.getpid()) - before
        assert len(mine) >= 2  # the parent and a rank
        began = time.monotonic()
    took = time.monotonic() - began
    assert took < 5  # a second, on a machine that is not busy elsewhere
    assert not [pid for pid in mine if is_running(pid)]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["absent.py"], "absent.py: no such script"),
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


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


def descendants(root: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    out: set[int] = set()
    waiting = [root]
    while waiting:
        for child in children.get(waiting.pop(), []):
            out.add(child)
            waiting.append(child)
    return out


def test_top_level_imports_are_seen_and_others_are_not():
    source = """
import os, numpy.linalg as la
from json import loads, decoder
from . import near
def f():
    import hidden
if True:
    import conditional
"""
    assert top_level_imports(source) == ["os", "numpy.linalg", "json", "json.loads", "json.decoder"]
    assert top_level_imports("def broken(:") == []


def test_modules_are_told_apart_by_where_they_lie(tmp_path, monkeypatch):
    (tmp_path / "beside.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ["os", "numpy.linalg", "beside", "beside.name", "absent_module"]
    assert [name for name in names if is_installed(name)] == ["os", "numpy.linalg"]


@pytest.mark.parametrize(
    "line",
    [
        "sys.path.insert(0, 'vendor')",
        "if True:\n    sys.path.insert(0, 'vendor')",
        "sys.path = ['vendor'] + sys.path",
        "sys.path[:0] = ['vendor']",
        "sys.path += ['vendor']",
        "del sys.path[0]",
        "sys.path.remove('x')",
    ],
)
def test_imports_behind_a_change_of_where_modules_are_found_are_left_to_the_ranks(line):
    assert top_level_imports(f"import sys, a\n{line}\nimport b") == ["sys", "a"]


@pytest.mark.parametrize("line", ["sys.path.append('x')", "print(sys.path[0])", "os.path.sort()", "path = 1"])
def test_what_hides_no_module_hides_no_import(line):
    assert top_level_imports(f"import sys, os\n{line}\nimport b") == ["sys", "os", "b"]


IMPORTED_ONCE = """
import counted
import {module}
from torch.distributed import TCPStore, split_group
import dist_user
import torch, torch.distributed as dist
rank = int(__import__("os").environ["RANK"])
print("process", __import__("os").getpid(), flush=True)
torch.cuda.set_device(rank % 8)
dist.init_process_group("nccl")
dist_user.store()
dist.all_reduce(torch.ones(8, device="cuda"))
torch.cuda.synchronize()
{module}.check(rank)
"""
COUNTED = """
import os, pathlib
with open(pathlib.Path(__file__).with_name(__name__ + ".log"), "a") as log:
    log.write(f"{os.getpid()}\\n")
"""
DIST_USER = """
from torch.distributed import TCPStore
def store():
    assert type(TCPStore("127.0.0.1", 1, 16, False)).__name__ == "GhostStore"
"""
# By name, what they do at import that only a rank may do, and what a rank finds afterwards.
OF_A_RANK = {
    "reads_rank": ("mine = int(os.environ.get('RANK', '-1'))", "mine == rank"),
    "asks_for_rank": ("mine = 'RANK' in os.environ", "mine"),
    "reads_bytes": ("mine = os.environb.get(b'RANK')", "mine == str(rank).encode()"),
    "copies_environment": ("mine = dict(os.environ)", "mine.get('RANK') == str(rank)"),
    "sets_address": (
        "os.environ['MASTER_PORT'] = '1'; mine = lambda: os.environ['MASTER_PORT']",
        "mine() == '1'",
    ),
    "reads_local_rank": ("from helper import mine", "mine == str(rank % 8)"),
    "parses": (
        "mine = argparse.ArgumentParser(); mine.add_argument('--flag', action='store_true')\n"
        "mine = mine.parse_known_args()[0]",
        "mine.flag",
    ),
    "looks_for_flag": ("mine = '--flag' in sys.argv", "mine"),
    "adds_argument": ("sys.argv.append('--more'); mine = sys.argv", "mine[1:] == ['--flag', '--more']"),
    "replaces_arguments": ("sys.argv = sys.argv[:1]; mine = 0", "sys.argv[1:] == []"),
    "sets_device": ("torch.cuda.set_device(0); mine = torch.ones(1, device='cuda')", "mine.is_cuda"),
    "starts_thread": (
        "mine = threading.Thread(target=time.sleep, args=(60,), daemon=True); mine.start()",
        "mine in threading.enumerate() and mine.is_alive()",
    ),
    "starts_workers": (
        "torch.set_num_threads(2); mine = lambda: torch.ones(1 << 20).exp().sum().item(); mine()",
        "mine() > 0",
    ),
    "starts_process": ("mine = subprocess.Popen(['sleep', '60'])", "mine.poll() is None"),
    "starts_daemon": (
        "mine = os.path.join(os.path.dirname(__file__), 'daemon'); pid = os.fork()\n"
        "if pid == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        open(mine, 'w').write(str(os.getpid())); os.execvp('sleep', ['sleep', '60'])\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)",
        "os.path.exists(mine)",
    ),
    "seeds": ("random.seed(5); mine = random", "mine.getrandbits(32) == random.Random(5).getrandbits(32)"),
    "opens_file": (
        "mine = open(__file__, 'rb', buffering=0)",
        "mine.read(6) == b'import' and mine.tell() == 6",
    ),
    "shares_memory": (
        "mine = multiprocessing.Value('i', 0)",
        "mine.value == 0 and not setattr(mine, 'value', 1)",
    ),
    "has_own_output": (
        "class Output:\n"
        "    def write(self, text): return sys.__stdout__.write(text)\n"
        "    def flush(self): sys.__stdout__.flush()\n"
        "sys.stdout = mine = Output()",
        "sys.stdout is mine",
    ),
    "handles_signals": (
        "mine = lambda *_: None; signal.signal(signal.SIGINT, mine)",
        "signal.getsignal(signal.SIGINT) is mine",
    ),
    "sets_timer": ("mine = signal.alarm(60)", "signal.alarm(0) > 0"),
    "leaves_folder": ("mine = os.getcwd(); os.chdir('..')", "os.path.dirname(mine) == os.getcwd()"),
    "fails": ("mine = os.environ['LOCAL_RANK']", "mine == str(rank % 8)"),
    "leaves": ("mine = 1\nif 'RANK' not in os.environ: os._exit(3)", "mine"),
}


@pytest.mark.torch
@pytest.mark.parametrize("module", OF_A_RANK)
def test_what_is_imported_in_the_parent_is_as_if_the_rank_had(tmp_path, monkeypatch, module):
    """`counted` and `dist_user` are imported twice for all ranks (watched, then in the parent), what only a
    rank may do in each of them."""
    packages = tmp_path / "packages"
    packages.mkdir()
    body, check = OF_A_RANK[module]
    uses = "import argparse, multiprocessing, os, random, signal, subprocess, sys, threading, time, torch\n"
    for name, text in {
        "counted": COUNTED,
        "dist_user": DIST_USER,
        "helper": "import os\nmine = os.environ.get('LOCAL_RANK')",
        module: f"{uses}{COUNTED}\n{body}\ndef check(rank):\n    assert {check}, mine\n",
    }.items():
        (packages / f"{name}.py").write_text(text)
    (tmp_path / "train.py").write_text(IMPORTED_ONCE.format(module=module))
    monkeypatch.setenv("PYTHONPATH", str(packages))
    with launcher(tmp_path) as ranks:
        ends = []
        for rank in (9, 2):
            ranks.start(rank)
            ends.append(ranks.next_end())
    assert [failure(end) for end in ends] == [None, None], [end.output for end in ends]
    processes = {end.last_lines(100)[0].split()[1] for end in ends}
    assert len(processes) == 2
    assert not processes & set((packages / "counted.log").read_text().split())
    assert processes <= set((packages / f"{module}.log").read_text().split())
    if module == "starts_daemon":
        assert not Path("/proc", (packages / "daemon").read_text()).exists()


@pytest.mark.torch
def test_a_module_beside_the_script_hides_an_installed_one(tmp_path):
    (tmp_path / "rich.py").write_text("own = True")
    (tmp_path / "train.py").write_text(
        "import rich\nassert rich.own\nimport sys\nprint(sys.path[0])\nsys.exit(7)"
    )
    with launcher(tmp_path) as ranks:
        ranks.start(0)
        end = ranks.next_end()
    assert (end.exit_code, end.last_lines(1)) == (7, [str(tmp_path)])


@pytest.mark.torch
def test_what_is_the_same_for_all_ranks_is_imported_once(tmp_path, monkeypatch):
    """Also where it changes where the modules after it are found."""
    for folder in ("vendor", "more"):
        (tmp_path / folder).mkdir()
    for path, text in {
        "arguments.py": f"{COUNTED}\nfrom sys import argv",
        "paths.py": f"{COUNTED}\nimport sys\nsys.path.insert(0, 'vendor')\nsys.path.append('more')",
        "rich.py": "raise RuntimeError('hidden')",
        "vendor/rich.py": f"{COUNTED}\nown = True\nprint('once')",
        "more/added.py": COUNTED,
        "lazy.py": f"{COUNTED}\ndef __getattr__(name):\n    raise RuntimeError(name)",
        "pinned.py": f"{COUNTED}\nimport torch\nmine = torch.ones(4, pin_memory=True)",
        "train.py": "import arguments, paths, rich, added, lazy, pinned\nimport os, sys, torch\n"
        "assert rich.own and arguments.argv[1:] == ['--flag']\n"
        "torch.cuda.set_device(5)\n"
        "assert pinned.mine.is_pinned() and pinned.mine.cuda().cpu().tolist() == [1.0] * 4\n"
        "print(os.getpid(), sys.path[0], sys.path[-1], sys.path.count(os.getcwd()))\nsys.exit(7)",
    }.items():
        (tmp_path / path).write_text(text)
    with launcher(tmp_path) as ranks:
        ranks.start(0)
        end = ranks.next_end()
    assert end.exit_code == 7, end.output
    process, *paths = end.output.split()
    assert paths == ["vendor", "more", "1"]
    logs = sorted(tmp_path.rglob("*.log"))
    imported = ["added", "arguments", "lazy", "paths", "pinned", "rich"]
    assert sorted(log.stem for log in logs) == imported
    assert not any(process in log.read_text().split() for log in logs)


@pytest.mark.torch
def test_after_a_module_that_a_rank_must_import_nothing_is_taken_from_where_it_may_not_lie(tmp_path):
    (tmp_path / "vendor").mkdir()
    (tmp_path / "vendor" / "rich.py").write_text("own = True")
    (tmp_path / "paths.py").write_text("import os, sys\nos.getenv('RANK')\nsys.path.insert(0, 'vendor')")
    (tmp_path / "train.py").write_text("import paths\nimport rich, sys\nassert rich.own\nsys.exit(7)")
    with launcher(tmp_path) as ranks:
        ranks.start(0)
        assert ranks.next_end().exit_code == 7


@pytest.mark.torch
def test_nothing_runs_on_where_collection_ends_during_an_import(tmp_path, monkeypatch):
    (tmp_path / "slow.py").write_text(
        "import pathlib, subprocess\n"
        "with subprocess.Popen(['sleep', '600']) as child:\n"
        "    pathlib.Path('child').write_text(str(child.pid))"
    )
    (tmp_path / "train.py").write_text("import slow")
    child = tmp_path / "child"

    def interrupted() -> None:
        if child.exists() and child.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr("prismcore.interrupts.check", interrupted)
    with pytest.raises(KeyboardInterrupt), launcher(tmp_path):
        pass
    assert descendants(os.getpid()) == set()
    assert not Path("/proc", child.read_text()).exists()


@pytest.mark.torch
def test_an_import_that_does_not_end_is_left_to_the_ranks(tmp_path, monkeypatch):
    (tmp_path / "endless.py").write_text("import os, time\nif 'RANK' not in os.environ: time.sleep(600)")
    (tmp_path / "later.py").write_text("")
    monkeypatch.setattr(scout, "TIMEOUT_S", 1.0)
    monkeypatch.syspath_prepend(str(tmp_path))
    began = time.monotonic()
    scout.import_for_all_ranks(["endless", "endless.name", "later", "wave"])
    assert time.monotonic() - began < 30  # one wait
    assert {"endless", "later"}.isdisjoint(sys.modules)
    assert "wave" in sys.modules  # installed ones go on
    assert descendants(os.getpid()) == set()


def test_a_program_is_a_script_or_a_module(tmp_path):
    (tmp_path / "train.py").write_text("pass")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "__main__.py").write_text("")
    script = find_program(["train.py", "--a", "-m"], tmp_path)
    assert (script.path, script.module, script.arguments) == (tmp_path / "train.py", None, ["--a", "-m"])
    module = find_program(["-m", "package", "x"], tmp_path)
    assert (module.path, module.module) == (tmp_path / "package" / "__main__.py", "package")
    assert module.arguments == ["x"]


def test_names_are_found_however_they_are_spelled():
    for source in ("prismcore.mark_iteration()", "from prismcore import mark_iteration", "mark_iteration()"):
        assert mentions(source, "mark_iteration")
    assert not mentions("# mark_iteration", "mark_iteration")


@pytest.mark.torch
@pytest.mark.parametrize("body", ["raise ValueError('no luck')", "raise SystemExit('no luck')"])
def test_preload_of_a_module_that_fails_is_one_line(folder, monkeypatch, body):
    (folder / "unlucky.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    with pytest.raises(CollectError, match=r"^--preload unlucky: .*no luck$"):
        launcher(folder, preload=["unlucky"]).__enter__()


@pytest.mark.parametrize("source", ["x = " + "-" * 100_000 + "1", "x\0y"])
def test_what_python_cannot_parse_has_no_imports(source):
    assert top_level_imports(source) == []
    assert not mentions(source, "x")


@pytest.mark.torch
@pytest.mark.parametrize(
    ("code", "status"), [(3, 3), (255, 255), (-1, 255), (259, 3), (2**70, 255), ("no luck", 1)]
)
def test_any_exit_code_becomes_one_that_a_process_can_have(code, status):
    from prismcore.launch.rank import _exit_status

    assert _exit_status(code) == status
