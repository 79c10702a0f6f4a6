"""Numbers that look random and depend on their arguments alone.

A counter-based generator: the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable
Pseudorandom Number Generators", OOPSLA 2014), chained over the arguments. Unsigned 64-bit arithmetic
alone, so that every machine has the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["below", "hashed"]

UInts = npt.NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1


def hashed(*words: int | npt.NDArray[np.int64]) -> UInts:
    """Of integers, or arrays of them that are broadcast together: uint64 of their common shape (at
    least one dimension)."""
    state = np.zeros(1, dtype=np.uint64)
    for word in words:
        part = np.asarray(word & _MASK if isinstance(word, int) else word).astype(np.uint64)
        state = (state ^ part) + _GAMMA
        state = (state ^ (state >> np.uint64(30))) * _FIRST
        state = (state ^ (state >> np.uint64(27))) * _SECOND
        state = state ^ (state >> np.uint64(31))
    return state


def below(bound: int, *words: int | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Numbers in 0 .. bound - 1 (bound below 2^63), by :func:`hashed`."""
    found: npt.NDArray[np.int64] = (hashed(*words) % np.uint64(bound)).astype(np.int64)
    return found
