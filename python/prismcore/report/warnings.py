"""What to distrust in the figures of a graph or of its replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from prismcore.graph import Graph, OpKind, Provenance
from prismcore.report.words import short_name

__all__ = ["graph_warnings", "unknown_kernels"]

NAMED = 5


def unknown_kernels(graph: Graph) -> Counter[str]:
    """Launches, over all ranks, of kernels whose duration nobody knows; by identifier."""
    classes = Counter(graph.rank(int(r)).rank_class for r in graph.ranks)
    times = np.zeros(graph.num_blocks, dtype=np.int64)
    for rank_class, count in classes.items():
        times += count * np.bincount(graph.program_blocks(rank_class), minlength=graph.num_blocks)
    ops = graph.blocks(np.arange(graph.num_blocks, dtype=np.uint32))
    offsets = graph.block_offsets.astype(np.int64)
    weight = np.repeat(times, offsets[1:] - offsets[:-1])
    unknown = (ops["kind"] == OpKind.KERNEL) & ((ops["flags"] & 3) == Provenance.UNKNOWN) & (weight > 0)
    found: Counter[str] = Counter()
    for kernel in np.unique(ops["ref"][unknown]).tolist():
        found[short_name(graph.kernel(kernel).name)] += int(weight[unknown & (ops["ref"] == kernel)].sum())
    return found


def graph_warnings(graph: Graph) -> list[str]:
    """One line each: unknown kernels, calls that nobody answered, ranks that are not there."""
    warnings = []
    unknown = unknown_kernels(graph)
    if unknown:
        warnings.append(
            f"the duration of {unknown.total():,} kernel launches is unknown: {_named(unknown)}; "
            "add these kernels to the device profile's timing table"
        )
    metadata = graph.metadata
    missed = metadata.get("unimplemented")
    if isinstance(missed, Mapping) and missed:
        warnings.append(f"calls that the virtual GPU does not implement: {_named(Counter(missed))}")
    if metadata.get("partial") or len(graph.ranks) < graph.world_size:
        warnings.append(f"the graph is partial: it holds {len(graph.ranks):,} of {graph.world_size:,} ranks")
    notes = metadata.get("notes")
    if isinstance(notes, list):
        warnings.extend(str(note) for note in notes)
    return warnings


def _named(found: Counter[str]) -> str:
    named = ", ".join(f"{name} ({count:,})" for name, count in found.most_common(NAMED))
    return named if len(found) <= NAMED else f"{named} and {len(found) - NAMED} more"
