"""Arguments of traces, written by others: numbers that are bounded, lists that are what they should be."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from prismcore.errors import TraceError
from prismcore.graph import DataType
from prismcore.rank_list import MAX_RANK
from prismcore.traces.kineto_file import KinetoTrace

__all__ = ["Members", "MembersReader", "json_list", "payload_bytes", "whole"]

#: A range where ranks lie evenly, so that as many as there may be cost nothing.
Members = range | tuple[int, ...]

MOST = 2**62
DEEPEST = 8  # lists of lists of tensors
MOST_TEXT = 2**24  # of a list: ranks of the largest job, in digits

_SIZES = {
    "byte": 1, "char": 1, "bool": 1, "half": 2, "bfloat16": 2, "c10::half": 2, "c10::bfloat16": 2,
    "short": 2, "int": 4, "float": 4, "long": 8, "long int": 8, "double": 8,
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "i8": 1, "u8": 1, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
#: Of those, the types that NCCL knows.
_TYPES = {
    "byte": DataType.UINT8, "char": DataType.INT8, "bool": DataType.UINT8, "half": DataType.FLOAT16,
    "bfloat16": DataType.BFLOAT16, "c10::half": DataType.FLOAT16, "c10::bfloat16": DataType.BFLOAT16,
    "int": DataType.INT32, "float": DataType.FLOAT32, "long": DataType.INT64, "long int": DataType.INT64,
    "double": DataType.FLOAT64, "f16": DataType.FLOAT16, "bf16": DataType.BFLOAT16, "f32": DataType.FLOAT32,
    "f64": DataType.FLOAT64, "i8": DataType.INT8, "u8": DataType.UINT8, "i32": DataType.INT32,
    "u32": DataType.UINT32, "i64": DataType.INT64, "u64": DataType.UINT64,
    "float8_e4m3fn": DataType.FLOAT8E4M3, "float8_e5m2": DataType.FLOAT8E5M2,
}  # fmt: skip
_DIGITS = re.compile(r"-?[0-9]{1,19}")


def whole(text: str | None, *, least: int = -MOST, most: int = MOST) -> int | None:
    """A whole number within bounds; None: anything else."""
    if text is None or not _DIGITS.fullmatch(text):
        return None
    value = int(text)
    return value if least <= value <= most else None


def json_list(text: str | None) -> list[Any] | None:
    """A list in JSON; None: anything else."""
    if text is None or len(text) > MOST_TEXT:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


class MembersReader:
    """Members of communicators as one rank tells them."""

    _KEYS = ("Group size", "Global rank start", "Global rank stride", "Process Group Ranks",
             "Process Group Name")  # fmt: skip

    def __init__(self, trace: KinetoTrace) -> None:
        self.refused = 0  #: told members that cannot be, in different ways
        self._trace = trace
        self._known: dict[tuple[str | None, ...], Members | None] = {}
        self._configured = _configured(trace)

    def of(self, details: Mapping[str, str]) -> Members | None:
        """From start, stride and size; else the printed list, where it is whole (torch cuts long ones);
        else the header's ``pg_config``. None: not told, or no such communicator can hold the rank.

        Raises TraceError for members beyond what a graph may hold.
        """
        key = tuple(details.get(k) for k in self._KEYS)
        if key not in self._known:
            self._known[key] = self._read(details)
        return self._known[key]

    def _read(self, details: Mapping[str, str]) -> Members | None:
        size, start, stride = (whole(details.get(key)) for key in self._KEYS[:3])
        found: Members | None = None
        if size and start is not None and stride and min(size, start + 1, stride) > 0:
            if start + (size - 1) * stride > MAX_RANK:
                raise TraceError(
                    f"{self._trace.path}: a communicator of {size:,} ranks from {start:,} on, {stride:,} "
                    f"apart found, expected ranks up to {MAX_RANK:,}"
                )
            found = range(start, start + size * stride, stride)
        else:
            found = _ranks(json_list(details.get("Process Group Ranks")))
            if found is None or size not in (None, len(found)):
                found = self._configured.get(details.get("Process Group Name", ""))
                found = None if found is None or size not in (None, len(found)) else found
        if found is None:
            return None
        world = self._trace.world_size or MAX_RANK + 1
        if (self._trace.rank or 0) in found and max(found[0], found[-1], *found[:64]) < world:
            return found
        self.refused += 1
        return None


def _configured(trace: KinetoTrace) -> dict[str, Members]:
    """Members by name of the process group."""
    info = trace.header.get("distributedInfo")
    groups = info.get("pg_config") if isinstance(info, dict) else None
    found = {}
    for group in groups if isinstance(groups, list) else ():
        ranks = group.get("ranks") if isinstance(group, dict) else None
        members = _ranks(ranks if isinstance(ranks, list) else None)
        if members is not None:
            found[str(group.get("pg_name"))] = members
    return found


def _ranks(listed: list[Any] | None) -> Members | None:
    if not listed or not all(type(r) is int and 0 <= r <= MAX_RANK for r in listed):
        return None
    if len(set(listed)) < len(listed):
        return None
    step = listed[1] - listed[0] if len(listed) > 1 else 1
    even = range(listed[0], listed[0] + len(listed) * step, step)
    return even if step > 0 and all(a == b for a, b in zip(listed, even, strict=True)) else tuple(listed)


def payload_bytes(details: Mapping[str, str], kernel: str, *, gathers: bool, size: int | None) -> int | None:
    """Of a collective: the larger of what a member gives and gets. Older records tell only what it gives
    (``gathers``: it gets that of all ``size`` members)."""
    told = whole(details.get("Bytes"), least=0)
    if told is not None:  # by an execution trace
        return told
    given = [whole(details.get(key), least=0) for key in ("In msg nelems", "Out msg nelems")]
    known = [n for n in given if n is not None]
    elements = max(known) if known else _elements(details, "Input")
    if elements is None:
        elements = _elements(details, "Range")
    each = _SIZES.get(_type_name(details, kernel))
    if elements is None or each is None:
        return None
    total = elements * each * (size or 1 if gathers and not known else 1)
    return total if 0 <= total <= MOST else None


def _elements(details: Mapping[str, str], of: str) -> int | None:
    """Of the first argument of an older record, a tensor or a list of them."""
    dims, types = json_list(details.get(f"{of} Dims")), json_list(details.get(f"{of} type"))
    if not dims or (dims[0] == [] and types and types[0] == "TensorList"):
        return None
    return _product(dims[0])


def _product(shape: Any, depth: int = 0) -> int | None:
    """Elements of a tensor, of all tensors of a list of shapes."""
    if not isinstance(shape, list) or depth > DEEPEST:
        return None
    if shape and all(isinstance(part, list) for part in shape):
        parts = [_product(part, depth + 1) for part in shape]
        return None if None in parts else min(sum(p for p in parts if p is not None), MOST + 1)
    total = 1
    for n in shape:
        if type(n) is not int or not 0 <= n <= MOST:
            return None
        total = min(total * n, MOST + 1)
    return total


def element_type(details: Mapping[str, str], kernel: str) -> DataType:
    """Of what a collective moves; NONE where it is not told, or no type of NCCL's."""
    return _TYPES.get(_type_name(details, kernel), DataType.NONE)


def _type_name(details: Mapping[str, str], kernel: str) -> str:
    """As the kernel's arguments say, the first argument of an older record, else the kernel's name; empty
    where none does."""
    told = details.get("dtype", "").lower()
    if told in _SIZES:
        return told
    for of in ("Input", "Range"):
        types = json_list(details.get(f"{of} type"))
        told = str(types[0]).lower() if types else ""
        if told in _SIZES:
            return told
    return next((part for part in re.split(r"[_(<]", kernel.lower()) if part in _SIZES), "")
