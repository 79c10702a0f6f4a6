"""What has an end while ranks are prepared, and when the process that prepares them does not answer."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rank_launcher import descendants, is_running, launcher

from prismcore.errors import CollectError, RankFailedError
from prismcore.launch import launcher as module
from prismcore.launch.failures import failure_of

HANGS = "import time\ntime.sleep(600)\n"


@pytest.mark.torch
@pytest.mark.parametrize(
    ("program", "options", "doing"),
    [
        ("import slow", {}, "importing slow"),
        ("import json", {"preload": ["slow"]}, r"importing slow \(--preload\)"),
        ("import json", {"rules": Path("slow.py")}, r"running the rules .*slow\.py"),
    ],
)
def test_what_hangs_before_ranks_start_is_named(tmp_path: Path, program, options, doing) -> None:
    before = descendants(os.getpid())
    (tmp_path / "slow.py").write_text(HANGS)
    (tmp_path / "train.py").write_text(program)
    told = rf"{doing} has not ended within 3 s, .*or allow more \(--silence\)"
    with (
        pytest.raises(CollectError, match=told),
        launcher(tmp_path, step_timeout_s=3.0, longer="--silence", **options),
    ):
        pass
    assert descendants(os.getpid()) <= before


@pytest.mark.torch
def test_a_stopped_process_before_ranks_start(tmp_path: Path) -> None:
    before = descendants(os.getpid())
    (tmp_path / "slow.py").write_text("import os\nos.kill(os.getppid(), 19)\n" + HANGS)  # of a scout
    (tmp_path / "train.py").write_text("import slow")
    told = "importing slow has not ended within 3 s.*: a signal or a debugger has stopped the process"
    with pytest.raises(CollectError, match=told), launcher(tmp_path, step_timeout_s=3.0):
        pass
    assert descendants(os.getpid()) <= before


@pytest.mark.torch
def test_a_stopped_process_ends_no_rank(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "_ANSWER_S", 2.0)
    before = descendants(os.getpid())
    (tmp_path / "train.py").write_text("import os\nos.kill(os.getppid(), 19)\nimport time\ntime.sleep(600)\n")
    with launcher(tmp_path, rank_timeout_s=5.0) as ranks:
        ranks.start(0)
        with pytest.raises(CollectError, match=r"rank 0 has not ended within 5 s .* is it stopped\?"):
            ranks.next_end()
    assert descendants(os.getpid()) <= before


@pytest.mark.torch
def test_a_killed_process_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nos.kill(os.getppid(), 9)\nimport time\ntime.sleep(600)\n")
    with launcher(tmp_path) as ranks:
        ranks.start(0)
        with pytest.raises(CollectError) as caught:
            ranks.next_end()
    assert str(caught.value) == "the process that prepares the ranks was killed by SIGKILL: it wrote nothing"


@pytest.mark.torch
def test_an_error_without_a_text(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "class Odd(Exception):\n    def __str__(self):\n        raise RuntimeError\nraise Odd\n"
    )
    with launcher(tmp_path) as ranks:
        ranks.start(0)
        end = ranks.next_end()
    error = failure_of(end, world_size=16, timeout_s=20)
    assert isinstance(error, RankFailedError)
    assert end.exit_code == 1
    assert "prismcore" not in str(error), error


MANY = """
import ctypes, os, resource, signal, sys, threading, time
from pathlib import Path
from prismcore.launch.processes import children
from rank_launcher import launcher

class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

class Data(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32 * 3) for name in ("low", "high")]

# Who may allow himself more is not limited.
libc = ctypes.CDLL(None, use_errno=True)
header, data = Header(0x20080522, 0), Data()
assert libc.capget(ctypes.byref(header), ctypes.byref(data)) == 0
data.low[0] &= ~(1 << 21 | 1 << 24)  # CAP_SYS_ADMIN, CAP_SYS_RESOURCE
assert libc.capset(ctypes.byref(header), ctypes.byref(data)) == 0

most = 0
with launcher(Path(sys.argv[1]), world_size=64, command=["train.py"]) as ranks:
    ranks.give({})
    (parent,) = children()

    def start(some, limit):
        global most
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 4096))
        os.kill(parent, signal.SIGSTOP)
        threading.Timer(1, os.kill, (parent, signal.SIGCONT)).start()
        for rank in some:
            ranks.start(rank)
            most = max(most, sum(run.process == 0 for run in ranks._running.values()))

    start(range(24), 66)  # three descriptors each are on their way, and two are open
    start(range(24, 64), 4096)
    codes = {ranks.next_end().exit_code for _ in range(64)}
