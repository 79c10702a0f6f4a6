"""Processes that never outlive who started them (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from collections.abc import Callable

from prismcore.errors import CollectError

__all__ = [
    "STOP_SIGNAL",
    "adopt_orphans",
    "children",
    "die_with_parent",
    "end_processes",
    "fork",
    "is_stopped",
    "kill_group",
    "signal_name",
    "stop",
]

STOP_SIGNAL = signal.SIGRTMIN + 6
"""Tells a rank to leave its record as it is now: a signal that no training program is known to use."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def die_with_parent(parent_pid: int) -> None:
    """The kernel ends this process when its parent ends, however that happens."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it ended before the call
        os._exit(1)


def adopt_orphans() -> None:
    """What descendants of this process leave behind, daemons too, becomes its child from now on."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children() -> set[int]:
    """Of this process; none where the kernel does not tell."""
    found: set[int] = set()
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/children") as listed:
            found.update(map(int, listed.read().split()))
    return found


def is_stopped(pid: int) -> bool:
    """A signal or a debugger has stopped the process; False where it is gone or not known (0)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as status:
            return status.read().rpartition(")")[2].split()[0] in ("T", "t")
    except (OSError, IndexError):
        return False


def end_processes(look: Callable[[], set[int]]) -> None:
    """Ends children that ``look`` finds until it finds no more: those of one that ends are adopted."""
    while found := look():
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def fork(what: str) -> int:
    """``os.fork``. Raises CollectError, which names ``what`` and what the system allows."""
    try:
        return os.fork()
    except OSError as error:
        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        allowed = "any number" if limit == resource.RLIM_INFINITY else f"{limit:,}"
        raise CollectError(
            f"{what} cannot be started: {error.strerror or error}; expected room for another process: "
            f"ulimit -u allows this user {allowed}, and a container or memory may allow fewer; run fewer at "
            "a time"
        ) from error


def kill_group(leader: int, *, leader_lives: bool) -> None:
    """Ends what a process that leads a group started in turn and, if it lives, the process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    if leader_lives:  # it may not lead its group yet
        with contextlib.suppress(ProcessLookupError):
            os.kill(leader, signal.SIGKILL)


def signal_name(number: int) -> str:
    """``SIGKILL`` for 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def stop(rank_process: int) -> None:
    """Asks a rank to end with what it has recorded; one that has not begun to record just ends."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(rank_process, STOP_SIGNAL)
