"""The ranks that run beside this one in an emulation, and bytes between their hosts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from prismcore import _core

__all__ = ["has_come", "leave", "runs", "take"]

_kept: dict[tuple[int, str], bytes] = {}
"""What has come and was not taken."""


def runs(rank: int) -> bool:
    """Whether a rank of the world, which may be this one, runs; False in a collection."""
    return _core.vgpu_runs(rank)


def leave(ranks: Iterable[int], key: str, data: bytes) -> None:
    """For other ranks that run to take; never waits. ``key`` is used once between two ranks."""
    for rank in ranks:
        _core.vgpu_leave(rank, *_numbers(key), data)


def take(rank: int, key: str) -> bytes:
    """What ``rank`` left or will leave under ``key``. The emulation ends this process where that rank
    ends without it."""
    if (rank, key) in _kept:
        return _kept.pop((rank, key))
    numbers = _numbers(key)
    while True:
        data = _core.vgpu_take(rank, *numbers)
        if data is not None:
            return data


def has_come(rank: int, key: str) -> bool:
    """Whether :func:`take` would not wait; what has come is kept for it."""
    if (rank, key) not in _kept:
        data = _core.vgpu_take(rank, *_numbers(key), waits=False)
        if data is None:
            return False
        _kept[rank, key] = data
    return True


def _numbers(key: str) -> tuple[int, int]:
    digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