print(most, codes)
"""


@pytest.mark.torch
def test_many_ranks_are_asked_for_as_descriptors_may_be_on_their_way(tmp_path: Path) -> None:
    """Of ordinary users; and some at a time, since others of the same user may have some too."""
    (tmp_path / "train.py").write_text("import os\nos._exit(3)\n")
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.stdout == "32 {3}\n", done.stdout + done.stderr


FORK_FAILS = """
import errno, os
def fork():
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
os.fork = fork
"""


@pytest.mark.torch
@pytest.mark.parametrize(
    ("program", "what"),
    [("pass", r"rank 0 \(beside 0 others\)"), ("import own", "a process that tries to import own")],
)
def test_a_process_that_the_system_does_not_allow(tmp_path: Path, monkeypatch, program, what) -> None:
    (tmp_path / "no_fork.py").write_text(FORK_FAILS)
    (tmp_path / "own.py").write_text("")
    (tmp_path / "train.py").write_text(program)
    told = (
        rf"^{what} cannot be started: Resource temporarily unavailable; .*ulimit -u .* run fewer at a time$"
    )

    def collect() -> None:
        with launcher(tmp_path, preload=["no_fork"]) as ranks:
            ranks.start(0)
            ranks.next_end()

    with pytest.raises(CollectError, match=told):
        collect()


PAUSED = """
import sys
from pathlib import Path
from rank_launcher import launcher

with launcher(Path(sys.argv[1]), command=["train.py"], rank_timeout_s=3) as ranks:
    ranks.start(0)
    end = ranks.next_end()
print(end.exit_code, end.timed_out, len(end.output))
"""


@pytest.mark.torch
def test_time_in_which_a_collector_is_stopped_is_no_time_of_its_ranks(tmp_path: Path) -> None:
    """As at Ctrl-Z; one of them cannot even write on."""
    (tmp_path / "train.py").write_text(
        "import os, time\nopen('up', 'w').close()\nwhile not os.path.exists('go'):\n    time.sleep(0.01)\n"
        "print('x' * (4 << 20), flush=True)\nos._exit(3)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        [sys.executable, "-c", PAUSED, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    ) as collector:
        try:
            while not (tmp_path / "up").exists():
                assert collector.poll() is None
                time.sleep(0.01)
            collector.send_signal(signal.SIGSTOP)
            (tmp_path / "go").touch()
            time.sleep(5)
            collector.send_signal(signal.SIGCONT)
            assert collector.communicate(timeout=240)[0] == f"3 False {64 << 10}\n"
        finally:
            collector.kill()


@pytest.mark.torch
def test_all_that_have_ended_are_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nos._exit(3)\n")
    with launcher(tmp_path) as ranks:
        for rank in range(5):
            ranks.start(rank)
        ranks._await_forks(0)
        processes = [running.process for running in ranks._running.values()]
        while any(map(is_running, processes)):
            time.sleep(0.01)
        (parent,) = (pid for pid in descendants(os.getpid()) if pid == ranks._process.pid)
        while descendants(parent):  # not told yet
            time.sleep(0.01)
        time.sleep(0.2)
        ended = {end.rank for end in ranks.ends()}
    assert ended == set(range(5))


@pytest.mark.torch
def test_what_takes_too_long_to_import_for_all_is_named_where_a_rank_hangs(tmp_path: Path) -> None:
    (tmp_path / "hasty.py").write_text("import prismcore.launch.scout as scout\nscout.TIMEOUT_S = 0.5\n")
    (tmp_path / "slow.py").write_text(HANGS)
    (tmp_path / "train.py").write_text("import json, slow")
    with launcher(tmp_path, preload=["hasty"], rank_timeout_s=2.0) as ranks:
        assert ranks.slow_imports == ["slow"]
        ranks.start(0)
        error = failure_of(ranks.next_end(), world_size=16, timeout_s=2.0)
    assert str(error) == (
        "rank 0 was ended after 2 s (limit of a rank); importing slow took too long to do it once for all "
        "ranks, so each rank imports it itself: it wrote nothing"
    )


def open_files() -> set[str]:
    return {fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}


@pytest.mark.torch
def test_no_file_stays_open(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os\nprint('told', flush=True)\nos._exit(3)\n")
    before = len(open_files())
    told: list[str] = []
    with launcher(tmp_path, tell_output=told.append) as ranks:
        ranks.start(0)
        assert ranks.next_end().exit_code == 3
    assert len(open_files()) == before


LIMITED = """
import resource
from prismcore.launch.addresses import allow_addresses
resource.setrlimit(resource.RLIMIT_AS, ({soft}, {hard}))
try:
    allow_addresses()
except Exception as error:
    print(type(error).__name__, error)
print(resource.getrlimit(resource.RLIMIT_AS)[0])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "told"),
    [
        (2 << 30, 4 << 30, "CollectError this host allows a process 4,096 MiB of addresses (ulimit -v)"),
        (2 << 30, 200 << 30, f"{200 << 30}"),
        (2 << 30, resource.RLIM_INFINITY, f"{resource.RLIM_INFINITY}"),
    ],
)
def test_addresses(soft: int, hard: int, told: str) -> None:
    """The first limit is lifted, the second is the system's."""
    program = LIMITED.format(soft=soft, hard=hard)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith(told), done.stdout + done.stderr
