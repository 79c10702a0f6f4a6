"""torchft's lighthouse in a process of its own, for benchmarks and tests of the SPARe runtime."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

__all__ = ["HOST", "Lighthouse"]

HOST = "127.0.0.1"
_PROGRAM = Path(sys.executable).parent / "torchft_lighthouse"
_START_S = 60.0
_LISTENS = re.compile(rb"listening on: http://\S+?:(\d+)")
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG; it outlives exec
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Run in the child, not between fork and exec: other threads of this process may hold locks then."""


class Lighthouse:
    """Runs until :meth:`end`, or until the thread that began it is gone, however that ends.

    Args:
        flags: of torchft_lighthouse; min_replicas is 1 where nothing else is said.

    Raises:
        RuntimeError: it did not start.
    """

    def __init__(self, **flags: int) -> None:
        self._flags = [f"--{name}={value}" for name, value in ({"min_replicas": 1} | flags).items()]
        self.port = 0
        self.process: Any = None
        self.begin()

    def begin(self) -> None:
        """After :meth:`end`: a new one, which knows nothing, at the same port."""
        program = [str(_PROGRAM), f"--bind={HOST}:{self.port}", *self._flags]
        with tempfile.TemporaryFile("w+b") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *program],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this process, which ends it
                env=os.environ | {"RUST_BACKTRACE": "0"},
            )
            until = time.monotonic() + _START_S
            while not (found := _LISTENS.search(text := os.pread(log.fileno(), 1 << 16, 0))):
                if self.process.poll() is not None or time.monotonic() > until:
                    self.end()
                    raise RuntimeError(f"torchft_lighthouse did not start: {text.decode()[-500:]}")
                time.sleep(0.02)
        self.port = int(found[1])

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.port}"

    def cpu_s(self) -> float:
        """Processor time so far."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def end(self) -> None:
        """Idempotent."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Lighthouse:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
