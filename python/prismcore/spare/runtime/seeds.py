"""Random numbers that belong to a micro-batch, not to a rank."""

from __future__ import annotations

import hashlib
import struct

from prismcore.spare.runtime.work import Work

__all__ = ["seed_for"]


def seed_for(seed: int, work: Work) -> int:
    """63 bits, the same on every machine: whoever computes the work draws the same dropout masks."""
    data = struct.pack("<4q", seed, *work)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1
