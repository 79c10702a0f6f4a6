"""What has an end while ranks are prepared, and when the process that prepares them does not answer."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rank_launcher import descendants, launcher

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
    began = time.monotonic()
    told = rf"{doing} has not ended within 3 s, .*or allow more \(--silence\)"
    with (
        pytest.raises(CollectError, match=told),
        launcher(tmp_path, step_timeout_s=3.0, longer="--silence", **options),
    ):
        pass
    assert time.monotonic() - began < 120
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
