"""Emulate large LLM training jobs rank by rank, and train through failures without restarting."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prismcore.graph import Graph, GraphBuilder
    from prismcore.launch.iteration import mark_iteration

__all__ = ["Graph", "GraphBuilder", "mark_iteration", "replay"]
__version__ = "0.1.0"
_PACKAGES = frozenset(
    ("calibrate", "collect", "comm", "cost", "emulate", "errors", "exports", "graph", "profiles", "report",
     "routing", "rules", "spare", "stragglers", "traces")
)  # fmt: skip


def __getattr__(name: str) -> Any:
    # Loaded on first use: `import prismcore` alone costs a trainer nothing.
    if name == "replay":
        return import_module("prismcore.replay")  # callable
    if name == "mark_iteration":
        return import_module("prismcore.launch.iteration").mark_iteration
    if name in _PACKAGES:  # `prismcore.stragglers.analyse` without an import of its own
        return import_module(f"prismcore.{name}")
    if name in __all__:
        from prismcore import graph

        return getattr(graph, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
