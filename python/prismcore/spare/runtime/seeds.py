"""Random numbers that belong to a micro-batch, not to a rank."""

from __future__ import annotations

import functools
import hashlib
import struct

import torch

from prismcore.spare.runtime.work import Work

__all__ = ["seed_for", "seed_torch"]


def seed_for(seed: int, work: Work) -> int:
    """63 bits, the same on every machine: whoever computes the work draws the same dropout masks."""
    data = struct.pack("<4q", seed, *work)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1


def seed_torch(seed: int) -> None:
    """torch.manual_seed(), which on a machine without an accelerator spends most of its time on that."""
    if _has_accelerator():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


@functools.cache
def _has_accelerator() -> bool:
    return bool(torch.accelerator.is_available())
