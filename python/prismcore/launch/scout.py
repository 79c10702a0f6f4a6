"""Imports once, in the warm parent, the modules of a program that any rank may have imported.

Installed packages are trusted. A program's own modules may do at import what only a rank may do. So each
is imported first in a *scout*, a process forked for that and watched (:mod:`prismcore.launch.watch`): what
did nothing of a rank there is imported in the parent, the rest is left to the ranks.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import select
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NoReturn

from prismcore.launch.modules import is_installed, is_loaded
from prismcore.launch.processes import (
    adopt_orphans,
    children,
    die_with_parent,
    end_processes,
    fork,
    kill_group,
)
from prismcore.launch.watch import Watch

__all__ = ["import_for_all_ranks"]

TIMEOUT_S = 60.0
"""One import of a program's own module may take so long in the scout."""

_FINE, _HIDES = b".", b"!"


class _End(Enum):
    LEFT_OUT = "a module is left to the ranks"
    HIDES = "and what is imported after it may come from elsewhere"
    SLOW = "an import takes too long"


def import_for_all_ranks(
    names: Sequence[str], hang_up: int | None = None, tell: Callable[[str], None] = lambda name: None
) -> list[str]:
    """Imports in order, but for own modules that do what only a rank may do, keep something running, or fail.
    Gives those among them whose import took too long.

    ``hang_up``: a descriptor that becomes readable when nobody needs the result; then SystemExit.
    ``tell`` is called with what is being imported.

    Raises CollectError where the system allows no process to try them in.
    """
    left = list(names)
    slow: list[str] = []
    while left:
        if is_installed(left[0]):
            tell(left[0])
            _import(left.pop(0))
            continue
        own = list(itertools.takewhile(lambda name: not is_installed(name), left))
        fine, end = _scout(own, hang_up, tell)
        for name in own[:fine]:
            tell(name)
            _import(name)
        del left[:fine]
        if fine == len(own):
            continue
        if end is _End.HIDES:
            return slow
        if end is _End.SLOW:  # others may build on it, and take as long
            slow.append(left[0])
            left = [name for name in left if is_installed(name)]
            continue
        # What comes after is tried anew in another scout.
        unfit = left.pop(0) + "."
        left = [name for name in left if not name.startswith(unfit)]
    return slow


def _import(name: str) -> None:
    # What fails is not told twice: the ranks import it again, and say so.
    with contextlib.suppress(Exception, SystemExit):
        if not is_loaded(name):
            importlib.import_module(name)


def _scout(names: Sequence[str], hang_up: int | None, tell: Callable[[str], None]) -> tuple[int, _End]:
    """How many of the names, from the first on, may be imported, and what is with the one after these."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    read_end, write_end = os.pipe()
    parent_pid, others = os.getpid(), children()
    pid = fork(f"a process that tries to import {names[0]}")
    if pid == 0:
        try:
            os.setsid()
            die_with_parent(parent_pid)
            os.close(read_end)
            _try_all(names, write_end)
        finally:
            os._exit(0)
    os.close(write_end)
    process = os.pidfd_open(pid)  # what it started may hold the pipe open for longer
    try:
        return _listen(names, read_end, process, hang_up, tell)
    finally:
        os.close(process)
        os.close(read_end)
        kill_group(pid, leader_lives=True)
        os.waitpid(pid, 0)
        end_processes(lambda: children() - others)


def _listen(
    names: Sequence[str], read_end: int, process: int, hang_up: int | None, tell: Callable[[str], None]
) -> tuple[int, _End]:
    watched = [read_end, process, *([] if hang_up is None else [hang_up])]
    fine, end = 0, _End.LEFT_OUT
    while True:
        if fine < len(names):
            tell(names[fine])
        ready, _, _ = select.select(watched, [], [], TIMEOUT_S)
        if not ready:
            return fine, _End.SLOW
        if hang_up in ready:
            raise SystemExit(0)
        told = os.read(read_end, 4096) if read_end in ready else b""
        if not told:
            return fine, end
        fine += told.count(_FINE)
        if _HIDES in told:
            end = _End.HIDES


def _try_all(names: Sequence[str], report: int) -> NoReturn:
    adopt_orphans()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)  # what is fine is imported, and printed, again
    watch = Watch()
    for name in names:
        failed = True
        with contextlib.suppress(BaseException):
            if not is_loaded(name):
                importlib.import_module(name)
            failed = False
        if failed or watch.found():
            if watch.hides():
                os.write(report, _HIDES)
            break
        os.write(report, _FINE)
    os._exit(0)
