"""What a rank that ran left: its graph, and of it what is compared between ranks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt

from prismcore import _core
from prismcore.collect.likeness import Record
from prismcore.collect.roles import Roles, SlotRole
from prismcore.errors import CollectError
from prismcore.graph import Graph, Kernel, MemoryPeaks
from prismcore.graph.op import OpArray, OpKind

__all__ = [
    "Comparer",
    "Slots",
    "iteration_time_ns",
    "messaging_kinds",
    "most_common_peaks",
    "sizes_of",
    "slots_of",
]

Slots = tuple[SlotRole, ...]


def slots_of(graph: Graph, rank: int, roles: Roles) -> Slots:
    """The role of each communicator of the rank, by slot."""
    out = []
    for binding in graph.rank(rank).bindings:
        communicator = graph.communicator(int(binding["communicator"]))
        if communicator.size == 0:
            raise CollectError(
                f"communicator {communicator.name!r} of rank {rank}: its members are not known; expected "
                "a group that torch.distributed made"
            )
        out.append(roles.slot_role(rank, communicator.name, communicator.members.tolist()))
    return tuple(out)


def sizes_of(graph: Graph, rank: int) -> tuple[tuple[str, int], ...]:
    """Description and size of each communicator of the rank, by slot: stands for its roles where
    ranks made other groups than the first, so that no table of all groups holds for it."""
    communicators = [graph.communicator(int(b["communicator"])) for b in graph.rank(rank).bindings]
    return tuple((c.name.rpartition(":")[0], c.size) for c in communicators)


def messaging_kinds(graph: Graph, rank: int, slots: Slots) -> frozenset[int]:
    """Kinds in whose groups the rank sends or receives messages."""
    ops = graph.ops(rank)
    messages = ops[(ops["kind"] == OpKind.SEND) | (ops["kind"] == OpKind.RECV)]
    return frozenset(slots[slot].kind for slot in np.unique(messages["ref"]).tolist())


def iteration_time_ns(graph: Graph, rank: int) -> int:
    """Of the last iteration, as the rank alone would take: nobody delays its communication."""
    ends = _core.iteration_ends_alone(graph.core, rank)
    return int(ends[-1] - ends[-2]) if len(ends) > 1 else int(ends[-1]) if len(ends) else 0


# What an allocator does depends on all that was allocated before and on when torch's watchdog
# threads give buffers back: not on the program alone.
_BOOKKEEPING = (
    OpKind.EVENT_RECORD,
    OpKind.EVENT_WAIT,
    OpKind.QUERY,
    OpKind.ALLOCATE,
    OpKind.FREE,
    OpKind.RESERVE,
    OpKind.RELEASE,
)


class Comparer:
    """Makes ranks comparable: equal numbers stand for equal blocks of any rank.

    With ``ignore_host``, host times (measured, and so never twice the same) do not count.
    """

    def __init__(self, *, ignore_host: bool) -> None:
        self._ignore_host = ignore_host
        self._numbers: dict[bytes, int] = {}
        self._kernels: dict[Kernel, int] = {}
        self._of_stretch: dict[tuple[int, ...], tuple[int, int, int]] = {}

    def record(self, graph: Graph, rank: int, roles: Hashable, merged_blocks: Sequence[int]) -> Record:
        """``roles``: of the rank's communicators, by slot. ``merged_blocks``: its program as the builder
        that merged it numbers blocks.

        Compared is what lies between communication launches: a long stretch is several blocks, and
        where it is cut depends on how many ops came before.
        """
        view = graph.rank(rank)
        kernels = [
            self._kernels.setdefault(graph.kernel(i), len(self._kernels)) for i in range(graph.num_kernels)
        ]
        number_of_kernel = np.asarray(kernels, dtype=np.uint32)
        parts = []
        start = 0
        for local_blocks in graph.program_stretches(view.program):
            stretch = tuple(merged_blocks[start : start + len(local_blocks)])
            start += len(stretch)
            if stretch not in self._of_stretch:
                ops = np.concatenate([graph.block(int(block)) for block in local_blocks])
                self._of_stretch[stretch] = self._parts(ops, number_of_kernel)
            parts.append(self._of_stretch[stretch])
        return Record(
            roles=roles,
            blocks=tuple(part[0] for part in parts),
            work=tuple(part[1] for part in parts),
            communication=tuple(part[2] for part in parts),
            requested_bytes=view.peaks.requested_bytes,
        )

    def _parts(self, ops: OpArray, number_of_kernel: npt.NDArray[np.uint32]) -> tuple[int, int, int]:
        is_kernel = ops["kind"] == OpKind.KERNEL
        ops["ref"][is_kernel] = number_of_kernel[ops["ref"][is_kernel]]
        ops["ref"][ops["kind"] == OpKind.MARK] = 0  # a label
        if self._ignore_host:
            ops["duration_ns"][ops["kind"] == OpKind.HOST_GAP] = 0
            ops["host_ns"] = 0
        kind = ops["kind"]
        work = ops[~np.isin(kind, _BOOKKEEPING)]
        communication = ops[kind >= OpKind.ALL_REDUCE].copy()
        communication["host_ns"] = communication["duration_ns"] = 0
        communication["flags"] &= 0xFC  # where the duration comes from
        return self._number(b"all", ops), self._number(b"work", work), self._number(b"comm", communication)

    def _number(self, which: bytes, ops: OpArray) -> int:
        return self._numbers.setdefault(which + ops.tobytes(), len(self._numbers))


def most_common_peaks(peaks: Sequence[MemoryPeaks]) -> MemoryPeaks:
    """The peaks seen most often; of those seen equally often, the largest."""
    ordered = sorted(
        set(peaks),
        key=lambda p: (peaks.count(p), p.allocated_bytes, p.reserved_bytes),
    )
    return ordered[-1]
