"""Who met whom in a Megatron pipeline job: collectives by their groups, messages by their sender."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from prismcore.graph import OpKind
from prismcore.stitch.meetings import Meetings, first_believed, meet
from prismcore.stitch.programs import RowOps
from prismcore.stitch.rows import Ints
from prismcore.traces.straggler import OPERATIONS, UNRECORDED, Operation
from prismcore.traces.straggler_rows import StragglerRows

__all__ = ["find_meetings", "name_ops"]

_RECEIVES = (Operation.FORWARD_RECV, Operation.BACKWARD_RECV)
_MESSAGES = (Operation.FORWARD_SEND, Operation.BACKWARD_SEND, *_RECEIVES)
_COLLECTIVES = (
    Operation.PARAMS_ALL_GATHER,
    Operation.GRADS_REDUCE_SCATTER,
    Operation.LAYERNORM_GRADS_ALL_REDUCE,
    Operation.EMBEDDING_GRADS_ALL_REDUCE,
    Operation.OPTIMIZER_CLIP_MAIN_GRAD,
    Operation.SEPARATE_GRADS_ALL_REDUCE,
    *UNRECORDED,
)
_KIND = np.array(
    [
        OpKind.KERNEL,
        OpKind.KERNEL,
        OpKind.SEND,
        OpKind.RECV,
        OpKind.SEND,
        OpKind.RECV,
        OpKind.ALL_GATHER,
        OpKind.REDUCE_SCATTER,
        OpKind.ALL_REDUCE,
        OpKind.ALL_REDUCE,
        OpKind.ALL_REDUCE,
        OpKind.KERNEL,
        OpKind.KERNEL,
        OpKind.ALL_REDUCE,
        OpKind.ALL_REDUCE,
        OpKind.ALL_REDUCE,
    ]
)
#: Names of the communicators: those of one name hold one type of communication.
_ROLE = {
    Operation.FORWARD_SEND: "forward-pp-comm",
    Operation.BACKWARD_SEND: "backward-pp-comm",
    **{operation: operation.label for operation in _COLLECTIVES},
}


def find_meetings(of: StragglerRows, warnings: list[str]) -> Meetings:
    """Collectives by group, step and number; messages by sender, step and number."""
    group = np.zeros((4, len(of.operation)), dtype=np.int64)
    group[3] = np.arange(len(of.operation)) + 1  # alone, unless said otherwise below
    messages = of.of(*_MESSAGES)
    back = np.zeros(len(Operation), dtype=np.int64)
    back[Operation.FORWARD_RECV], back[Operation.BACKWARD_RECV] = -1, 1
    sender = (of.stage[messages] + back[of.operation[messages]]) % of.sizes.pp
    group[:, messages] = np.stack(
        [of.dp_rank[messages], sender, of.twin[messages], np.zeros(len(messages), dtype=np.int64)]
    )
    for kind in _COLLECTIVES:
        mine = of.of(Operation(kind))
        if not len(mine):
            continue
        keys = _group_of(of, Operation(kind), mine)
        if keys is None:
            warnings.append(
                f"{Operation(kind).label}: ranks that should meet do not overlap; each keeps its own time, "
                "waiting included"
            )
        else:
            group[:2, mine] = np.stack(keys)
            group[3, mine] = 0
    return meet(*group, of.number, of.rows.step, _named(of.operation))


def _group_of(of: StragglerRows, operation: Operation, mine: Ints) -> tuple[Ints, ...] | None:
    """Keys of the largest group whose ranks the times show together."""
    everyone = np.zeros(len(mine), dtype=np.int64)
    dp_rank, stage, twin = of.dp_rank[mine], of.stage[mine], of.twin[mine]
    groupings: Mapping[str, tuple[Ints, ...]] = {"stages": (stage, twin)}
    if (
        of.sizes.dsp > 1 and operation not in UNRECORDED
    ):  # ranks of one place, beside tensor parallel ones, that share its parameters
        groupings = {"stages and their replicas": (stage, _tensor_ranks(of)[mine]), **groupings}
    if operation == Operation.LAYERNORM_GRADS_ALL_REDUCE:
        groupings = {"places": (dp_rank, stage)}
    elif operation in (Operation.EMBEDDING_GRADS_ALL_REDUCE, Operation.PIPELINE_MEETING):
        groupings = {"pipelines": (dp_rank, twin)}
    elif operation == Operation.OPTIMIZER_CLIP_MAIN_GRAD:
        groupings = {
            "world": (everyone, everyone),
            "pipelines": (dp_rank, everyone),
            "stages": (stage, everyone),
        }
    some = of.rows.some(mine)
    keyed = {name: (*keys, of.number[mine], some.step) for name, keys in groupings.items()}
    found = first_believed(some, keyed)
    return None if found is None else groupings[found[0]]


def _tensor_ranks(of: StragglerRows) -> Ints:
    """Tensor-parallel ranks among those of a place, lowest first; all of a place 0 where the trace holds
    one of each tensor-parallel group."""
    places = int(of.twin.max()) + 1
    return of.twin % max(places // of.sizes.dsp, 1)


def _named(operation: Ints) -> Ints:
    """Types; both sides of a message have that of its send."""
    return operation - np.isin(operation, _RECEIVES)


def name_ops(of: StragglerRows, meetings: Meetings, warnings: list[str]) -> RowOps:
    """Kinds, communicators and peers. A message whose other side is absent becomes communication of the
    rank with itself."""
    rows, operation = of.rows, of.operation
    kind, ref = _KIND[operation].copy(), np.where(_KIND[operation] == OpKind.KERNEL, operation, -1)
    peer = np.full(len(kind), -1, dtype=np.int64)
    message = np.isin(operation, _MESSAGES)
    lone = message & (meetings.size == 1)
    if lone.any():
        warnings.append(
            f"{int(lone.sum()):,} of {int(message.sum()):,} sends and receives have no other side in the "
            "trace; they keep their measured time, waiting included"
        )
    kind[lone] = OpKind.BROADCAST  # of the one rank to itself
    communicators: dict[tuple[str, tuple[int, ...]], int] = {}
    named = _named(operation)
    order = np.argsort(meetings.id, kind="stable")
    begins = np.flatnonzero(np.diff(meetings.id[order], prepend=-1))
    talks = kind[order[begins]] != OpKind.KERNEL
    sizes = np.diff(np.append(begins, len(order)))
    for size in np.unique(sizes[talks]).tolist():
        chosen = begins[talks & (sizes == size)]
        members = order[chosen[:, None] + np.arange(size)]
        world = np.sort(rows.rank[members], axis=1)
        both = np.column_stack([named[members[:, 0]], world])
        first, number = _equal_rows(both)
        ids = [
            communicators.setdefault((_ROLE[Operation(found[0])], tuple(found[1:])), len(communicators))
            for found in both[first].tolist()
        ]
        ref[members] = np.array(ids)[number][:, None]
        if size == 2:
            sides = members[message[members[:, 0]]]
            peer[sides[:, 0]], peer[sides[:, 1]] = rows.rank[sides[:, 1]], rows.rank[sides[:, 0]]
    return RowOps(
        kind=kind,
        ref=ref,
        peer=peer,
        tag=np.zeros(len(kind), dtype=np.int64),
        kernels=OPERATIONS,
        communicators=list(communicators),
    )


def _equal_rows(table: Ints) -> tuple[Ints, Ints]:
    """The first of each set of equal rows, and for each row the number of its set."""
    found = np.zeros(len(table), dtype=np.int64)
    for column in table.T:
        values, code = np.unique(column, return_inverse=True)
        found = np.unique(found * len(values) + code.reshape(-1), return_inverse=True)[1].reshape(-1)
    return np.unique(found, return_index=True)[1], found
