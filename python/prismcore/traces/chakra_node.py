"""A node of a Chakra execution trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prismcore.errors import TraceError
from prismcore.traces.plain_values import whole

__all__ = ["COMM_TYPES", "NODE_TYPES", "Attributes", "ChakraNode", "with_duration"]

NODE_TYPES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
    "COMM_RECV_NODE", "COMM_COLL_NODE", "STORAGE_NODE", "BATCH_NODE", "CHECKPOINT_NODE",
)  # fmt: skip
COMM_TYPES = (
    "ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK", "BARRIER",
)  # fmt: skip

Attributes = dict[str, Any]


@dataclass(kw_only=True, slots=True)
class ChakraNode:
    """A node; ``duration_ns`` None: not told. Attributes have the types of their values."""

    id: int
    name: str
    type: int  #: index into ``NODE_TYPES``
    ctrl_deps: Sequence[int] = ()
    data_deps: Sequence[int] = ()
    start_ns: int = 0
    duration_ns: int | None = None
    attributes: Attributes = field(default_factory=dict)


def with_duration(node: ChakraNode, micros: int | None) -> ChakraNode:
    """With the duration: exact where the exporter says it, else whole microseconds; 0: not told."""
    exact = node.attributes.get("duration_ns")
    runtime = node.attributes.get("runtime")
    for what, value in (("duration_ns", exact), ("runtime", runtime), ("duration_micros", micros)):
        if value is not None and (whole(value) is None or value > 2**53):
            raise TraceError(
                f"node {node.id} ({node.name[:60]}): {what} {value!r} found, expected a whole number from 0"
            )
    if exact is not None:
        node.duration_ns = int(exact)
    elif micros or runtime:
        node.duration_ns = int(micros or runtime or 0) * 1000
    return node
