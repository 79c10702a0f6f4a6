"""The ghost store: torch's rendezvous store for a rank whose peers do not run.

Initialisation needs the store for two things: the unique id of each NCCL communicator, which one
member publishes and the others read, and barriers that count. Here a key that nobody set is
answered with 128 bytes that carry the key's identity, so that a communicator can be traced back to
the key it was made under (two-rank communicators of unbatched send and receive are known by nothing
else), and a count of arrivals is answered as if everybody had arrived.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch.distributed as dist

from prismcore.errors import CollectError

__all__ = ["GhostStore", "pair_of_key"]

UNIQUE_ID_BYTES = 128
# ProcessGroupNCCL.cpp: a communicator for one pair of ranks is kept under "<low>:<high>".
_PAIR = re.compile(r"(?:^|//|/)(\d+):(\d+)$")


def pair_of_key(key: str) -> tuple[int, int] | None:
    """Positions (low, high) of the pair that a store key stands for; None for other keys."""
    found = _PAIR.search(key)
    return (int(found[1]), int(found[2])) if found else None


class GhostStore(dist.Store):  # type: ignore[misc]
    """A store of one process that answers for all ``world_size`` of them.

    Torch calls it from C++ threads as well; it holds a Python lock only (the interpreter's).
    """

    def __init__(self, world_size: int, site: Callable[[], str] = lambda: "") -> None:
        """``site``: the call site of what runs now, for errors."""
        super().__init__()
        self._site = site
        self.world_size = world_size
        self.values: dict[str, bytes] = {}
        self.answered: dict[bytes, str] = {}
        """Unique id -> the key it was published or asked under."""

    def key_of(self, unique_id: bytes) -> str | None:
        return self.answered.get(unique_id)

    def set(self, key: str, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self.values[key] = data
        if len(data) == UNIQUE_ID_BYTES:
            self._check_pair(key)
            self.answered[data] = key

    def get(self, key: str) -> bytes:
        if key not in self.values:
            seed = hashlib.blake2b(key.encode(), digest_size=64).digest()
            self.set(key, seed + hashlib.blake2b(seed, digest_size=64).digest())
        return self.values[key]

    def _check_pair(self, key: str) -> None:
        """torch takes any number for the rank that an unbatched send or receive is with."""
        pair = pair_of_key(key)
        if pair is not None and max(pair) >= self.world_size:
            raise CollectError(
                f"a send or receive is with rank {max(pair)} at {self._site()}, expected one of the "
                f"{self.world_size} ranks of the job: 0 to {self.world_size - 1}"
            )

    def add(self, key: str, amount: int) -> int:
        """A count of arrivals: whoever adds sees that every rank has added the same."""
        total = int(self.values.get(key, b"0")) + amount * self.world_size
        self.values[key] = str(total).encode()
        return total

    def check(self, keys: Sequence[str]) -> bool:
        """Whether the keys are there; asked by torch's dump watcher, so only what was set is."""
        return all(key in self.values for key in keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Whatever a rank waits for, its ghosts have set."""

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        old = self.values.get(key)
        wanted = expected.encode() if isinstance(expected, str) else expected
        if old == wanted or (old is None and not wanted):
            self.set(key, desired)
        return self.values.get(key, wanted)

    def delete_key(self, key: str) -> bool:
        return self.values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self.values)

    def list_keys(self) -> list[str]:
        return list(self.values)

    def append(self, key: str, value: str | bytes) -> None:
        self.set(key, self.values.get(key, b"") + (value.encode() if isinstance(value, str) else value))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """Nothing here waits."""

    def clone(self) -> GhostStore:
        return self
