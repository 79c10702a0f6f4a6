"""A step that was not measured, from the durations and gaps of steps that were."""

from __future__ import annotations

import numpy as np

from prismcore.stitch.rows import Ints, Rows
from prismcore.stitch.timing import Timing

__all__ = ["mean_timing"]


def mean_timing(rows: Rows, ops: Ints, timing: Timing) -> Timing:
    """For each row the mean duration and gap of the same op of its rank over all steps.

    ``ops``: shape [rows], from 0 on, equal for rows of a rank that are the same op in different steps.
    Steps in which a rank lacks the op do not count.
    """
    ranks = np.unique(rows.rank, return_inverse=True)[1].reshape(-1)
    key = ranks * (int(ops.max(initial=0)) + 1) + ops
    same = np.unique(key, return_inverse=True)[1].reshape(-1)
    count = np.bincount(same)

    def mean(values: Ints) -> Ints:
        means: Ints = np.rint(np.bincount(same, weights=values) / count).astype(np.int64)
        found: Ints = means[same]
        return found

    return Timing(gap_ns=mean(timing.gap_ns), duration_ns=mean(timing.duration_ns))
