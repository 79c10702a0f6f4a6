"""The barriers of the members: who is through one knows that all had come to it."""

from __future__ import annotations

from prismcore.errors import SpareError
from prismcore.spare.runtime.communicator import Communicator
from prismcore.spare.runtime.layout import Layout

__all__ = ["vote"]

_HALF = 1 << 32


def vote(communicator: Communicator, layout: Layout, what: str, *, boundary_wanted: bool = False) -> bool:
    """A barrier. Returns whether any member wants a step boundary at which others may join.

    Raises:
        MembersLostError: somebody is lost; others may be through.
        SpareError: members have different layouts.
    """
    digest = layout.digest
    mine = [1, digest // _HALF, digest % _HALF]
    *sums, wanted = communicator.sum_few([*mine, boundary_wanted], what)
    if sums != [communicator.size * number for number in mine]:
        raise SpareError(
            f"groups have different layouts (here {digest:016x}); expected the same placement, micro_batches "
            "and version of prismcore everywhere"
        )
    return wanted > 0
