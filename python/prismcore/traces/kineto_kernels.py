"""What each kernel and copy of a trace is: name, launch, and of a matrix product its dimensions."""

from __future__ import annotations

import json
import math
import re
from typing import Final

import numpy as np
import numpy.typing as npt

from prismcore.graph import CopyDirection, DataType, Gemm, Kernel
from prismcore.traces.kineto_file import PRODUCTS, KinetoTrace
from prismcore.traces.kineto_ops import RankOps

__all__ = ["copy_directions", "kernels_of"]

_Ints = npt.NDArray[np.int64]

#: Kernels of libraries that compute products, and those that add up the parts of a split one.
_PRODUCT = re.compile(r"gemm|gemv|splitk|nvjet|xmma|cutlass|cublas", re.IGNORECASE)
_COPY = re.compile(r"memcpy ([HDPA])to([HDPA])", re.IGNORECASE)
#: Which input of an op is the first factor.
_FIRST_FACTOR: Final = {"aten::mm": 0, "aten::bmm": 0, "aten::addmm": 1, "aten::baddbmm": 1}
_TYPES: Final = {
    "c10::Half": DataType.FLOAT16,
    "c10::BFloat16": DataType.BFLOAT16,
    "float": DataType.FLOAT32,
    "double": DataType.FLOAT64,
    "c10::Float8_e4m3fn": DataType.FLOAT8E4M3,
    "c10::Float8_e5m2": DataType.FLOAT8E5M2,
}
_MOST = 2**40  # of a dimension: more than any memory holds


def kernels_of(trace: KinetoTrace, ops: RankOps, rows: _Ints) -> tuple[list[Kernel], _Ints]:
    """The kernels that occur among ``rows``, and for each row the number of its own; shape [rows].

    A product has its dimensions where the trace holds the shapes of the op that launched it
    (``record_shapes``): m, n, k as column-major libraries take them, so that a row-major [n, k] x [k, m]
    is m, n, k.
    """
    events = ops.event[rows]
    shapes, of_launch = np.unique(trace.launches.reshape(-1, 7), axis=0, return_inverse=True)
    launch = np.full(len(trace.start_ns), -1)
    launch[trace.launched] = of_launch.reshape(-1)
    products, product = _products(trace, ops, rows)
    key = trace.name[events].astype(np.int64) * (len(shapes) + 1) + launch[events] + 1
    _, first, number = np.unique(
        key * (len(products) + 1) + product + 1, return_index=True, return_inverse=True
    )
    kernels = []
    for name, shape, of in zip(trace.name[events[first]], launch[events[first]], product[first], strict=True):
        x = shapes[shape].tolist() if shape >= 0 else (1, 1, 1, 1, 1, 1, 0)
        gemm, dtype = products[of] if of >= 0 else (None, DataType.NONE)
        kernels.append(
            Kernel(
                name=trace.strings[name],
                grid=(x[0], x[1], x[2]),
                block=(x[3], x[4], x[5]),
                shared_bytes=x[6],
                dtype=dtype,
                gemm=gemm,
            )
        )
    return kernels, number.reshape(-1)


def copy_directions(trace: KinetoTrace, events: _Ints) -> _Ints:
    """``CopyDirection`` of each copy, by its name; device to device where that does not tell."""
    by_name: dict[int, int] = {}
    for name in np.unique(trace.name[events]).tolist():
        match = _COPY.match(trace.strings[name])
        ends = (match[1].upper() == "H", match[2].upper() == "H") if match else (False, False)
        by_name[name] = int(
            {
                (True, True): CopyDirection.HOST_TO_HOST,
                (True, False): CopyDirection.HOST_TO_DEVICE,
                (False, True): CopyDirection.DEVICE_TO_HOST,
                (False, False): CopyDirection.DEVICE_TO_DEVICE,
            }[ends]
        )
    return np.array([by_name[name] for name in trace.name[events].tolist()], dtype=np.int64)


def _products(trace: KinetoTrace, ops: RankOps, rows: _Ints) -> tuple[list[tuple[Gemm, DataType]], _Ints]:
    """Products that occur, and for each row the number of its own, -1 for none."""
    found: dict[tuple[Gemm, DataType], int] = {}
    of_row = np.full(len(rows), -1)
    names = [i for i, text in enumerate(trace.strings) if text in PRODUCTS]
    calls = np.flatnonzero(np.isin(trace.name, names))
    calls = calls[np.argsort(trace.start_ns[calls], kind="stable")]
    if not len(calls):
        return [], of_row
    kinds = [i for i, text in enumerate(trace.strings) if _PRODUCT.search(text)]
    wanted = np.flatnonzero(np.isin(trace.name[ops.event[rows]], kinds) & (ops.launch[rows] >= 0))
    launches = ops.event[ops.launch[rows[wanted]]]
    by_call: dict[int, int] = {}
    for thread in np.unique(trace.thread[calls]).tolist():
        spans = calls[trace.thread[calls] == thread]
        mine = np.flatnonzero(trace.thread[launches] == thread)
        came = trace.start_ns[launches[mine]]
        at = np.searchsorted(trace.start_ns[spans], came, "right") - 1
        inside = (at >= 0) & (came <= trace.end_ns[spans[np.maximum(at, 0)]])
        for row, call in zip(wanted[mine[inside]].tolist(), spans[at[inside]].tolist(), strict=True):
            if call not in by_call:
                product = _dimensions(trace.strings[trace.name[call]], trace.details.get(call, {}))
                by_call[call] = -1 if product is None else found.setdefault(product, len(found))
            of_row[row] = by_call[call]
    return list(found), of_row


def _dimensions(op: str, details: dict[str, str]) -> tuple[Gemm, DataType] | None:
    first = _FIRST_FACTOR[op]
    try:
        dims, types = json.loads(details["Input Dims"]), json.loads(details["Input type"])
        a, b, dtype = dims[first], dims[first + 1], _TYPES.get(str(types[first]))
        sizes = (b[-1], a[-2], a[-1], math.prod(a[:-2]))
    except (KeyError, ValueError, IndexError, TypeError):
        return None
    whole = all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < _MOST for n in sizes)
    if dtype is None or not whole:
        return None
    m, n, k, batch = sizes
    return Gemm(m=m, n=n, k=k, batch=batch), dtype
