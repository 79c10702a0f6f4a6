"""What a trace of torch's profiler tells of NCCL's kernels."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

import numpy as np

from prismcore.stitch.rows import Ints
from prismcore.traces.collectives import Collective
from prismcore.traces.kineto_file import COMMUNICATION, KinetoTrace
from prismcore.traces.kineto_ops import RankOps

__all__ = ["collectives_of"]

_SIZES = {
    "byte": 1, "char": 1, "bool": 1, "half": 2, "bfloat16": 2, "c10::half": 2, "c10::bfloat16": 2,
    "short": 2, "int": 4, "float": 4, "long": 8, "long int": 8, "double": 8,
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i8": 1, "u8": 1, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
}  # fmt: skip


def collectives_of(trace: KinetoTrace, ops: RankOps, rows: Sequence[int]) -> list[Collective]:
    """NCCL's kernels among ``rows``, with what the trace tells of them: their own arguments, else those of
    the call of torch.distributed that launched them."""
    calls = _calls(trace)
    found = []
    for row in rows:
        details = trace.details.get(int(ops.event[row])) or _call_of(calls, trace, ops, row)
        _, stream = ops.streams[int(ops.lane[row]) - 1]
        name = details.get("Process Group Name")
        label = f"{name}" if name is not None else f"stream {stream}"
        found.append(
            Collective(
                row=row,
                communicator=(label, _members(details)),
                kind=int(ops.kind[row]),
                bytes=_bytes(details, trace.strings[trace.name[ops.event[row]]]),
                number=_number(details.get("Seq")) if name is not None else None,
            )
        )
    return found


def _calls(trace: KinetoTrace) -> tuple[Ints, dict[int, Ints]]:
    """Calls of torch.distributed by thread, in order of their begin."""
    names = [i for i, text in enumerate(trace.strings) if text == COMMUNICATION]
    spans = np.flatnonzero(np.isin(trace.name, names))
    spans = spans[np.argsort(trace.start_ns[spans], kind="stable")]
    return spans, {int(t): spans[trace.thread[spans] == t] for t in np.unique(trace.thread[spans])}


def _call_of(
    calls: tuple[Ints, dict[int, Ints]], trace: KinetoTrace, ops: RankOps, row: int
) -> dict[str, str]:
    launch = int(ops.launch[row])
    if launch < 0:
        return {}
    event = int(ops.event[launch])
    spans = calls[1].get(int(trace.thread[event]))
    if spans is None:
        return {}
    at = int(np.searchsorted(trace.start_ns[spans], trace.start_ns[event], "right")) - 1
    if at < 0 or trace.end_ns[spans[at]] < trace.start_ns[event]:
        return {}
    return trace.details.get(int(spans[at]), {})


def _members(details: dict[str, str]) -> tuple[int, ...] | None:
    """From start, stride and size; else the printed list, where it is whole (torch cuts long ones)."""
    size = _number(details.get("Group size"))
    start, stride = _number(details.get("Global rank start")), _number(details.get("Global rank stride"))
    if size and start is not None and stride:
        return tuple(range(start, start + size * stride, stride))
    try:
        listed = json.loads(details.get("Process Group Ranks", ""))
    except ValueError:
        return None
    if not isinstance(listed, list) or not all(isinstance(r, int) and r >= 0 for r in listed):
        return None
    return (
        tuple(listed) if listed and len(set(listed)) == len(listed) and size in (None, len(listed)) else None
    )


def _bytes(details: dict[str, str], kernel: str) -> int | None:
    told = _number(details.get("Bytes"))
    if told is not None:  # by an execution trace
        return told
    sizes = [_number(details.get(key)) for key in ("In msg nelems", "Out msg nelems")]
    known = [size for size in sizes if size is not None]
    elements = max(known) if known else _elements(details)
    each = _SIZES.get(details.get("dtype", "").lower()) or _element_bytes(details, kernel)
    return None if elements is None or each is None else elements * each


def _elements(details: dict[str, str]) -> int | None:
    """Of the first tensor argument of an older record."""
    try:
        shape = json.loads(details["Input Dims"])[0]
        while shape and isinstance(shape[0], list):
            shape = shape[0]
        return math.prod(int(n) for n in shape)
    except (KeyError, ValueError, IndexError, TypeError):
        return None


def _element_bytes(details: dict[str, str], kernel: str) -> int | None:
    """As the first argument of an older record says, else the kernel's name."""
    try:
        return _SIZES[str(json.loads(details["Input type"])[0]).lower()]
    except (KeyError, ValueError, IndexError, TypeError):
        parts = re.split(r"[_(<]", kernel.lower())
        return next((_SIZES[part] for part in parts if part in _SIZES), None)


def _number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None
