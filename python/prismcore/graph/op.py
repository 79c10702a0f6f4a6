"""One op as numpy sees it, and the numbers its fields hold (``csrc/graph/op.h``)."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "BINDING_DTYPE",
    "OP_DTYPE",
    "CopyDirection",
    "DataType",
    "MarkKind",
    "OpArray",
    "OpFlag",
    "OpKind",
    "Provenance",
    "Reduction",
]

#: The 40 bytes of an op. ``ref`` is a kernel id, a communicator slot or a string id, by kind.
OP_DTYPE = np.dtype(
    [
        ("kind", "u1"),
        ("flags", "u1"),
        ("dtype", "u1"),
        ("detail", "u1"),
        ("ref", "<u4"),
        ("stream", "<u2"),
        ("event_stream", "<u2"),
        ("peer", "<u4"),
        ("host_ns", "<u4"),
        ("tag", "<u4"),
        ("duration_ns", "<i8"),
        ("bytes", "<i8"),
    ]
)

#: A communicator slot of a rank: which communicator, and the rank's position in it.
BINDING_DTYPE = np.dtype([("communicator", "<u4"), ("position", "<u4")])

#: The largest duration and size of an op: above it a JSON reader would round.
MOST_BYTES = 2**53

#: A one-dimensional array of ``OP_DTYPE``.
OpArray = npt.NDArray[Any]


class OpKind(IntEnum):
    """What an op is; communication ops are 32 and above."""

    HOST_GAP = 0
    KERNEL = 1
    COPY = 2
    SET = 3
    EVENT_RECORD = 4
    EVENT_WAIT = 5
    STREAM_SYNC = 6
    EVENT_SYNC = 7
    DEVICE_SYNC = 8
    QUERY = 9
    HOST_CALLBACK = 10
    GRAPH_LAUNCH = 11
    ALLOCATE = 12
    FREE = 13
    RESERVE = 14
    RELEASE = 15
    MARK = 16
    ALL_REDUCE = 32
    ALL_GATHER = 33
    REDUCE_SCATTER = 34
    BROADCAST = 35
    REDUCE = 36
    ALL_TO_ALL = 37
    GATHER = 38
    SCATTER = 39
    SEND = 48
    RECV = 49

    @property
    def is_communication(self) -> bool:
        """Whether the op reaches other ranks; without ``GROUP_CONTINUES`` it closes a block."""
        return self >= OpKind.ALL_REDUCE


class OpFlag(IntFlag):
    """Bits of ``flags`` above the two that hold the provenance of the duration."""

    GROUP_CONTINUES = 0x4
    BLOCKING = 0x8


class Provenance(IntEnum):
    """Where a duration comes from; the lowest two bits of ``flags``."""

    UNKNOWN = 0
    MODEL = 1
    TABLE = 2
    MEASURED = 3


class DataType(IntEnum):
    """Element types, numbered as NCCL numbers them."""

    INT8 = 0
    UINT8 = 1
    INT32 = 2
    UINT32 = 3
    INT64 = 4
    UINT64 = 5
    FLOAT16 = 6
    FLOAT32 = 7
    FLOAT64 = 8
    BFLOAT16 = 9
    FLOAT8E4M3 = 10
    FLOAT8E5M2 = 11
    NONE = 255


class Reduction(IntEnum):
    """``detail`` of all_reduce, reduce_scatter and reduce."""

    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4
    PREMUL_SUM = 5


class CopyDirection(IntEnum):
    """``detail`` of a copy."""

    HOST_TO_DEVICE = 0
    DEVICE_TO_HOST = 1
    DEVICE_TO_DEVICE = 2
    HOST_TO_HOST = 3


class MarkKind(IntEnum):
    """``detail`` of a mark."""

    ITERATION = 0
    MICRO_BATCH = 1
    PHASE = 2
