"""Execution graphs: read them, build them."""

from __future__ import annotations

from prismcore.graph.builder import GraphBuilder
from prismcore.graph.graph import Graph, Statistics
from prismcore.graph.kernel import Gemm, Kernel
from prismcore.graph.op import (
    BINDING_DTYPE,
    OP_DTYPE,
    CopyDirection,
    DataType,
    MarkKind,
    OpArray,
    OpFlag,
    OpKind,
    Provenance,
    Reduction,
)
from prismcore.graph.rank import Communicator, MemoryPeaks, Rank, RankOrigin
from prismcore.graph.rank_builder import Event, RankBuilder

__all__ = [
    "BINDING_DTYPE",
    "OP_DTYPE",
    "Communicator",
    "CopyDirection",
    "DataType",
    "Event",
    "Gemm",
    "Graph",
    "GraphBuilder",
    "Kernel",
    "MarkKind",
    "MemoryPeaks",
    "OpArray",
    "OpFlag",
    "OpKind",
    "Provenance",
    "Rank",
    "RankBuilder",
    "RankOrigin",
    "Reduction",
    "Statistics",
]
