"""Collects ops of many ranks, in order, until they are columns of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prismcore.comm import collective_cost, p2p_cost
from prismcore.errors import TraceError
from prismcore.graph import DataType, Graph, Kernel, MarkKind, OpFlag, OpKind, Provenance
from prismcore.profiles.cluster import ClusterProfile
from prismcore.rank_list import MAX_RANK
from prismcore.stitch.meetings import Meetings
from prismcore.stitch.programs import RowOps, build_graph
from prismcore.stitch.rows import Ints, Rows
from prismcore.stitch.timing import Timing
from prismcore.stitch.waits import Waits
from prismcore.traces.collectives import Collective, Members, find_meetings, with_trace
from prismcore.traces.messages import Message, match_messages

__all__ = ["HOST", "OpColumns"]

#: The lane of the host; those above are streams.
HOST = 0


@dataclass(kw_only=True, slots=True)
class OpColumns:
    """Rows, rank by rank in ascending order; begin and end of a row are 0 where they are not known."""

    warnings: list[str] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    lane: list[int] = field(default_factory=list)
    kind: list[int] = field(default_factory=list)
    kernel: list[int] = field(default_factory=list)
    duration_ns: list[int] = field(default_factory=list)
    start_ns: list[int] = field(default_factory=list)
    end_ns: list[int] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    dtype: list[int] = field(default_factory=list)
    provenance: list[int] = field(default_factory=list)
    tag: list[int] = field(default_factory=list)
    detail: list[int] = field(default_factory=list)
    root: list[int] = field(default_factory=list)  #: rank of the root of a collective; -1
    launch: list[int] = field(default_factory=list)  #: first row of the launch
    waits: list[Mapping[int, int]] = field(default_factory=list)  #: lane -> row
    kernels: dict[Kernel, int] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)  #: of iterations
    collectives: dict[int, list[Collective]] = field(default_factory=dict)  #: by rank, in order
    messages: list[Message] = field(default_factory=list)
    unmeasured: dict[int, Members] = field(default_factory=dict)
    """Rows of communication without a duration, and the ranks that take part."""
    late: set[int] = field(default_factory=set)  #: ranks whose traces begin after those of others

    def add(
        self,
        rank: int,
        lane: int,
        kind: OpKind,
        *,
        kernel: Kernel | None = None,
        span: tuple[int, int] = (0, 0),
        duration_ns: int | None = None,
        bytes: int = 0,
        dtype: DataType = DataType.NONE,
        provenance: Provenance = Provenance.UNKNOWN,
        tag: int = 0,
        detail: int = 0,
        root: int = -1,
        blocking: bool = False,
        launch: int | None = None,
        waits: Mapping[int, int] | None = None,
    ) -> int:
        """Appends a row and returns its number. ``span``: begin and end, ns; the duration is its length
        where it is not given."""
        row = len(self.rank)
        self.rank.append(rank)
        self.lane.append(lane)
        self.kind.append(int(kind))
        self.kernel.append(-1 if kernel is None else self.kernels.setdefault(kernel, len(self.kernels)))
        self.start_ns.append(span[0])
        self.end_ns.append(span[1])
        self.duration_ns.append(span[1] - span[0] if duration_ns is None else duration_ns)
        self.bytes.append(bytes)
        self.dtype.append(int(dtype))
        self.provenance.append(int(provenance) | (int(OpFlag.BLOCKING) if blocking else 0))
        self.tag.append(tag)
        self.detail.append(detail)
        self.root.append(root)
        self.launch.append(row if launch is None else launch)
        self.waits.append(dict(waits or {}))
        return row

    def mark(self, rank: int, number: int, at_ns: int = 0, kind: MarkKind = MarkKind.ITERATION) -> int:
        """A mark on the host, as the end of an iteration; ``number`` counts into ``labels``."""
        row = self.add(rank, HOST, OpKind.MARK, span=(at_ns, at_ns), detail=int(kind))
        self.kernel[row] = number
        return row

    def rows(self) -> Rows:
        """All rows."""
        count = len(self.rank)
        return Rows(
            rank=_ints(self.rank),
            step=np.zeros(count, dtype=np.int64),
            lane=_ints(self.lane),
            launch=_ints(self.launch),
            start_ns=_ints(self.start_ns),
            end_ns=_ints(self.end_ns),
        )

    def wait_table(self) -> Waits:
        """Waits that were given, and those of each row for the one before it on its lane, and on the
        host, of its rank."""
        table = np.full((len(self.rank), max(self.lane) + 1), -1, dtype=np.int64)
        last: dict[tuple[int, int], int] = {}
        for row, (rank, lane, on) in enumerate(zip(self.rank, self.lane, self.waits, strict=True)):
            for other, waited in on.items():
                table[row, other] = waited
            table[row, HOST] = last.get((rank, HOST), -1)
            table[row, lane] = last.get((rank, lane), -1)
            last[rank, lane] = row
        return table

    def matched(self) -> tuple[RowOps, Meetings]:
        """What each row is once collectives and messages of all ranks are matched. What has no other
        side is communication of the rank with itself; what does not fit is told in ``warnings``."""
        count = len(self.rank)
        present = sorted(set(self.rank))
        of_ranks = [(rank, self.collectives.get(rank, [])) for rank in present]
        meetings, found = find_meetings(of_ranks, count, self.warnings)
        sizes, kinds = _ints(self.bytes), _ints(self.kind)
        dtypes = _ints(self.dtype)
        for _, collectives in of_ranks:
            for collective in collectives:
                sizes[collective.row] = collective.bytes or 0
        met = np.flatnonzero(meetings.size > 1)
        first = np.full(count, -1)
        first[meetings.id[met[::-1]]] = met[::-1]
        dtypes[met] = dtypes[first[meetings.id[met]]]  # a check of the replay, no figure
        ref, peer = np.where(found.ref >= 0, found.ref, _ints(self.kernel)), _ints(self.root)
        communicators = list(found.communicators)
        ids: dict[tuple[str, tuple[int, ...]], int] = {}
        keys: dict[tuple[str, Members], tuple[str, tuple[int, ...]]] = {}
        of = {message.row: message for message in self.messages}
        pairs, alone = match_messages(self.messages, set(present), self.warnings, self.late)
        for row in np.flatnonzero(peer >= 0).tolist():
            if found.ref[row] < 0 or peer[row] not in communicators[int(found.ref[row])][1]:
                peer[row] = -1
        for send, receive in pairs:
            for row in (send, receive):
                message = of[row]
                if message.communicator not in keys:
                    name, members = message.communicator
                    keys[message.communicator] = (name, with_trace(members, present))
                key = keys[message.communicator]
                ref[row] = ids.setdefault(key, len(communicators) + len(ids))
                peer[row] = message.target if message.sends else message.source
            dtypes[receive] = dtypes[send]
        for row in alone:
            kinds[row] = OpKind.BROADCAST  # of the one rank to itself
            key = (of[row].communicator[0], (self.rank[row],))
            ref[row] = ids.setdefault(key, len(communicators) + len(ids))
        id = meetings.id.copy()
        for send, receive in pairs:
            id[receive] = id[send]
        id = np.unique(id, return_inverse=True)[1].reshape(-1)
        ops = RowOps(
            kind=kinds,
            ref=ref,
            peer=peer,
            tag=_ints(self.tag),
            kernels=list(self.kernels),
            communicators=[*communicators, *ids],
            bytes=sizes,
            dtype=dtypes,
            provenance=_ints(self.provenance),
            detail=_ints(self.detail),
            has_host=True,
        )
        return ops, Meetings(id=id, size=np.bincount(id)[id])

    def model(self, cluster: ClusterProfile, ops: RowOps) -> int:
        """Gives communication without a duration that of the model of ``prismcore.comm``, once sizes are
        matched; returns the number of these rows."""
        core = cluster.to_core()
        known: dict[tuple[int, int, Members], int] = {}
        kinds, sizes = _ints(self.kind), ops.bytes
        for row, ranks in self.unmeasured.items():
            kind, size = OpKind(int(kinds[row])), int(sizes[row]) if sizes is not None else 0
            key = (int(kind), size, ranks)
            if key not in known:
                if kind in (OpKind.SEND, OpKind.RECV):
                    near = len({rank // cluster.gpus_per_node for rank in ranks}) == 1
                    cost = p2p_cost(size, same_node=near, cluster=core)
                else:
                    cost = collective_cost(kind.name.lower(), size, ranks, cluster=core)
                known[key] = cost.duration_ns
            self.duration_ns[row] = known[key]
            self.provenance[row] = int(Provenance.MODEL) | self.provenance[row] & int(OpFlag.BLOCKING)
        ops.provenance = _ints(self.provenance)
        return len(self.unmeasured)

    def graph(
        self,
        *,
        world_size: int,
        matched: RowOps,
        waits: Waits,
        timing: Timing | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Graph:
        """The rows as a graph; without ``timing`` with the durations that were given, and no gaps.

        Raises TraceError for a world larger than a graph holds.
        """
        if world_size > MAX_RANK + 1:
            raise TraceError(f"a world of {world_size:,} ranks found, expected at most {MAX_RANK + 1:,}")
        if timing is None:
            timing = Timing(
                gap_ns=np.zeros(len(self.rank), dtype=np.int64), duration_ns=_ints(self.duration_ns)
            )
        return build_graph(
            self.rows(), matched, waits, timing, world_size=world_size, steps=self.labels, metadata=metadata
        )


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)
