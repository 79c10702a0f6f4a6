"""Values on their way into the core: what does not fit is a GraphError, never cut or wrapped."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prismcore.errors import GraphError

__all__ = ["text", "u32", "u32_array", "whole"]

_LARGEST = 2**32 - 1


def whole(value: Any, what: str, *, low: int = 0, high: int = 2**63 - 1) -> int:
    """`value` as a plain int. Raises GraphError if it is no whole number of ``low`` to ``high``."""
    if not isinstance(value, (int, np.integer)) or not low <= value <= high:
        raise GraphError(f"{what} {value!r} found, expected a whole number from {low} to {high}")
    return int(value)


def u32(value: Any, what: str) -> int:
    """The same for 0 to 2^32 - 1."""
    return whole(value, what, high=_LARGEST)


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


def text(value: Any, what: str) -> str:
    """`value` as it is. Raises GraphError if it is no string, or has no UTF-8 (lone surrogates)."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            pass
        else:
            return value
    raise GraphError(f"{what} {value!r} found, expected text that UTF-8 can hold")


def _fits(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and 0 <= int(value) <= _LARGEST
