"""Which send and which receive of different ranks are one message."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from prismcore.traces.collectives import Members

__all__ = ["Message", "match_messages"]


@dataclass(kw_only=True, slots=True)
class Message:
    """One side of a message, as its rank saw it."""

    row: int
    communicator: tuple[str, Members]  #: name, members
    source: int
    target: int
    sends: bool  #: the row is the sender's
    tag: int
    bytes: int


def match_messages(
    messages: Sequence[Message],
    present: Collection[int],
    warnings: list[str],
    late: Collection[int] = (),
) -> tuple[list[tuple[int, int]], list[int]]:
    """Rows of sends with those of their receives, and rows without another side.

    The n-th send and the n-th receive of a pair of ranks with one tag are one message, counted from the
    end where the trace of one of them begins late (``late``). What is left over is told in ``warnings``.
    """
    sides: dict[tuple[object, ...], tuple[list[Message], list[Message]]] = {}
    for message in messages:
        pair = (message.communicator, message.source, message.target, message.tag)
        sides.setdefault(pair, ([], []))[0 if message.sends else 1].append(message)
    pairs: list[tuple[int, int]] = []
    alone: list[int] = []
    absent = uneven = 0
    for key, (sends, receives) in sides.items():
        if key[1] in late or key[2] in late:
            sends.reverse()
            receives.reverse()
        common = min(len(sends), len(receives))
        for send, receive in zip(sends[:common], receives[:common], strict=True):
            if send.bytes == receive.bytes:
                pairs.append((send.row, receive.row))
            else:
                uneven += 1
                alone += [send.row, receive.row]
        for left in sends[common:] + receives[common:]:
            alone.append(left.row)
            absent += (left.target if left.sends else left.source) not in present
    missing = len(alone) - 2 * uneven
    if missing:
        warnings.append(
            f"{missing:,} of {len(messages):,} sends and receives have no other side, {absent:,} of them "
            "because its rank has no trace; they wait for nobody"
        )
    if uneven:
        warnings.append(
            f"{uneven:,} messages are sent and received with different sizes; they wait for nobody"
        )
    return pairs, alone
