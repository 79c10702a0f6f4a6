"""Where allocated blocks may have lain: a graph has their sizes, not their addresses.

Best fit in the order of torch's caching allocator (c10/cuda/CUDACachingAllocator.cpp): blocks up to 1 MiB in
segments of 2 MiB, larger ones in segments of their own kind; the smallest free block that is large enough, of
equal ones the lowest; what is freed joins its free neighbours. Which of several blocks of one size is freed,
the graph does not say: the newest.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from dataclasses import dataclass

__all__ = ["Block", "Blocks", "Segment", "segment_for"]

SMALL_BYTES = 1 << 20
SMALL_SEGMENT = 2 << 20
MEDIUM_SEGMENT = 20 << 20
MEDIUM_BYTES = 10 << 20
FIRST_ADDRESS = 0x7F0000000000


@dataclass(kw_only=True, slots=True, frozen=True)
class Block:
    address: int
    size: int


@dataclass(kw_only=True, slots=True, frozen=True)
class Segment:
    address: int
    size: int
    small: bool


class Blocks:
    """Segments of one device, what is live in them, and what is free."""

    def __init__(self) -> None:
        self.segments: dict[int, Segment] = {}  #: by address
        self.live: dict[int, int] = {}  #: size by address
        self._by_size: defaultdict[int, list[int]] = defaultdict(list)  # live, the newest last
        self._free: tuple[list[tuple[int, int]], ...] = ([], [])  # (size, address) of both pools, sorted
        self._size_at: dict[int, int] = {}  # free blocks by their begin
        self._begin_of: dict[int, int] = {}  # and by their end
        self._pool_at: dict[int, bool] = {}  # of free and live blocks, by begin: whether it is small
        self._next = FIRST_ADDRESS

    def reserve(self, size: int, *, small: bool | None = None) -> Segment:
        """A new segment; a guess by its size which pool it is of, unless told."""
        is_small = size == SMALL_SEGMENT if small is None else small
        segment = Segment(address=self._next, size=size, small=is_small)
        # Segments are never neighbours: blocks of two must not join.
        self._next += (size + SMALL_SEGMENT) // SMALL_SEGMENT * SMALL_SEGMENT + SMALL_SEGMENT
        self.segments[segment.address] = segment
        self._add_free(segment.address, size, is_small)
        return segment

    def release(self, size: int) -> Segment | None:
        """Gives the newest segment of this size back that holds no live block; None: there is none."""
        for segment in reversed(self.segments.values()):
            if segment.size == size and self._size_at.get(segment.address) == size:
                self._take_free(segment.address)
                del self.segments[segment.address]
                return segment
        return None

    def allocate(self, size: int) -> Block | None:
        """A block of this size; None: no segment has room for it."""
        small = size <= SMALL_BYTES
        free = self._free[small]
        at = bisect_left(free, (size, 0))
        if at == len(free):
            return None
        room, address = free[at]
        self._take_free(address)
        if room > size:
            self._add_free(address + size, room - size, small)
        self.live[address] = size
        self._pool_at[address] = small
        self._by_size[size].append(address)
        return Block(address=address, size=size)

    def free(self, size: int) -> Block | None:
        """Takes the newest live block of this size back; None: there is none."""
        addresses = self._by_size.get(size)
        if not addresses:
            return None
        address = addresses.pop()
        small = self._pool_at[address]
        del self.live[address]
        begin, end = address, address + size
        if begin in self._begin_of:
            begin = self._begin_of[begin]
            self._take_free(begin)
        if end in self._size_at:
            end += self._take_free(end)
        self._add_free(begin, end - begin, small)
        return Block(address=address, size=size)

    def newest_at_least(self, size: int) -> int | None:
        """Size of the newest live block that is larger than `size`; None: there is none."""
        return next((of for of in reversed(self.live.values()) if of > size), None)

    def _add_free(self, address: int, size: int, small: bool) -> None:
        self._size_at[address] = size
        self._begin_of[address + size] = address
        self._pool_at[address] = small
        insort(self._free[small], (size, address))

    def _take_free(self, address: int) -> int:
        size = self._size_at.pop(address)
        del self._begin_of[address + size]
        free = self._free[self._pool_at[address]]
        del free[bisect_left(free, (size, address))]
        return size


def segment_for(size: int) -> int:
    """What torch would reserve for a block of this size."""
    if size <= SMALL_BYTES:
        return SMALL_SEGMENT
    if size < MEDIUM_BYTES:
        return MEDIUM_SEGMENT
    return -(-size // SMALL_SEGMENT) * SMALL_SEGMENT
