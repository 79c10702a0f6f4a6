"""Ranks that asked whether work was done more or less often than they recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prismcore.rank_list import named_ranks

__all__ = ["poll_warnings"]


def poll_warnings(
    odd_polls: Sequence[tuple[int, int, int, int]],
    iteration_time_ns: npt.NDArray[np.int64],
    replayed_ns: npt.NDArray[np.int64],
    *,
    alone: bool = True,
) -> list[str]:
    """One line for all ranks; none where the job's iterations take what the replay says.

    ``odd_polls``: rank, how often it asked, how often it had recorded that, and the op before which the two
    first differed. ``alone``: nothing else can be behind other times, as the wall clock or a rank that does
    something else; none where that may be.
    """
    if not odd_polls or not alone or np.array_equal(iteration_time_ns, replayed_ns):
        return []
    rank, asked, recorded, op = odd_polls[0]
    return [
        f"{named_ranks(rank for rank, *_ in odd_polls)} asked more or less often than recorded whether work "
        f"was done, as programs that poll and torch's allocator do (rank {rank}: {asked:,} times, recorded "
        f"{recorded:,}, first before op {op:,}); what they are told depends on their peers, and each "
        "question costs host time, so times differ from the replay's"
    ]
