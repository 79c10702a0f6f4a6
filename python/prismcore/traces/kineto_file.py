"""Reads one trace of torch's profiler (Kineto: Chrome's JSON, gzip or not) into columns."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prismcore import _core
from prismcore.errors import TraceError
from prismcore.graph.origin import PROVENANCE
from prismcore.traces.trace_formats import OtherFormatError

__all__ = ["KinetoTrace", "read_kineto"]

_Ints = npt.NDArray[np.int64]
_Ids = npt.NDArray[np.uint32]

#: Arguments kept of every event; torch writes them to NCCL's kernels from 2.3 on.
DETAILS = (
    "Collective name",
    "Process Group Name",
    "Process Group Description",
    "Process Group Ranks",
    "Group size",
    "Global rank start",
    "Global rank stride",
    "In msg nelems",
    "Out msg nelems",
    "dtype",
    "Seq",
    "Src Rank",
    "Dst Rank",
    "wait_on_stream",
    "wait_on_cuda_event_record_corr_id",
    PROVENANCE,
)
#: The event that torch writes for each call of torch.distributed, and what is kept of it in addition.
COMMUNICATION = "record_param_comms"
#: Ops whose kernels are matrix products; of them the same is kept, where shapes were recorded.
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
#: Ranges around collectives, which tell shapes that older records lack.
RANGES = tuple(
    f"nccl:{name}"
    for name in ("all_reduce", "all_gather", "_all_gather_base", "reduce_scatter", "_reduce_scatter_base",
                 "all_to_all", "broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "gather", "scatter")
)  # fmt: skip
NAMED_DETAILS = ("Concrete Inputs", "Input Dims", "Input type", "Ev Idx")
#: Stacks of Python functions are most of a trace that has them, and tell nothing here.
LEFT_OUT = ("python_function",)
_NO_TRACE = "no traceEvents found"  # as the core says it

#: Where a file name holds a rank: ``rank3_trace.json``, ``kineto_rank_3.json.gz``, ``worker3_step_12...``.
_RANK = re.compile(r"(?:rank|worker|gpu)[-_.]?(\d+)", re.IGNORECASE)


@dataclass(kw_only=True, slots=True)
class KinetoTrace:
    """Events with a duration; arrays have shape [events], in the order of the file; -1: not given."""

    path: str
    rank: int | None  #: as the trace, else the file's name says
    world_size: int | None
    header: dict[str, Any]  #: what stands beside the events
    strings: list[str]
    name: _Ids  #: into ``strings``, as the next two
    category: _Ids
    thread: _Ids
    start_ns: _Ints
    end_ns: _Ints
    correlation: _Ints
    device: _Ints
    stream: _Ints
    bytes: _Ints
    launched: _Ids  #: kernels whose launch is told, shape [launched]
    launches: _Ids  #: grid, block and shared bytes of those, shape [launched, 7]
    details: dict[int, dict[str, str]]  #: by event: arguments, as texts or JSON
    text_bytes: int  #: length of the JSON
    warnings: list[str] = field(default_factory=list)

    def of(self, *categories: str) -> _Ints:
        """Events of these categories, as older and newer versions spell them (``kernel``, ``Kernel``)."""
        wanted = {c.lower() for c in categories}
        ids = [i for i, text in enumerate(self.strings) if text.lower() in wanted]
        return np.flatnonzero(np.isin(self.category, ids))

    def texts(self, events: _Ints) -> list[str]:
        """Names of events."""
        return [self.strings[i] for i in self.name[events].tolist()]


def read_kineto(path: str | os.PathLike[str], *, name: str | None = None) -> KinetoTrace:
    """Reads a trace without holding its text: memory follows the number of events.

    ``name``: what it is called, where that is not its path; its last part may tell the rank.

    Raises TraceError where the file cannot be read, is cut off or damaged, or is no such trace (then
    OtherFormatError). Events
    that cannot be (no time, a negative duration) are left out and counted in ``warnings``.
    """
    file = os.fspath(path) if name is None else name
    try:
        found = _core.read_kineto(
            os.fsencode(path),
            left_out=list(LEFT_OUT),
            details=list(DETAILS),
            named=[COMMUNICATION, *PRODUCTS, *RANGES],
            named_keys=list(NAMED_DETAILS),
        )
    except TraceError as error:
        kind = OtherFormatError if _NO_TRACE in str(error) else TraceError
        raise kind(str(error).replace(os.fspath(path), file)) from error
    warnings = []
    if found.damaged:
        warnings.append(
            f"{file}: {found.damaged:,} events without a name, a time or a duration that can be are left out"
        )
    header = _header(file, found.header())
    rank, world_size = _place(file, header)
    strings = found.strings()
    details: dict[int, dict[str, str]] = {}
    for event, key, value in zip(
        found.detailed.tolist(), found.detail_key.tolist(), found.detail_value.tolist(), strict=True
    ):
        details.setdefault(event, {})[strings[key]] = strings[value]
    end_ns = found.start_ns + found.duration_ns
    if (end_ns < found.start_ns).any():
        raise TraceError(f"{file}: an event ends beyond 2^63 ns; expected microseconds")
    return KinetoTrace(
        path=file,
        rank=rank,
        world_size=world_size,
        header=header,
        strings=strings,
        name=found.name,
        category=found.category,
        thread=found.thread,
        start_ns=found.start_ns,
        end_ns=end_ns,
        correlation=found.correlation,
        device=found.device,
        stream=found.stream,
        bytes=found.bytes,
        launched=found.launched,
        launches=found.launches,
        details=details,
        text_bytes=found.text_bytes,
        warnings=warnings,
    )


def _header(file: str, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    header: dict[str, Any] = {}
    for key, text in pairs:
        try:
            header[key] = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{file}: {key}: {error}") from error
    return header


def _place(file: str, header: dict[str, Any]) -> tuple[int | None, int | None]:
    """Rank and world size."""
    info = header.get("distributedInfo")
    rank = world_size = None
    if isinstance(info, dict):
        rank, world_size = (_count(info.get(key)) for key in ("rank", "world_size"))
        if rank is not None and world_size is not None and rank >= world_size:
            raise TraceError(
                f"{file}: distributedInfo tells rank {rank:,} of world size {world_size:,}, expected a rank "
                "below that"
            )
    if rank is None:
        named = _RANK.findall(Path(file).name)
        rank = int(named[-1]) if named else None
    return rank, world_size


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
