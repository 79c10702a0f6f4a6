"""A rank's record on a real GPU: what CUPTI tells, beside what the doors note, as the graph of one rank.

CUPTI's activity records are joined to ops in the core (``csrc/device/cupti``). Where CUPTI cannot be had,
communication, the framework's allocator and marks are still recorded, and the warnings say what is not.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismcore import _core
from prismcore.errors import CuptiError
from prismcore.graph import Graph, MarkKind

__all__ = ["FinishedRecord", "GpuRecord", "GpuRecordOptions", "Peaks", "find_cupti"]


@dataclass(kw_only=True, slots=True, frozen=True)
class GpuRecordOptions:
    """How a rank is recorded.

    ``cupti``: path of ``libcupti.so.13``; None: the one that the process has loaded, else that of torch's
    wheels. ``require_cupti``: without it, raise instead of recording communication alone.
    ``buffers`` of ``buffer_bytes`` each are all that CUPTI writes into; where they are full it drops
    records, which the warnings tell. ``gaps_as_callbacks``: time between when an op could begin and when it
    began is a host callback before the op instead of a part of it.
    """

    rank: int
    world_size: int
    cupti: Path | None = None
    require_cupti: bool = False
    buffers: int = 32
    buffer_bytes: int = 2 << 20
    gaps_as_callbacks: bool = False


@dataclass(kw_only=True, slots=True, frozen=True)
class Peaks:
    """Peaks of the framework's allocator, and of the device in all, bytes."""

    requested_bytes: int = 0
    allocated_bytes: int = 0
    reserved_bytes: int = 0
    device_bytes: int = 0


@dataclass(kw_only=True, slots=True)
class FinishedRecord:
    """The graph of the rank, what was counted while it was made, and what of it is less than measured."""

    graph: Graph
    counts: dict[str, int]
    warnings: list[str] = field(default_factory=list)


class GpuRecord:
    """One recording; a process has one at a time.

    Raises CuptiError: from the constructor where CUPTI is required and cannot be had, or a recording is
    under way; from ``finish`` never for what CUPTI loses on the way, which the warnings tell.
    """

    def __init__(self, options: GpuRecordOptions) -> None:
        self._warnings: list[str] = []
        if _core.cupti_active():
            raise CuptiError("a recording of this process is under way: finish it first")
        path = options.cupti or (None if _is_loaded() else find_cupti())
        try:
            self._start(options, use_cupti=True, library="" if path is None else str(path))
        except CuptiError as refused:
            if options.require_cupti:
                raise
            self._warnings.append(
                f"kernels, copies and host gaps are not recorded, only communication: {refused}"
            )
            self._start(options, use_cupti=False, library="")

    @staticmethod
    def _start(options: GpuRecordOptions, *, use_cupti: bool, library: str) -> None:
        _core.cupti_start(
            options.rank,
            options.world_size,
            use_cupti=use_cupti,
            library=library,
            buffers=options.buffers,
            buffer_bytes=options.buffer_bytes,
            gaps_as_callbacks=options.gaps_as_callbacks,
        )

    @property
    def iterations(self) -> int:
        """Iteration marks so far."""
        return int(_core.cupti_num_iterations())

    def mark(self, kind: MarkKind, label: str = "") -> None:
        """Notes a boundary; at the end of an iteration what CUPTI has is fetched, beside the program."""
        _core.cupti_mark(kind.name.lower(), label)
        if kind is MarkKind.ITERATION:
            _core.cupti_flush()

    def abandon(self) -> None:
        """Ends the recording without a graph."""
        with contextlib.suppress(CuptiError):
            _core.cupti_stop()

    def finish(
        self,
        *,
        peaks: Peaks,
        call_sites: Sequence[str] = (),
        synchronise: Callable[[], object] = lambda: None,
        metadata: dict[str, Any] | None = None,
    ) -> FinishedRecord:
        """Ends the recording. ``synchronise`` waits for the device, so that what runs has its times; it is
        not recorded itself. ``call_sites``: of the communication launches, in order."""
        _core.cupti_seal()
        synchronise()
        warnings = [*self._warnings]
        try:
            _core.cupti_stop()
        except CuptiError as lost:
            warnings.append(f"the record is not whole: {lost}")
        four = [peaks.requested_bytes, peaks.allocated_bytes, peaks.reserved_bytes, peaks.device_bytes]
        graph = Graph(_core.cupti_finish(four, list(call_sites), json.dumps(metadata or {})))
        counts: dict[str, int] = json.loads(_core.cupti_report())
        return FinishedRecord(graph=graph, counts=counts, warnings=warnings + _told(counts))


def find_cupti() -> Path | None:
    """``libcupti.so.13`` of the wheel that torch requires; torch is not imported. None: not there."""
    spec = importlib.util.find_spec("nvidia")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "cu13/lib/libcupti.so.13"
        if path.is_file():
            return path
    return None


def _is_loaded() -> bool:
    return "/libcupti.so.13" in Path("/proc/self/maps").read_text()


def _told(counts: dict[str, int]) -> list[str]:
    """What was lost, in one line each."""
    lines = {
        "dropped_records": "records were dropped by CUPTI: give it more or larger buffers",
        "refused_buffers": "times CUPTI asked for a buffer and none was free: give it more or larger ones",
        "damaged_buffers": "buffers of CUPTI ended in a record that is not whole: what was behind is missing",
        "orphans": "device ops have no host call in the record: placed where they began",
        "lost_work": "launches and copies have no device op in the record: another profiler may hold CUPTI",
        "untimed": "device ops have no times: they last 0 ns, of unknown provenance",
        "untold_syncs": "waits, records or queries do not say of what: their time counts as the host's",
        "guessed_callbacks": "host callbacks were put on the stream that their thread used last",
        "untimed_notes": "notes of the doors have no time of their own: CUPTI did not tell the time",
    }
    return [f"{counts[name]:,} {text}" for name, text in lines.items() if counts.get(name)]
