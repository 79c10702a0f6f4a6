"""How many files a process may hold open."""

from __future__ import annotations

import os
import resource

from prismcore.errors import EmulateError

__all__ = ["allow_descriptors"]

_OTHERS = 64
"""Of the command itself, with some to spare: graph, ports, the warm parent, what a signal needs."""


def allow_descriptors(count: int) -> None:
    """Makes room for `count` more open files of this process, up to what the system allows it.

    Raises EmulateError where that is less.
    """
    needed = len(os.listdir("/proc/self/fd")) + count + _OTHERS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise EmulateError(
            f"{hard} open files are allowed, expected {needed} for these sandbox ranks, two each; allow more "
            "(ulimit -Hn), or choose fewer ranks (--sandbox)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
