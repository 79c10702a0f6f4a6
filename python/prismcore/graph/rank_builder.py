"""Writes the program of one rank by hand, in the words of a trainer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from prismcore.errors import GraphError
from prismcore.graph.kernel import Gemm, Kernel
from prismcore.graph.op import (
    MOST_BYTES,
    CopyDirection,
    DataType,
    MarkKind,
    OpArray,
    OpFlag,
    OpKind,
    Provenance,
    Reduction,
)
from prismcore.graph.op_list import OpList
from prismcore.graph.rank import MemoryPeaks
from prismcore.graph.values import u32, whole

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from prismcore.graph.builder import GraphBuilder

__all__ = ["Event", "How", "RankBuilder"]


@dataclass(kw_only=True, slots=True, frozen=True)
class Event:
    """A point on a stream: the ``number``-th record there, from 1."""

    rank: int
    stream: int
    number: int


class How(TypedDict, total=False):
    """What every communication op may say besides its kind and size."""

    duration_ns: int  #: of the transfer, without waiting; 0
    stream: int  #: 0
    dtype: DataType  #: FLOAT32
    host_ns: int  #: 0
    blocking: bool  #: the host waits for the end; False
    provenance: Provenance  #: of duration_ns; MODEL
    call_site: str  #: ``file:line``; not known


class RankBuilder:
    """The ops of one rank, in order; from :meth:`GraphBuilder.rank`.

    Times are integer nanoseconds, sizes bytes. ``host_ns`` is host time spent before the op takes
    effect. ``stream`` is a small number, 0 the default stream. Roots and peers are ranks of the
    world. Communicators are ids that :meth:`GraphBuilder.communicator` gave; the rank must be a
    member. Raises GraphError otherwise.
    """

    def __init__(self, builder: GraphBuilder, rank: int) -> None:
        self._builder = builder
        self.rank = rank
        self.peaks = MemoryPeaks()
        self._ops = OpList(rank)
        self._call_sites: list[int] = []
        self._slots: dict[int, int] = {}
        self._records: dict[int, int] = {}
        self._allocated = 0
        self._reserved = 0
        self._group_site = 0

    # Device and host work.

    def kernel(
        self,
        name: str,
        *,
        duration_ns: int,
        stream: int = 0,
        host_ns: int = 0,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        gemm: Gemm | None = None,
        dtype: DataType = DataType.NONE,
        provenance: Provenance = Provenance.MODEL,
    ) -> None:
        """A kernel of a name, launch shape and, for a matrix product, dimensions."""
        id = self._builder.kernel(Kernel(name=name, grid=grid, block=block, gemm=gemm, dtype=dtype))
        self._ops.add(
            OpKind.KERNEL,
            flags=_flags(provenance, False),
            ref=id,
            stream=stream,
            host_ns=host_ns,
            duration_ns=duration_ns,
        )

    def copy(
        self,
        *,
        bytes: int,
        duration_ns: int,
        direction: CopyDirection = CopyDirection.DEVICE_TO_DEVICE,
        stream: int = 0,
        host_ns: int = 0,
        blocking: bool = False,
        provenance: Provenance = Provenance.MODEL,
    ) -> None:
        """A memory copy; with ``blocking`` the host waits for it."""
        self._ops.add(
            OpKind.COPY,
            flags=_flags(provenance, blocking),
            detail=direction,
            stream=stream,
            host_ns=host_ns,
            duration_ns=duration_ns,
            bytes=bytes,
        )

    def fill(
        self,
        *,
        bytes: int,
        duration_ns: int,
        stream: int = 0,
        host_ns: int = 0,
        provenance: Provenance = Provenance.MODEL,
    ) -> None:
        """A memory set."""
        self._ops.add(
            OpKind.SET,
            flags=_flags(provenance, False),
            stream=stream,
            host_ns=host_ns,
            duration_ns=duration_ns,
            bytes=bytes,
        )

    def host_gap(self, duration_ns: int) -> None:
        """The host is busy elsewhere."""
        self._ops.add(OpKind.HOST_GAP, duration_ns=duration_ns)

    def host_callback(self, duration_ns: int, *, stream: int = 0, host_ns: int = 0) -> None:
        """A host function in stream order: later work on the stream waits for it."""
        self._ops.add(OpKind.HOST_CALLBACK, stream=stream, host_ns=host_ns, duration_ns=duration_ns)

    # Order between streams and host.

    def record(self, *, stream: int = 0, host_ns: int = 0) -> Event:
        """Records an event on a stream."""
        self._ops.add(OpKind.EVENT_RECORD, stream=stream, host_ns=host_ns)
        self._records[stream] = self._records.get(stream, 0) + 1
        return Event(rank=self.rank, stream=stream, number=self._records[stream])

    def wait(self, event: Event, *, stream: int = 0, host_ns: int = 0) -> None:
        """Later work on ``stream`` waits for the event."""
        self._event_op(OpKind.EVENT_WAIT, event, stream=stream, host_ns=host_ns)

    def sync(self, event: Event | None = None, *, stream: int | None = None, host_ns: int = 0) -> None:
        """The host waits for an event, for a stream, or (neither given) for the device."""
        if event is not None and stream is not None:
            raise GraphError(f"rank {self.rank}: sync takes an event or a stream, not both")
        if event is not None:
            self._event_op(OpKind.EVENT_SYNC, event, host_ns=host_ns)
        elif stream is not None:
            self._ops.add(OpKind.STREAM_SYNC, stream=stream, host_ns=host_ns)
        else:
            self._ops.add(OpKind.DEVICE_SYNC, host_ns=host_ns)

    # Memory and marks.

    def allocate(self, bytes: int, *, host_ns: int = 0) -> None:
        """The framework's allocator hands out a block."""
        self._allocated += whole(bytes, "bytes", high=MOST_BYTES)
        self._ops.add(OpKind.ALLOCATE, host_ns=host_ns, bytes=bytes)

    def free(self, bytes: int, *, host_ns: int = 0) -> None:
        """The framework's allocator takes a block back. Raises GraphError for more than is allocated."""
        self._allocated = self._less(self._allocated, bytes, "free", "allocated")
        self._ops.add(OpKind.FREE, host_ns=host_ns, bytes=bytes)

    def reserve(self, bytes: int, *, host_ns: int = 0) -> None:
        """The framework's allocator grows by a device segment."""
        self._reserved += whole(bytes, "bytes", high=MOST_BYTES)
        self._ops.add(OpKind.RESERVE, host_ns=host_ns, bytes=bytes)

    def release(self, bytes: int, *, host_ns: int = 0) -> None:
        """The framework's allocator gives a device segment back. Raises GraphError as :meth:`free`."""
        self._reserved = self._less(self._reserved, bytes, "release", "reserved")
        self._ops.add(OpKind.RELEASE, host_ns=host_ns, bytes=bytes)

    def mark_iteration(self, label: str = "") -> None:
        """An iteration ends here."""
        self._mark(MarkKind.ITERATION, label)

    def mark_micro_batch(self, label: str = "") -> None:
        """A micro-batch begins here."""
        self._mark(MarkKind.MICRO_BATCH, label)

    def mark_phase(self, label: str) -> None:
        """A phase begins here."""
        self._mark(MarkKind.PHASE, label)

    # Communication. ``bytes`` is the larger of this rank's send and receive buffer.

    def all_reduce(
        self, communicator: int, *, bytes: int, reduction: Reduction = Reduction.SUM, **how: Unpack[How]
    ) -> None:
        """Every member ends with the reduction of all members' buffers."""
        self._communicate(OpKind.ALL_REDUCE, communicator, bytes, how, detail=reduction)

    def reduce_scatter(
        self, communicator: int, *, bytes: int, reduction: Reduction = Reduction.SUM, **how: Unpack[How]
    ) -> None:
        """Each member ends with its share of the reduction."""
        self._communicate(OpKind.REDUCE_SCATTER, communicator, bytes, how, detail=reduction)

    def all_gather(self, communicator: int, *, bytes: int, **how: Unpack[How]) -> None:
        """Every member ends with the shares of all."""
        self._communicate(OpKind.ALL_GATHER, communicator, bytes, how)

    def all_to_all(self, communicator: int, *, bytes: int, **how: Unpack[How]) -> None:
        """Every member sends a share to every other."""
        self._communicate(OpKind.ALL_TO_ALL, communicator, bytes, how)

    def broadcast(self, communicator: int, *, root: int, bytes: int, **how: Unpack[How]) -> None:
        """Every member ends with the root's buffer."""
        self._rooted(OpKind.BROADCAST, communicator, root, bytes, how)

    def reduce(
        self,
        communicator: int,
        *,
        root: int,
        bytes: int,
        reduction: Reduction = Reduction.SUM,
        **how: Unpack[How],
    ) -> None:
        """The root ends with the reduction of all members' buffers."""
        self._rooted(OpKind.REDUCE, communicator, root, bytes, how, detail=reduction)

    def gather(self, communicator: int, *, root: int, bytes: int, **how: Unpack[How]) -> None:
        """The root ends with the shares of all."""
        self._rooted(OpKind.GATHER, communicator, root, bytes, how)

    def scatter(self, communicator: int, *, root: int, bytes: int, **how: Unpack[How]) -> None:
        """Each member ends with its share of the root's buffer."""
        self._rooted(OpKind.SCATTER, communicator, root, bytes, how)

    def send(self, communicator: int, *, to: int, bytes: int, tag: int = 0, **how: Unpack[How]) -> None:
        """A message to a rank of the communicator."""
        peer = self._relative(communicator, to)
        self._communicate(OpKind.SEND, communicator, bytes, how, peer=peer, tag=tag)

    def recv(self, communicator: int, *, source: int, bytes: int, tag: int = 0, **how: Unpack[How]) -> None:
        """A message from a rank of the communicator."""
        peer = self._relative(communicator, source)
        self._communicate(OpKind.RECV, communicator, bytes, how, peer=peer, tag=tag)

    @contextmanager
    def group(self) -> Iterator[None]:
        """The communication inside is one launch, as between ncclGroupStart and ncclGroupEnd."""
        if self._ops.is_group_open:  # as in NCCL, the outermost group counts
            yield
            return
        self._ops.open_group()
        self._group_site = 0
        try:
            yield
        finally:
            if self._ops.close_group():
                self._call_sites.append(self._group_site)

    # The rest of the builder's side.

    def ops(self) -> OpArray:
        """The ops so far: an array of ``OP_DTYPE``."""
        return self._ops.array()

    def commit(self) -> None:
        """Gives the rank's ops to the builder; :meth:`GraphBuilder.finish` calls it."""
        if self._ops.is_group_open:
            raise GraphError(f"rank {self.rank}: a group is still open")
        bindings = [(c, self._builder.position(c, self.rank)) for c in self._slots]
        self._builder.set_rank(self.rank, self.ops(), bindings, call_sites=self._call_sites, peaks=self.peaks)

    def _communicate(
        self,
        kind: OpKind,
        communicator: int,
        bytes: int,
        how: How,
        *,
        detail: int = 0,
        peer: int = 0,
        tag: int = 0,
    ) -> None:
        if unknown := how.keys() - How.__annotations__.keys():
            raise TypeError(f"{kind.name.lower()}() got an unexpected keyword argument {min(unknown)!r}")
        self._builder.position(communicator, self.rank)
        self._ops.add(
            kind,
            flags=_flags(how.get("provenance", Provenance.MODEL), how.get("blocking", False)),
            dtype=how.get("dtype", DataType.FLOAT32),
            detail=detail,
            ref=self._slots.setdefault(communicator, len(self._slots)),
            stream=how.get("stream", 0),
            peer=peer,
            tag=tag,
            host_ns=how.get("host_ns", 0),
            duration_ns=how.get("duration_ns", 0),
            bytes=bytes,
        )
        site = self._builder.string(how.get("call_site", ""))
        if self._ops.is_group_open:
            self._group_site = site or self._group_site
        else:
            self._call_sites.append(site)

    def _less(self, held: int, bytes: int, what: str, how: str) -> int:
        if whole(bytes, "bytes", high=MOST_BYTES) > held:
            raise GraphError(f"rank {self.rank}: {what} of {bytes} bytes found, {held} are {how}")
        return held - bytes

    def _rooted(
        self, kind: OpKind, communicator: int, root: int, bytes: int, how: How, *, detail: int = 0
    ) -> None:
        peer = self._builder.position(communicator, root)
        self._communicate(kind, communicator, bytes, how, peer=peer, detail=detail)

    def _event_op(self, kind: OpKind, event: Event, *, stream: int = 0, host_ns: int = 0) -> None:
        if event.rank != self.rank:
            raise GraphError(f"rank {self.rank}: event of rank {event.rank} found, expected an own event")
        recorded = self._records.get(event.stream, 0)
        if not 1 <= u32(event.number, f"rank {self.rank}: event number") <= recorded:
            raise GraphError(
                f"rank {self.rank}: event {event.number} of stream {event.stream} found, expected one of the "
                f"{recorded} recorded there"
            )
        self._ops.add(
            kind,
            stream=stream,
            event_stream=event.stream,
            peer=recorded - event.number + 1,
            host_ns=host_ns,
        )

    def _relative(self, communicator: int, other: int) -> int:
        position = self._builder.position
        size = len(self._builder.members(communicator))
        return (position(communicator, other) - position(communicator, self.rank)) % size

    def _mark(self, kind: MarkKind, label: str) -> None:
        self._ops.add(OpKind.MARK, detail=kind, ref=self._builder.string(label))


def _flags(provenance: Provenance, blocking: bool) -> int:
    source = whole(provenance, "provenance", high=max(Provenance))
    return source | (OpFlag.BLOCKING if blocking else 0)
