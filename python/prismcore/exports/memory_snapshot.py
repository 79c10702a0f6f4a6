"""The allocator of a rank over a replay, as ``torch.cuda.memory._snapshot()`` gives it.

For https://pytorch.org/memory_viz and ``torch.cuda._memory_viz``. Sizes and their order are those of the
graph, times those of the replay; addresses are made up (``memory_blocks``).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np

from prismcore.errors import GraphError
from prismcore.exports.call_sites import Frame, frames_of
from prismcore.exports.memory_blocks import Block, Blocks, segment_for
from prismcore.exports.rank_times import RankTimes, replays
from prismcore.graph import Graph, MarkKind, OpKind

__all__ = ["MemorySize", "write_memory_snapshot"]

_MEMORY = (OpKind.ALLOCATE, OpKind.FREE, OpKind.RESERVE, OpKind.RELEASE)


@dataclass(kw_only=True, slots=True, frozen=True)
class MemorySize:
    """What was written. Bytes at their peaks are those of the events."""

    rank: int
    allocations: int
    segments: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    warnings: list[str]


def write_memory_snapshot(out: BinaryIO, graph: Graph, rank: int) -> MemorySize:
    """Pickles the snapshot of a rank at the end of its program, with all events on the way.

    Raises GraphError where the rank is absent or allocates nothing, and what ``prismcore.replay`` raises.
    """
    graph.rank(rank)
    (_, (times,)) = next(replays(graph, [rank]))
    trace = _Trace()
    sites = graph.program_call_sites(times.rank.program)
    names = [graph.communicator(id).name for id in times.rank.bindings["communicator"].tolist()]
    for kind, size, time_us, frames in _events(graph, times, sites, names):
        if kind == OpKind.MARK:
            trace.annotate(time_us)
        else:
            trace.add(OpKind(kind), size, time_us, frames)
    if not trace.allocations:
        raise GraphError(f"rank {rank} allocates nothing, expected a graph that holds its allocations")
    pickle.dump(trace.snapshot(), out, protocol=4)
    return MemorySize(
        rank=rank,
        allocations=trace.allocations,
        segments=trace.segments,
        peak_allocated_bytes=trace.peak_allocated,
        peak_reserved_bytes=trace.peak_reserved,
        warnings=_warnings(trace, times.rank.peaks.allocated_bytes),
    )


def _events(
    graph: Graph, times: RankTimes, sites: list[str], names: list[str]
) -> Iterator[tuple[int, int, int, list[Frame]]]:
    """Kind, size, time and frames of what happens to memory, and of ends of iterations."""
    ops = times.ops
    clock = np.maximum.accumulate(np.maximum(times.host_ns, 0)) if len(ops) else times.host_ns
    wanted = np.isin(ops["kind"], _MEMORY)
    wanted |= (ops["kind"] == OpKind.MARK) & (ops["detail"] == MarkKind.ITERATION)
    places = np.flatnonzero(wanted)
    last = np.searchsorted(times.position, np.arange(len(sites)), "right") - 1
    frames: dict[int, list[Frame]] = {}
    for place, position in zip(places.tolist(), times.position[places].tolist(), strict=True):
        if position not in frames:
            frames = {position: _before(ops[int(last[position])], sites[position], names)}
        yield int(ops["kind"][place]), int(ops["bytes"][place]), int(clock[place]) // 1000, frames[position]


def _before(op: Any, site: str, names: list[str]) -> list[Frame]:
    """Call sites stand at communication alone: what is in front of one says so."""
    frames = frames_of(site)
    kind = OpKind(int(op["kind"]))
    if frames and kind.is_communication:
        where = f"before {kind.name.lower()} on {names[int(op['ref'])]}"
        return [Frame(name=where, filename=frames[0]["filename"], line=frames[0]["line"]), *frames]
    return frames


@dataclass(kw_only=True, slots=True)
class _Trace:
    """Events so far, and the blocks that they leave."""

    blocks: Blocks = field(default_factory=Blocks)
    events: list[dict[str, Any]] = field(default_factory=list)
    annotations: list[dict[str, Any]] = field(default_factory=list)
    frames: dict[int, list[Frame]] = field(default_factory=dict)  #: of live blocks and segments, by address
    allocations: int = 0
    segments: int = 0
    told: int = 0  #: segments that the graph told of
    added: int = 0  #: segments that it did not
    added_bytes: int = 0
    odd: int = 0  #: frees and releases that fit no block or segment
    allocated: int = 0
    reserved: int = 0
    peak_allocated: int = 0
    peak_reserved: int = 0

    def annotate(self, time_us: int) -> None:
        name = f"iteration {len(self.annotations)}"
        self.annotations.append({"name": name, "stage": "END", "device": 0, "time_us": time_us})

    def add(self, kind: OpKind, size: int, time_us: int, frames: list[Frame]) -> None:
        if size == 0:
            return
        if kind == OpKind.ALLOCATE:
            self.allocations += 1
            self._allocate(size, time_us, frames)
        elif kind == OpKind.FREE:
            self._free(size, time_us, frames)
        elif kind == OpKind.RESERVE:
            self.told += 1
            self._reserve(size, time_us, frames)
        elif (segment := self.blocks.release(size)) is not None:
            self.reserved -= size
            self._event("segment_free", segment.address, size, time_us, frames)
        else:
            self.odd += 1

    def _reserve(self, size: int, time_us: int, frames: list[Frame], *, small: bool | None = None) -> None:
        segment = self.blocks.reserve(size, small=small)
        self.segments += 1
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        self._event("segment_alloc", segment.address, size, time_us, frames)

    def _allocate(self, size: int, time_us: int, frames: list[Frame]) -> None:
        block = self.blocks.allocate(size)
        if block is None:
            segment = segment_for(size)
            self.added += 1
            self.added_bytes += segment
            self._reserve(segment, time_us, frames, small=segment == segment_for(1))
            block = self.blocks.allocate(size)
            assert block is not None
        self.allocated += size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.frames[block.address] = frames
        self._event("alloc", block.address, size, time_us, frames)

    def _free(self, size: int, time_us: int, frames: list[Frame]) -> None:
        block = self.blocks.free(size)
        if block is not None:
            self._freed(block, time_us, frames)
            return
        # Parts of blocks: what remains of one is allocated again, in the same moment.
        self.odd += 1
        while size > 0:
            larger = self.blocks.newest_at_least(size)
            of = larger or next(reversed(self.blocks.live.values()), 0)
            block = self.blocks.free(of) if of else None
            if block is None:
                return
            self._freed(block, time_us, frames)
            if of > size:
                self._allocate(of - size, time_us, frames)
            size -= min(of, size)

    def _freed(self, block: Block, time_us: int, frames: list[Frame]) -> None:
        self.allocated -= block.size
        del self.frames[block.address]
        for action in ("free_requested", "free_completed"):
            self._event(action, block.address, block.size, time_us, frames)

    def _event(self, action: str, address: int, size: int, time_us: int, frames: list[Frame]) -> None:
        self.events.append(
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": 0,
                "time_us": time_us,
                "pool_id": (0, 0),
                "compile_context": "N/A",
                "user_metadata": "",
                "frames": frames,
            }
        )

    def snapshot(self) -> dict[str, Any]:
        """In the keys of torch 2.14."""
        live = sorted(self.blocks.live.items())
        at, segments = 0, []
        for segment in sorted(self.blocks.segments.values(), key=lambda s: s.address):
            end, cursor, blocks = segment.address + segment.size, segment.address, []
            while at < len(live) and live[at][0] < end:
                address, size = live[at]
                if address > cursor:
                    blocks.append(_block(cursor, address - cursor, "inactive", []))
                blocks.append(_block(address, size, "active_allocated", self.frames[address]))
                cursor, at = address + size, at + 1
            if cursor < end:
                blocks.append(_block(cursor, end - cursor, "inactive", []))
            active = sum(block["size"] for block in blocks if block["state"] == "active_allocated")
            segments.append(
                {
                    "device": 0,
                    "address": segment.address,
                    "total_size": segment.size,
                    "allocated_size": active,
                    "active_size": active,
                    "requested_size": active,
                    "stream": 0,
                    "segment_type": "small" if segment.small else "large",
                    "segment_pool_id": (0, 0),
                    "is_expandable": False,
                    "frames": [],
                    "blocks": blocks,
                }
            )
        return {
            "segments": segments,
            "device_traces": [self.events],
            "host_segments": [],
            "host_traces": [],
            "allocator_settings": {"expandable_segments": False},
            "external_annotations": self.annotations,
        }


def _block(address: int, size: int, state: str, frames: list[Frame]) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": size, "state": state, "frames": frames}


def _warnings(trace: _Trace, recorded: int) -> list[str]:
    warnings = []
    if not trace.told:
        warnings.append("the graph holds no segments; they are made up as torch's allocator would")
    elif trace.added:
        warnings.append(
            f"{trace.added:,} allocations found no room in the segments of the graph, whose addresses are "
            f"made up; {trace.added:,} more of {trace.added_bytes:,} bytes stand beside them"
        )
    if trace.odd:
        warnings.append(f"{trace.odd:,} frees or releases fit no block or segment of their size as a whole")
    if recorded and recorded != trace.peak_allocated:
        warnings.append(
            f"the peak of the events is {trace.peak_allocated:,} bytes, that of the recording {recorded:,}"
        )
    return warnings
