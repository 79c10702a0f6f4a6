"""Whole tokens by weight: exact sums, no expert above its limit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prismcore.errors import RoutingError

__all__ = ["apportion"]

Ints = npt.NDArray[np.int64]

_LIMIT = 1 << 62


def apportion(weights: Ints, total: int, cap: int, phase: Ints) -> Ints:
    """Divides ``total`` over the columns of each row, in proportion to ``weights``.

    ``weights``: int64 [rows, columns], 0 or more. ``phase``: int64 [rows], 0 or more; decides, modulo
    the row's weight, which columns are rounded up. Returns int64 [rows, columns]; each row adds up to
    ``total``, no entry is above ``cap``. A column that would be above gets ``cap``, and the rest is
    divided anew among the others; where these have no weight at all, equally.

    Rounding is systematic (Madow, "On the Theory of Systematic Sampling", 1949): the running sum of
    weights is scaled and rounded down, so that every column, and every run of neighbouring columns
    between the full ones, is within 1 of its exact share. Where a rank's experts lie beside each
    other, no rank goes without tokens that its share entitles it to.

    Raises :class:`RoutingError` where the caps hold less than ``total``, or numbers leave 64 bits.
    """
    rows, columns = weights.shape
    if total > cap * columns:
        raise RoutingError(f"{total} tokens for {columns} experts of at most {cap} each do not fit")
    if int(weights.sum(axis=1, dtype=np.float64).max(initial=0)) * max(total, 1) >= _LIMIT:
        raise RoutingError(f"{total} tokens with weights up to {int(weights.max())}: more than 64 bits hold")
    full = np.zeros((rows, columns), dtype=bool)
    while True:
        rest = total - cap * full.sum(axis=1, dtype=np.int64)
        active = np.where(full, 0, weights)
        weight = active.sum(axis=1)
        starved = (weight == 0) & (rest > 0)
        if starved.any():
            active = np.where(starved[:, None] & ~full, 1, active)
            weight = active.sum(axis=1)
        over = ~full & (active * rest[:, None] >= cap * weight[:, None]) & (active > 0)
        if not over.any():
            break
        full |= over
    scale = np.maximum(weight, 1)
    edges = np.zeros((rows, columns + 1), dtype=np.int64)
    np.cumsum(active, axis=1, out=edges[:, 1:])
    edges = (edges * rest[:, None] + (phase % scale)[:, None]) // scale[:, None]
    return np.where(full, cap, np.diff(edges, axis=1))
