"""Imports in the warm parent: once for all ranks, and as if each rank had done them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from rank_launcher import descendants, failure, launcher

from prismcore.launch import scout

IMPORTED_ONCE = """
import counted
import {modules}
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
        "mine = os.path.join(os.path.dirname(__file__), 'daemons'); pid = os.fork()\n"
        "if pid == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        open(mine, 'a').write(f'{os.getpid()}\\n'); os.execvp('sleep', ['sleep', '60'])\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)",
        "mine",
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
def test_what_is_imported_in_the_parent_is_as_if_the_rank_had(tmp_path, monkeypatch):
    """`counted` and `dist_user` are imported twice for all ranks (watched, then in the parent), what only a
    rank may do in each of them."""
    packages = tmp_path / "packages"
    packages.mkdir()
    uses = "import argparse, multiprocessing, os, random, signal, subprocess, sys, threading, time, torch\n"
    modules = {
        module: f"{uses}{COUNTED}\n{body}\ndef check(rank):\n    assert {check}, (__name__, mine)\n"
        for module, (body, check) in OF_A_RANK.items()
    }
    helper = "import os\nmine = os.environ.get('LOCAL_RANK')"
    for name, text in {"counted": COUNTED, "dist_user": DIST_USER, "helper": helper, **modules}.items():
        (packages / f"{name}.py").write_text(text)
    checks = "\n".join(f"{module}.check(rank)" for module in modules)
    (tmp_path / "train.py").write_text(IMPORTED_ONCE.format(modules=", ".join(modules)) + checks)
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
    for module in modules:
        assert processes <= set((packages / f"{module}.log").read_text().split()), module
    daemons = (packages / "daemons").read_text().split()
    assert len(daemons) >= 2  # one a rank, if not of the scout
    assert not any(Path("/proc", daemon).exists() for daemon in daemons)


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
    before = descendants(os.getpid())  # of tests that ran here earlier
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
    assert descendants(os.getpid()) <= before
    assert not Path("/proc", child.read_text()).exists()


@pytest.mark.torch
def test_an_import_that_does_not_end_is_left_to_the_ranks(tmp_path, monkeypatch):
    before = descendants(os.getpid())  # of tests that ran here earlier
    (tmp_path / "endless.py").write_text("import os, time\nif 'RANK' not in os.environ: time.sleep(600)")
    (tmp_path / "later.py").write_text("")
    monkeypatch.setattr(scout, "TIMEOUT_S", 1.0)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert scout.import_for_all_ranks(["endless", "endless.name", "later", "wave"]) == ["endless"]
    assert {"endless", "later"}.isdisjoint(sys.modules)
    assert "wave" in sys.modules  # installed ones go on
    assert descendants(os.getpid()) <= before
