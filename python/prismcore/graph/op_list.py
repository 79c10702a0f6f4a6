"""The ops of a rank that is being written by hand."""

from __future__ import annotations

import numpy as np

from prismcore.errors import GraphError
from prismcore.graph.op import OP_DTYPE, DataType, OpArray, OpFlag, OpKind

__all__ = ["OpList"]

# One op as a plain tuple, in the order of OP_DTYPE.
_Fields = tuple[int, int, int, int, int, int, int, int, int, int, int, int]
_NAMES = OP_DTYPE.names or ()
_FLAGS = _NAMES.index("flags")


class OpList:
    """Ops in the order of the program; :meth:`array` checks them all at once."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._ops: list[_Fields] = []
        self._group_from: int | None = None

    def add(
        self,
        kind: OpKind,
        *,
        flags: int = 0,
        dtype: int = DataType.NONE,
        detail: int = 0,
        ref: int = 0,
        stream: int = 0,
        event_stream: int = 0,
        peer: int = 0,
        host_ns: int = 0,
        tag: int = 0,
        duration_ns: int = 0,
        bytes: int = 0,
    ) -> None:
        if self._group_from is not None and not kind.is_communication:
            raise GraphError(f"rank {self._rank}: {kind.name.lower()} in a group of communication")
        self._ops.append(
            (kind, flags, dtype, detail, ref, stream, event_stream, peer, host_ns, tag, duration_ns, bytes)
        )

    @property
    def is_group_open(self) -> bool:
        return self._group_from is not None

    def open_group(self) -> None:
        """What comes until :meth:`close_group` is one launch."""
        self._group_from = len(self._ops)

    def close_group(self) -> bool:
        """Whether anything came."""
        first, self._group_from = self._group_from, None
        if first is None or first == len(self._ops):
            return False
        for i in range(first, len(self._ops) - 1):
            fields = list(self._ops[i])
            fields[_FLAGS] |= OpFlag.GROUP_CONTINUES
            self._ops[i] = tuple(fields)  # type: ignore[assignment]
        return True

    def array(self) -> OpArray:
        """An array of ``OP_DTYPE``. Raises GraphError if a number does not fit."""
        for name, column in zip(_NAMES, zip(*self._ops, strict=True), strict=False):
            if not all(issubclass(kind, (int, np.integer)) for kind in set(map(type, column))):
                self._refuse(name)  # numpy would cut it
        try:
            return np.array(self._ops, dtype=OP_DTYPE)
        except (OverflowError, ValueError, TypeError):
            for name in _NAMES:
                self._refuse(name)
            raise

    def _refuse(self, name: str) -> None:
        """Raises GraphError for the first op that cannot hold the value of this field."""
        limits = np.iinfo(OP_DTYPE[name])
        for at, fields in enumerate(self._ops):
            value = fields[_NAMES.index(name)]
            if not isinstance(value, (int, np.integer)) or not limits.min <= value <= limits.max:
                raise GraphError(
                    f"rank {self._rank}: op {at}: {OpKind(fields[0]).name.lower()}: {name} {value!r} "
                    f"found, expected a whole number from {limits.min} to {limits.max}"
                )
