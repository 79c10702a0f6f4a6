"""Which modules that are not installed may be imported once, in the warm parent, for all ranks.

A training program's own modules may do at import what only a rank may do. So each is imported first in
a *scout*, a process forked for that and watched: what looked at nothing of a rank there is imported in
the parent, the rest is left to the ranks.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, NoReturn

from prismcore.launch.environment import rank_environment
from prismcore.launch.modules import is_loaded, is_shared_code
from prismcore.launch.processes import die_with_parent, kill_group

__all__ = ["import_for_all_ranks"]

TIMEOUT_S = 60.0
"""One import of a program's own module may take so long in the scout."""

_OF_A_RANK = frozenset(rank_environment(0, 1, 1))


def import_for_all_ranks(names: Sequence[str]) -> None:
    """Imports, in order, those that look at nothing of a rank, keep nothing running, and do not fail."""
    left = list(names)
    while left:
        # What comes after one that is left out is tried anew: it may build on it.
        clean = _scout(left)
        for name in left[:clean]:
            if not is_loaded(name):
                with contextlib.suppress(Exception, SystemExit):  # not twice: the ranks will say so
                    importlib.import_module(name)
        left = left[clean + 1 :]


def _scout(names: Sequence[str]) -> int:
    """How many of the names, from the first on, may be imported."""
    read_end, write_end = os.pipe()
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            die_with_parent(parent_pid)
            os.close(read_end)
            _try_all(names, write_end)
        finally:
            os._exit(0)
    os.close(write_end)
    clean, deadline = 0, time.monotonic() + TIMEOUT_S
    while True:
        ready, _, _ = select.select([read_end], [], [], max(deadline - time.monotonic(), 0))
        told = os.read(read_end, 4096) if ready else b""
        if not told:  # it came to its end, or takes too long
            break
        clean, deadline = clean + len(told), time.monotonic() + TIMEOUT_S
    os.close(read_end)
    kill_group(pid, leader_lives=True)
    os.waitpid(pid, 0)
    return clean


def _try_all(names: Sequence[str], report: int) -> NoReturn:
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)  # the parent, or the ranks, say it again
    watch = _Watch()
    threads = threading.active_count()
    for name in names:
        before = set(sys.modules)
        if not is_loaded(name):
            importlib.import_module(name)  # an exception ends the scout
        modules = [sys.modules[module] for module in set(sys.modules) - before]
        if watch.seen or threading.active_count() > threads or _keeps_something(modules):
            break
        os.write(report, b".")
    os._exit(0)


class _Watch:
    """Notes reads of a rank's environment and arguments by code that is not installed."""

    def __init__(self) -> None:
        self.seen = False
        watch = self

        class Environment(os._Environ):  # type: ignore[type-arg]
            def __getitem__(self, key: Any) -> Any:
                if key in _OF_A_RANK:
                    watch.note()
                return super().__getitem__(key)

            def __iter__(self) -> Iterator[Any]:
                watch.note()  # a copy, to be looked at later
                return super().__iter__()

        class Arguments(list):  # type: ignore[type-arg]
            def __getitem__(self, index: Any) -> Any:
                watch.note()
                return super().__getitem__(index)

            def __iter__(self) -> Iterator[Any]:
                watch.note()
                return super().__iter__()

            def __len__(self) -> int:
                watch.note()
                return super().__len__()

        os.environ.__class__ = Environment
        sys.argv = Arguments(sys.argv)

    def note(self) -> None:
        """Counts where a module that is not installed, or what it calls while it is imported, looks."""
        frame = sys._getframe(2)
        while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
            if not is_shared_code(frame.f_code.co_filename):
                self.seen = True
            frame = frame.f_back  # type: ignore[assignment]


def _keeps_something(modules: list[ModuleType]) -> bool:
    """What a fork would share wrongly, or not take along."""
    import torch

    if torch.cuda.is_initialized():
        return True
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return True
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        return True  # a process of its own
    # By value: a rank has another list of arguments.
    return any(value is sys.argv for module in modules for value in vars(module).values())
