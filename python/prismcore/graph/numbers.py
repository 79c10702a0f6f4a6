"""Numbers on their way into the core: what does not fit is a GraphError, never cut or wrapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prismcore.errors import GraphError

__all__ = ["u32", "u32_array"]

_LARGEST = 2**32 - 1


def u32(value: int, what: str) -> int:
    """`value` as it is. Raises GraphError if it is no whole number of 0 to 2^32 - 1."""
    if not isinstance(value, (int, np.integer)) or not 0 <= value <= _LARGEST:
        raise GraphError(f"{what} {value!r} found, expected a whole number from 0 to {_LARGEST}")
    return int(value)


def u32_array(values: Sequence[Any] | npt.NDArray[Any], what: str) -> npt.NDArray[np.uint32]:
    """Contiguous ``uint32`` of the same shape. Raises GraphError as :func:`u32` does."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise GraphError(f"{what}: {error}") from error
    if array.size == 0:
        return np.empty(0, dtype=np.uint32)
    if array.dtype == np.uint32:
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "iu" or array.min() < 0 or array.max() > _LARGEST:
        found = next((v for v in array.flat if not _fits(v)), array.dtype)
        raise GraphError(f"{what}: {found!s} found, expected whole numbers from 0 to {_LARGEST}")
    return np.ascontiguousarray(array, dtype=np.uint32)


def _fits(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and 0 <= int(value) <= _LARGEST
