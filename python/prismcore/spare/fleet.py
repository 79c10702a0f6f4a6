"""How the paper's setting scales to other fleets: GPUs, failure rate.

The SPARe paper (ICML 2026, arXiv 2603.00357) studies 600,000 GPUs of which one fails every 300 s, in
200, 600 and 1,000 groups.
"""

from __future__ import annotations

from prismcore.errors import SpareError
from prismcore.spare.numbers import whole

__all__ = ["PAPER_GPUS", "PAPER_MTBF_S", "check_gpus", "paper_gpus", "paper_mtbf_s"]

PAPER_GPUS = 600_000
PAPER_MTBF_S = 300.0
MOST_GPUS = (1 << 63) - 1


def paper_gpus(groups: int) -> int:
    """The paper's GPUs, rounded down to equal groups; at least one each."""
    return max(PAPER_GPUS // whole("groups", groups, least=1), 1) * groups


def paper_mtbf_s(gpus: int) -> float:
    """Seconds between failures of a fleet of this size, at the paper's rate of a GPU."""
    return PAPER_MTBF_S * PAPER_GPUS / whole("GPUs", gpus, least=1, most=MOST_GPUS)


def check_gpus(gpus: int, groups: int) -> None:
    """Raises SpareError where GPUs do not make equal groups."""
    whole("GPUs", gpus, least=1, most=MOST_GPUS)
    if gpus < whole("groups", groups, least=1) or gpus % groups:
        fits = max(gpus // groups, 1) * groups
        raise SpareError(
            f"GPUs {gpus} and groups {groups} found, expected GPUs in equal groups, for instance {fits}"
        )
