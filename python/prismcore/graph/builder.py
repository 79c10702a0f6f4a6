"""Puts graphs together: synthetic ones op by op, recorded ones by merging and inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prismcore import _core
from prismcore.errors import GraphError
from prismcore.graph import values
from prismcore.graph.graph import Graph
from prismcore.graph.kernel import Kernel
from prismcore.graph.metadata import dump_metadata
from prismcore.graph.op import BINDING_DTYPE, OP_DTYPE, OpArray
from prismcore.graph.rank import MemoryPeaks, RankOrigin
from prismcore.graph.rank_builder import RankBuilder
from prismcore.graph.values import u32, u32_array

__all__ = ["Bindings", "GraphBuilder"]

#: Pairs (communicator, position) by communicator slot, or an array of ``BINDING_DTYPE``.
Bindings = Sequence[tuple[int, int]] | npt.NDArray[Any]

_NO_IDS = np.empty(0, dtype=np.uint32)


class GraphBuilder:
    """Builds a :class:`Graph` of ``world_size`` ranks.

    Op by op, for tests, microbenchmarks and importers::

        builder = GraphBuilder(world_size=2)
        world = builder.communicator("world", range(2))
        for r in range(2):
            rank = builder.rank(r)
            rank.kernel("gemm", duration_ns=1_000)
            rank.all_reduce(world, bytes=1 << 20, duration_ns=500)
        graph = builder.finish()

    Ranks with equal ops and call sites share one program. All methods raise GraphError on input that does not
    fit: unknown ids, a rank given twice, a position where the rank is not.
    """

    def __init__(self, world_size: int) -> None:
        #: The C++ builder, for calls into ``prismcore._core``.
        self.core = _core.GraphBuilder(u32(world_size, "world size"))
        self.world_size = world_size
        self._open: dict[int, RankBuilder] = {}
        self._members: dict[int, npt.NDArray[np.uint32]] = {}
        self._positions: dict[int, dict[int, int]] = {}

    def string(self, text: str) -> int:
        """Id of a string (label of a mark, call site)."""
        return self.core.string(values.text(text, "string"))

    def kernel(self, kernel: Kernel) -> int:
        """Id of a kernel; equal kernels have one."""
        return self.core.kernel(kernel.name, kernel.core_shape())

    def communicator(self, name: str, members: Sequence[int] | npt.NDArray[np.integer[Any]]) -> int:
        """Id of the communicator of this name and member list; asking again returns the same."""
        values.text(name, "communicator name")
        array = u32_array(members, f"members of communicator {name!r}")
        if array.ndim != 1:
            raise GraphError(f"members of communicator {name!r}: {array.ndim} dimensions found, expected 1")
        id = self.core.communicator(name, array)
        self._members.setdefault(id, array)
        return id

    def members(self, communicator: int) -> npt.NDArray[np.uint32]:
        """Member ranks by position; shape [size]."""
        if communicator not in self._members:
            raise GraphError(f"communicator id {communicator} found, expected one that communicator() gave")
        return self._members[communicator]

    def position(self, communicator: int, rank: int) -> int:
        """Position of a rank in a communicator."""
        members = self.members(communicator)
        rank = u32(rank, "rank")
        if rank < len(members) and members[rank] == rank:
            return rank
        if communicator not in self._positions:
            self._positions[communicator] = {int(r): i for i, r in enumerate(members)}
        position = self._positions[communicator].get(rank)
        if position is None:
            raise GraphError(f"rank {rank} is no member of communicator {communicator}")
        return position

    def rank(self, rank: int) -> RankBuilder:
        """Where to write the ops of a rank; :meth:`finish` takes them."""
        if u32(rank, "rank") >= self.world_size:
            raise GraphError(f"rank {rank} found, expected one of a world of {self.world_size}")
        if rank not in self._open:
            self._open[rank] = RankBuilder(self, rank)
        return self._open[rank]

    def set_rank(
        self,
        rank: int,
        ops: OpArray,
        bindings: Bindings = (),
        *,
        call_sites: Sequence[int] | npt.NDArray[np.uint32] = (),
        peaks: MemoryPeaks | None = None,
    ) -> None:
        """Gives a rank these ops: an array of ``OP_DTYPE``, read in place.

        ``call_sites`` are string ids by block, shorter lists allowed.
        """
        given = np.asarray(ops)
        if (
            given.ndim != 1
            or given.dtype.names is None
            or set(given.dtype.names) != set(OP_DTYPE.names or ())
        ):
            raise GraphError(
                f"rank {rank}: ops of {given.dtype} and {given.ndim} dimensions found, expected one "
                "dimension of OP_DTYPE"
            )
        array = np.ascontiguousarray(given[list(OP_DTYPE.names or ())], dtype=OP_DTYPE)
        self.core.set_rank(
            u32(rank, "rank"), array.view(np.uint8), _flat(bindings), _ids(call_sites), _four(peaks)
        )

    def merge(self, graph: Graph, origin: RankOrigin = RankOrigin.RAN) -> None:
        """Takes over every rank of another graph of the same world."""
        self.core.merge(graph.core, values.whole(origin, "origin", high=max(RankOrigin)))

    def infer(self, rank: int, like: int, bindings: Bindings, *, peaks: MemoryPeaks | None = None) -> None:
        """Gives ``rank`` the program of ``like`` on its own communicators."""
        self.core.infer(u32(rank, "rank"), u32(like, "rank"), _flat(bindings), _four(peaks))

    def infer_program(
        self,
        rank: int,
        blocks: Sequence[int] | npt.NDArray[np.uint32],
        bindings: Bindings,
        *,
        call_sites: Sequence[int] | npt.NDArray[np.uint32] = (),
        peaks: MemoryPeaks | None = None,
    ) -> None:
        """Gives ``rank`` a program of block ids of this builder (see :meth:`program_of`)."""
        self.core.infer_program(
            u32(rank, "rank"), _ids(blocks), _ids(call_sites), _flat(bindings), _four(peaks)
        )

    def program_of(self, rank: int) -> npt.NDArray[np.uint32]:
        """Block ids of a rank that was set, merged or inferred; shape [blocks]."""
        return self.core.program_of(u32(rank, "rank"))

    def finish(self, metadata: Mapping[str, Any] | None = None) -> Graph:
        """The graph. Leaves the builder empty, as when it was made."""
        for builder in self._open.values():
            builder.commit()
        graph = Graph(self.core.finish(dump_metadata(metadata)))
        self._open.clear()
        self._members.clear()
        self._positions.clear()
        return graph


def _ids(ids: Sequence[int] | npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return u32_array(ids, "ids")


def _flat(bindings: Bindings) -> npt.NDArray[np.uint32]:
    if len(bindings) == 0:
        return _NO_IDS
    if isinstance(bindings, np.ndarray) and bindings.dtype == BINDING_DTYPE:
        return np.ascontiguousarray(bindings).view(np.uint32)
    pairs = u32_array(bindings, "bindings")
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise GraphError(
            f"bindings of shape {list(pairs.shape)} found, expected pairs (communicator, position)"
        )
    return pairs.reshape(-1)


def _four(peaks: MemoryPeaks | None) -> tuple[int, int, int, int]:
    if peaks is None:
        return 0, 0, 0, 0
    return (
        values.whole(peaks.requested_bytes, "requested_bytes"),
        values.whole(peaks.allocated_bytes, "allocated_bytes"),
        values.whole(peaks.reserved_bytes, "reserved_bytes"),
        values.whole(peaks.device_bytes, "device_bytes"),
    )
