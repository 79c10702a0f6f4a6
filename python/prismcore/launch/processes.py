"""Processes that never outlive who started them (Linux)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal

__all__ = ["STOP_SIGNAL", "die_with_parent", "kill_group", "stop"]

STOP_SIGNAL = signal.SIGRTMIN + 6
"""Tells a rank to leave its record as it is now: a signal that no training program is known to use."""

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent_pid: int) -> None:
    """The kernel ends this process when its parent ends, however that happens."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent_pid:  # it ended before the call
        os._exit(1)


def kill_group(leader: int, *, leader_lives: bool) -> None:
    """Ends what a process that leads a group started in turn and, if it lives, the process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    if leader_lives:  # it may not lead its group yet
        with contextlib.suppress(ProcessLookupError):
            os.kill(leader, signal.SIGKILL)


def stop(rank_process: int) -> None:
    """Asks a rank to end with what it has recorded; one that has not begun to record just ends."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(rank_process, STOP_SIGNAL)
