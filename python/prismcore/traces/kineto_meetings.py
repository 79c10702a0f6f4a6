"""What a trace of torch's profiler tells of NCCL's kernels."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

import numpy as np

from prismcore.errors import TraceError
from prismcore.rank_list import MAX_RANK
from prismcore.stitch.rows import Ints
from prismcore.traces.collectives import Collective, Members
from prismcore.traces.kineto_file import COMMUNICATION, KinetoTrace
from prismcore.traces.kineto_ops import RankOps, by_thread

__all__ = ["collectives_of"]

_MEMBERS = ("Group size", "Global rank start", "Global rank stride", "Process Group Ranks")
_SIZES = {
    "byte": 1, "char": 1, "bool": 1, "half": 2, "bfloat16": 2, "c10::half": 2, "c10::bfloat16": 2,
    "short": 2, "int": 4, "float": 4, "long": 8, "long int": 8, "double": 8,
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i8": 1, "u8": 1, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
}  # fmt: skip


MOST_BYTES = 2**62


def collectives_of(trace: KinetoTrace, ops: RankOps, rows: Sequence[int]) -> list[Collective]:
    """NCCL's kernels among ``rows``, with what the trace tells of them: their own arguments, else those of
    the call of torch.distributed that launched them."""
    calls = _calls(trace)
    members: dict[tuple[str | None, ...], Members | None] = {}
    found = []
    for row in rows:
        details = trace.details.get(int(ops.event[row])) or _call_of(calls, trace, ops, row)
        _, stream = ops.streams[int(ops.lane[row]) - 1]
        name = details.get("Process Group Name")
        label = f"{name}" if name is not None else f"stream {stream}"
        told = tuple(details.get(key) for key in _MEMBERS)
        if told not in members:
            members[told] = _members(details, trace.path)
        found.append(
            Collective(
                row=row,
                communicator=(label, members[told]),
                kind=int(ops.kind[row]),
                bytes=_bytes(details, trace.strings[trace.name[ops.event[row]]]),
                number=_number(details.get("Seq")) if name is not None else None,
            )
        )
    return found


def _calls(trace: KinetoTrace) -> dict[int, Ints]:
    """Calls of torch.distributed by thread, in order of their begin."""
    names = [i for i, text in enumerate(trace.strings) if text == COMMUNICATION]
    spans = np.flatnonzero(np.isin(trace.name, names))
    spans = spans[np.argsort(trace.start_ns[spans], kind="stable")]
    return {thread: spans[at] for thread, at in by_thread(trace, spans).items()}


def _call_of(calls: dict[int, Ints], trace: KinetoTrace, ops: RankOps, row: int) -> dict[str, str]:
    launch = int(ops.launch[row])
    if launch < 0:
        return {}
    event = int(ops.event[launch])
    spans = calls.get(int(trace.thread[event]))
    if spans is None:
        return {}
    at = int(np.searchsorted(trace.start_ns[spans], trace.start_ns[event], "right")) - 1
    if at < 0 or trace.end_ns[spans[at]] < trace.start_ns[event]:
        return {}
    return trace.details.get(int(spans[at]), {})


def _members(details: dict[str, str], path: str) -> Members | None:
    """From start, stride and size; else the printed list, where it is whole (torch cuts long ones)."""
    size, start, stride = (_number(details.get(key)) for key in _MEMBERS[:3])
    if size and start is not None and stride and min(size, start + 1, stride) > 0:
        if start + (size - 1) * stride > MAX_RANK:
            raise TraceError(
                f"{path}: a communicator of {size:,} ranks from {start:,} on, {stride:,} apart found, "
                f"expected ranks up to {MAX_RANK:,}"
            )
        return range(start, start + size * stride, stride)
    try:
        listed = json.loads(details.get("Process Group Ranks", ""))
    except (ValueError, RecursionError):
        return None
    if not isinstance(listed, list) or not listed or size not in (None, len(listed)):
        return None
    if not all(type(r) is int and 0 <= r <= MAX_RANK for r in listed) or len(set(listed)) < len(listed):
        return None
    step = listed[1] - listed[0] if len(listed) > 1 else 1
    even = range(listed[0], listed[0] + len(listed) * step, step)
    return even if step > 0 and all(a == b for a, b in zip(listed, even, strict=True)) else tuple(listed)


def _bytes(details: dict[str, str], kernel: str) -> int | None:
    told = _number(details.get("Bytes"))
    if told is not None:  # by an execution trace
        return told if 0 <= told <= MOST_BYTES else None
    sizes = [_number(details.get(key)) for key in ("In msg nelems", "Out msg nelems")]
    known = [size for size in sizes if size is not None]
    elements = max(known) if known else _elements(details)
    each = _SIZES.get(details.get("dtype", "").lower()) or _element_bytes(details, kernel)
    if elements is None or each is None or not 0 <= elements * each <= MOST_BYTES:
        return None
    return elements * each


def _elements(details: dict[str, str]) -> int | None:
    """Of the first tensor argument of an older record."""
    try:
        shape = json.loads(details["Input Dims"])[0]
        while shape and isinstance(shape[0], list):
            shape = shape[0]
        return math.prod(int(n) for n in shape)
    except _NOT_THERE:
        return None


def _element_bytes(details: dict[str, str], kernel: str) -> int | None:
    """As the first argument of an older record says, else the kernel's name."""
    try:
        return _SIZES[str(json.loads(details["Input type"])[0]).lower()]
    except _NOT_THERE:
        parts = re.split(r"[_(<]", kernel.lower())
        return next((_SIZES[part] for part in parts if part in _SIZES), None)


#: Arguments that are absent, or of another shape than torch's.
_NOT_THERE = (KeyError, ValueError, IndexError, TypeError, OverflowError, RecursionError)


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
