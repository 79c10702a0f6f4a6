"""Ranks that wait for an object of another: which run next."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from prismcore.errors import CollectError
from prismcore.launch.need import ObjectNeed
from prismcore.rank_list import format_ranks

__all__ = ["MOST_TRIES", "next_to_run"]

MOST_TRIES = 64
"""A rank runs again for each object that it needed too early."""


def next_to_run(
    needs: Mapping[int, ObjectNeed],
    *,
    given: Collection[str],
    ran: Collection[int],
    allowed: Collection[int],
    tries: Mapping[int, int],
) -> list[int]:
    """Ranks to run now, of those in need and of those they need; empty: none is in need.

    ``given``: keys of the objects that there are. ``ran``: ranks that came to their end. ``tries``: how
    often a rank has run. Whichever ranks run, a rank gets what its root gives and nothing else, so the
    order does not change what is recorded.

    Raises:
        CollectError: nobody will give an object that is needed.
    """
    chosen = [rank for rank, need in needs.items() if need.key in given]
    for rank, need in needs.items():
        if need.key in given:
            continue
        told = need.told(rank)
        if need.root in ran:
            raise CollectError(
                f"{told}, but rank {need.root} ended without giving it; expected every rank of the "
                "communicator to make the same calls in the same order"
            )
        if need.root not in allowed:
            raise CollectError(
                f"{told}, and rank {need.root} does not run; add it to --ranks "
                f"({format_ranks(sorted({*allowed, need.root}))}), or use --ranks auto"
            )
        if need.root not in needs:
            chosen.append(need.root)
    if needs and not chosen:
        rank, need = next(iter(needs.items()))
        raise CollectError(
            f"{need.told(rank)}, but rank {need.root} itself waits for an object, and so on in a circle; "
            "expected a program that goes on when all ranks run"
        )
    for rank in chosen:
        if tries.get(rank, 0) >= MOST_TRIES:
            raise CollectError(
                f"{needs[rank].told(rank) if rank in needs else f'rank {rank}'}, after running "
                f"{MOST_TRIES} times for objects of others; expected objects from fewer ranks "
                "(all_gather_object is answered by rule)"
            )
    return list(dict.fromkeys(chosen))
