"""What a trace of torch's profiler tells of NCCL's kernels: collectives, and messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from prismcore.graph import OpKind
from prismcore.traces.collectives import Collective, Members
from prismcore.traces.kineto_arguments import MembersReader, element_type, json_list, payload_bytes, whole
from prismcore.traces.kineto_file import KinetoTrace
from prismcore.traces.kineto_ops import RankOps

__all__ = ["Side", "Told", "told_of"]

_RANGE = re.compile(r"nccl:(?:send|recv) (\d{1,9})(?:->|<-)(\d{1,9})")


@dataclass(kw_only=True, slots=True)
class Side:
    """One side of a message, as its rank saw it."""

    row: int
    name: str  #: of the communicator
    members: Members
    sends: bool
    peer: int  #: the rank of the other side
    bytes: int


@dataclass(kw_only=True, slots=True)
class Told:
    """Of one rank; ``row``: of its ops."""

    collectives: list[Collective]
    sides: list[Side]
    lost: list[int]  #: rows of messages without a word about the other side


def told_of(trace: KinetoTrace, ops: RankOps, rows: Sequence[int], warnings: list[str]) -> Told:
    """NCCL's kernels among ``rows``, with what the trace tells of them: their own arguments, else those of
    the call of torch.distributed that launched them."""
    members = MembersReader(trace)
    pointers: dict[int, list[str]] = {}
    told = Told(collectives=[], sides=[], lost=[])
    for row in rows:
        details = ops.details.get(row, {})
        number, pointer, size = _older(details)
        number = whole(details.get("Seq"), least=0) if "Seq" in details else number
        size = whole(details.get("Group size"), least=1) or size
        name, ranks = details.get("Process Group Name"), members.of(details)
        kernel = trace.strings[trace.name[ops.event[row]]]
        kind = int(ops.kind[row])
        payload = payload_bytes(details, kernel, gathers=kind == OpKind.ALL_GATHER, size=size)
        if kind in (OpKind.SEND, OpKind.RECV):
            peer = _peer(details, ranks, sends=kind == OpKind.SEND)
            if peer is None or ranks is None or peer == trace.rank:
                told.lost.append(row)
                continue
            told.sides.append(
                Side(row=row, name=name or "messages", members=ranks, sends=kind == OpKind.SEND, peer=peer,
                     bytes=payload or 0)
            )  # fmt: skip
            continue
        _, stream = ops.streams[int(ops.lane[row]) - 1]
        label = name if name is not None else _label(stream, pointer, pointers)
        if ops.guessed[row]:
            label += " send/receive"
        told.collectives.append(
            Collective(row=row, communicator=(label, ranks), kind=kind, bytes=payload, number=number,
                       dtype=element_type(details, kernel), named=name is not None, size=size,
                       guessed=bool(ops.guessed[row]))
        )  # fmt: skip
    if members.refused:
        warnings.append(
            f"rank {trace.rank}: {members.refused:,} different lists of members that cannot be (without the "
            "rank, or beyond the world) are taken as not told"
        )
    return told


def _label(stream: int, pointer: str | None, pointers: dict[int, list[str]]) -> str:
    """A name for a communicator that has none: its stream, and which one of those on it."""
    of_stream = pointers.setdefault(stream, [])
    if pointer is not None and pointer not in of_stream:
        of_stream.append(pointer)
    place = of_stream.index(pointer) if pointer is not None else 0
    return f"stream {stream} group {place + 1}" if place else f"stream {stream}"


def _older(details: dict[str, str]) -> tuple[int | None, str | None, int | None]:
    """Sequence number, address of the process group and its size, as records of torch 2.1 and 2.2 hold
    them: tensors, number, address, rank, name, splits, size."""
    inputs = json_list(details.get("Concrete Inputs"))
    if inputs is None or len(inputs) != 8 or not all(isinstance(i, str) for i in inputs):
        return None, None, None
    number, address, size = whole(inputs[1], least=0), whole(inputs[2], least=1), whole(inputs[7], least=1)
    if number is None or address is None:
        return None, None, None
    return number, inputs[2], size


def _peer(details: dict[str, str], members: Members | None, *, sends: bool) -> int | None:
    """The rank of the other side; torch writes its place among the members."""
    place = whole(details.get("Dst Rank" if sends else "Src Rank"), least=0)
    match = _RANGE.fullmatch(details.get("Range", ""))
    if place is None and match:
        place = int(match[2])
    if place is None or members is None:
        return None
    if place < len(members):
        return members[place]
    return place if place in members else None
