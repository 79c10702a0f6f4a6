"""What modules do while they are imported that the warm parent cannot do once for all ranks."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

from prismcore.launch.environment import rank_environment
from prismcore.launch.modules import is_shared_code

__all__ = ["Watch"]

_OF_A_RANK = frozenset(rank_environment(0, 1, 1)) | {os.fsencode(key) for key in rank_environment(0, 1, 1)}
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_NOT_WATCHED = {"__new__", "__init__", "__getattribute__", "__class_getitem__", "__sizeof__"}


class Watch:
    """Of this process from now on. Changes ``os.environ`` and ``sys.argv``: for a process that ends soon."""

    def __init__(self) -> None:
        self._noted = False
        _watch_environment(self._note)
        sys.argv = _watched_list(self._note)(sys.argv)
        self._held = _held()
        self._settings = _settings()
        self._searched = _searched()

    def found(self) -> bool:
        """Whether something was done since that only a rank may do, or is held that forks would share
        wrongly or not get."""
        import torch

        return (
            self._noted
            or torch.cuda.is_initialized()
            or (torch.distributed.is_available() and torch.distributed.is_initialized())
            or _has_children()
            or not _held() <= self._held
            or _settings() != self._settings
        )

    def hides(self) -> bool:
        """Whether modules may be found elsewhere than before; what is added at the end hides nothing."""
        return any(
            now[: len(before)] != before for now, before in zip(_searched(), self._searched, strict=True)
        )

    def _note(self) -> None:
        """Counts where a module that is not installed, or what it calls while it is imported, looks."""
        frame = sys._getframe(2)
        while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
            if not is_shared_code(frame.f_code.co_filename):
                self._noted = True
            frame = frame.f_back  # type: ignore[assignment]


def _watch_environment(note: Callable[[], None]) -> None:
    base = type(os.environ)

    class Environment(base):  # type: ignore[misc, valid-type]
        def __getitem__(self, key: Any) -> Any:
            if key in _OF_A_RANK:
                note()
            return super().__getitem__(key)

        def __setitem__(self, key: Any, value: Any) -> None:
            if key in _OF_A_RANK:
                note()  # in a rank it would hold
            super().__setitem__(key, value)

        def __delitem__(self, key: Any) -> None:
            if key in _OF_A_RANK:
                note()
            super().__delitem__(key)

        def __iter__(self) -> Any:
            note()  # a copy, to be looked at later
            return super().__iter__()

    os.environ.__class__ = os.environb.__class__ = Environment


def _watched_list(note: Callable[[], None]) -> type[list[str]]:
    """A list of which every use is noted; a reference alone is not: a rank fills the same list."""

    def noting(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            note()
            return method(*args, **kwargs)

        return call

    methods = {
        name: noting(method)
        for name, method in vars(list).items()
        if callable(method) and name not in _NOT_WATCHED
    }
    return type("Arguments", (list,), methods)


def _has_children() -> bool:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        return True
    return False


def _held() -> set[tuple[str, ...]]:
    """Threads, those without Python among them; open files; memory that is shared with forks."""
    held: set[tuple[str, ...]] = {("thread", thread) for thread in os.listdir("/proc/self/task")}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing
            held.add(("file", fd, os.readlink(f"/proc/self/fd/{fd}")))
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            place, access, *_ = line.split()
            if access[1] == "w" and access[3] == "s":
                held.add(("memory", place))
    return held


def _settings() -> list[object]:
    """What the parent or a rank has set otherwise. (Random numbers of Python start anew in a fork.)"""
    return [
        *(id(own) for own in (sys.stdin, sys.stdout, sys.stderr, sys.argv, os.environ)),
        os.getcwd(),
        random.getstate(),
        [signal.getsignal(number) for number in signal.valid_signals()],
        [signal.getitimer(timer) for timer in _TIMERS],
    ]


def _searched() -> list[list[object]]:
    """In this order modules are looked for."""
    return [list(sys.path), [id(finder) for finder in sys.meta_path], [id(hook) for hook in sys.path_hooks]]
