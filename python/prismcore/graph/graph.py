"""The execution graph of a job, as Python sees it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from prismcore import _core
from prismcore.errors import GraphError, PrismError
from prismcore.graph.kernel import Kernel
from prismcore.graph.metadata import load_metadata
from prismcore.graph.op import BINDING_DTYPE, OP_DTYPE, OpArray, OpKind, Provenance
from prismcore.graph.rank import Communicator, MemoryPeaks, Rank, RankOrigin
from prismcore.graph.values import u32, u32_array
from prismcore.outputs import file_target

__all__ = ["Graph", "Statistics"]


@dataclass(kw_only=True, slots=True, frozen=True)
class Statistics:
    """What a program amounts to, blocks expanded."""

    ops: int
    iterations: int
    bytes_sent: int  #: sum of ``bytes`` of communication ops except recv
    by_kind: dict[OpKind, int]  #: ops of each kind that occurs
    device_ns: dict[Provenance, int]  #: kernels, copies, sets and communication, by provenance

    @property
    def communication(self) -> dict[OpKind, int]:
        """Communication ops by kind."""
        return {kind: count for kind, count in self.by_kind.items() if kind.is_communication}


class Graph:
    """Every rank's ops, read-only: blocks stored once, programs as lists of blocks.

    Made by :meth:`open`, :meth:`from_bytes` or :meth:`GraphBuilder.finish`. Arrays point into the
    graph's memory and keep it alive. May lack ranks: :attr:`ranks` says which it holds.
    """

    __slots__ = ("core",)

    def __init__(self, core: _core.Graph) -> None:
        #: The C++ graph, for calls into ``prismcore._core``.
        self.core = core

    @staticmethod
    def open(path: str | os.PathLike[str]) -> Graph:
        """Maps a ``.prism`` file. Raises GraphFormatError if damaged, GraphError if unreadable."""
        return Graph(_core.Graph.open(_encoded(path)))

    @staticmethod
    def from_bytes(data: bytes) -> Graph:
        """A graph from the bytes of a ``.prism`` file. Raises GraphFormatError if damaged."""
        return Graph(_core.Graph.from_bytes(data))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file whole or not at all; what a link leads to, where `path` is one.

        Raises GraphError if it cannot be written, or is a folder, a device or a pipe.
        """
        name = os.fsdecode(_encoded(path))
        try:
            target = file_target(name)
        except PrismError as error:
            raise GraphError(str(error)) from None
        except OSError as error:
            raise GraphError(f"{name}: cannot be written: {error.strerror}") from error
        self.core.save(_encoded(target))

    def to_bytes(self) -> bytes:
        """The bytes of the ``.prism`` file."""
        return self.core.to_bytes()

    @property
    def world_size(self) -> int:
        return self.core.world_size

    @property
    def iterations(self) -> int:
        """Iteration marks of the rank that has most of them."""
        return self.core.iterations

    @property
    def metadata(self) -> dict[str, Any]:
        """What was noted of the job: device, cluster, command, version, ..."""
        return load_metadata(self.core.metadata)

    @property
    def ranks(self) -> npt.NDArray[np.uint32]:
        """The ranks the graph holds, rising; shape [ranks]."""
        return self.core.ranks()

    def has_rank(self, rank: int) -> bool:
        return isinstance(rank, (int, np.integer)) and 0 <= rank < 2**32 and self.core.has_rank(int(rank))

    def rank(self, rank: int) -> Rank:
        """Program, class, origin, memory peaks and communicators of a rank. Raises GraphError if absent."""
        program, rank_class, origin, peaks = self.core.rank(u32(rank, "rank"))
        requested, allocated, reserved, device = peaks
        return Rank(
            rank=rank,
            program=program,
            rank_class=rank_class,
            origin=RankOrigin(origin),
            peaks=MemoryPeaks(
                requested_bytes=requested,
                allocated_bytes=allocated,
                reserved_bytes=reserved,
                device_bytes=device,
            ),
            bindings=self.core.bindings(rank).view(BINDING_DTYPE),
        )

    @property
    def num_blocks(self) -> int:
        return self.core.num_blocks

    @property
    def num_ops(self) -> int:
        """Ops stored; :meth:`ops` of a rank has more where blocks repeat."""
        return self.core.num_ops

    @property
    def num_programs(self) -> int:
        """Programs stored: each list of blocks once for each list of call sites. See :meth:`rank_class`."""
        return self.core.num_programs

    def rank_class(self, program: int) -> int:
        """The class of the ranks that run a program: the lowest program with the same blocks."""
        return self.core.rank_class(u32(program, "program"))

    @property
    def rank_classes(self) -> list[int]:
        """The rank classes, each by its lowest program, rising."""
        return [p for p in range(self.num_programs) if self.rank_class(p) == p]

    @property
    def num_communicators(self) -> int:
        return self.core.num_communicators

    @property
    def num_kernels(self) -> int:
        return self.core.num_kernels

    @property
    def file_bytes(self) -> int:
        return self.core.file_bytes

    @property
    def block_offsets(self) -> npt.NDArray[np.uint64]:
        """Where each block begins among the stored ops; shape [blocks + 1]."""
        return self.core.block_offsets()

    def program_stretches(self, program: int) -> list[npt.NDArray[np.uint32]]:
        """The program's block ids, cut after each communication launch (a long stretch without
        communication is several blocks)."""
        blocks = self.program_blocks(program)
        last_kinds = np.array([self.block(int(block))["kind"][-1] for block in np.unique(blocks)])
        launches = last_kinds[np.unique(blocks, return_inverse=True)[1]] >= OpKind.ALL_REDUCE
        cuts = np.flatnonzero(launches) + 1
        return [part for part in np.split(blocks, cuts) if len(part)]

    def program_blocks(self, program: int) -> npt.NDArray[np.uint32]:
        """Block ids of a program in order; shape [blocks of the program]."""
        return self.core.program_blocks(u32(program, "program"))

    def program_call_sites(self, program: int) -> list[str]:
        """The call site of each block's closing op, ``""`` where not known."""
        names: dict[int, str] = {}
        ids = self.core.program_call_sites(u32(program, "program")).tolist()
        for i in ids:
            if i not in names:
                names[i] = self.core.string(i)
        return [names[i] for i in ids]

    def block(self, block: int) -> OpArray:
        """The ops of a block: an array of ``OP_DTYPE``."""
        return self.blocks([block])

    def blocks(self, blocks: Sequence[int] | npt.NDArray[np.uint32]) -> OpArray:
        """The ops of several blocks, one after the other: an array of ``OP_DTYPE``."""
        ids = u32_array(blocks, "blocks")
        return self.core.read_blocks(ids).view(OP_DTYPE)

    def ops(self, rank: int) -> OpArray:
        """All ops of a rank, blocks expanded: an array of ``OP_DTYPE``."""
        return self.blocks(self.program_blocks(self.rank(rank).program))

    def communicator(self, id: int) -> Communicator:
        """Raises GraphError if there is none of that id."""
        u32(id, "communicator")
        return Communicator(
            id=id, name=self.core.communicator_name(id), members=self.core.communicator_members(id)
        )

    def kernel(self, id: int) -> Kernel:
        """Raises GraphError if there is none of that id."""
        u32(id, "kernel")
        return Kernel.from_core(self.core.kernel_name(id), self.core.kernel_shape(id))

    def digest(self) -> str:
        """Names the content: ranks in order, their expanded programs, communicators by member list,
        kernels by name and shape; no call sites, no provenance, no numbering. 32 hex digits."""
        return self.core.digest()

    def communication_digest(self) -> str:
        """The same of communication ops alone, without times and streams. 32 hex digits."""
        return self.core.communication_digest()

    def rank_digests(self, *, communication_only: bool = False) -> list[str]:
        """One digest a rank, in the order of :attr:`ranks`: where two graphs differ."""
        return self.core.rank_digests(communication_only)

    def program_statistics(self, program: int) -> Statistics:
        """What one run of a program amounts to. Raises GraphError if there is none of that id."""
        ops, iterations, bytes_sent, by_kind, device_ns = self.core.program_statistics(
            u32(program, "program")
        )
        return Statistics(
            ops=ops,
            iterations=iterations,
            bytes_sent=bytes_sent,
            by_kind={kind: by_kind[kind] for kind in OpKind if by_kind[kind]},
            device_ns={source: device_ns[source] for source in Provenance},
        )

    def statistics(self, rank: int) -> Statistics:
        """What a rank's program amounts to. Raises GraphError if the rank is absent."""
        return self.program_statistics(self.rank(rank).program)

    def string(self, id: int) -> str:
        """A string of the graph (labels of marks, call sites); id 0 is ``""``."""
        return self.core.string(u32(id, "string"))

    def __repr__(self) -> str:
        return (
            f"Graph(world_size={self.world_size}, ranks={len(self.ranks)}, programs={self.num_programs}, "
            f"blocks={self.num_blocks}, ops={self.num_ops}, iterations={self.iterations})"
        )


def _encoded(path: str | os.PathLike[str]) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:  # the system would end the name there, and write another file
        raise GraphError(f"path {os.fspath(path)!r} holds a null byte, expected a name of a file")
    return name
