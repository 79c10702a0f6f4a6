"""Chakra execution traces as a graph: lanes of program order, and waits between them.

A simulator of Chakra traces runs one op of a rank on each resource at a time: one on the CPU, one kernel,
one collective a group. So these are the streams here, if nodes do not name theirs; what a node waits for on
another stream is an event.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from prismcore.errors import TraceError
from prismcore.graph import Graph, OpKind, Provenance
from prismcore.profiles.cluster import ClusterProfile
from prismcore.rank_list import absent_words, format_absent
from prismcore.stitch.rows import segment_reduce
from prismcore.traces.chakra import ChakraTrace
from prismcore.traces.chakra_rank import RankNodes
from prismcore.traces.collectives import NAMED, told_of_many
from prismcore.traces.op_columns import OpColumns
from prismcore.traces.plain_values import whole

__all__ = ["graph_of_chakra"]

_KEPT = ("cluster", "device", "exported_from", "traced_device", "warmup_iterations")


def graph_of_chakra(traces: Sequence[ChakraTrace], cluster: ClusterProfile) -> tuple[Graph, list[str]]:
    """The graph, and what to distrust in it.

    Raises TraceError for a circle, a collective without its type, an attribute of a type that cannot be,
    and traces that hold no work.
    """
    columns = OpColumns(warnings=told_of_many([text for trace in traces for text in trace.warnings]))
    world = _world(traces)
    told = {"unknown": 0, "unsaid": 0}
    own = all(trace.metadata.get("schema") == "prismcore" for trace in traces)
    marked = own and any(n.attributes.get("mark") == "iteration" for trace in traces for n in trace.nodes)
    for trace in traces:
        RankNodes(trace, columns, world, told, own).run(marked)
    if not any(kind != OpKind.MARK for kind in columns.kind):
        raise TraceError(f"{traces[0].path}: no work found in these traces, expected computation or messages")
    absent = format_absent([trace.rank for trace in traces], range(world), most=NAMED)
    if absent:
        columns.warnings.append(absent_words(absent, f"{world:,}", "trace"))
    if told["unsaid"]:
        columns.warnings.append(
            f"the traces do not say where {told['unsaid']:,} durations come from; they count as measured"
        )
    ops, meetings = columns.matched()
    if not own:
        _without_waiting(columns, meetings.id)
    modelled = columns.model(cluster, ops)
    notes = [*columns.warnings]  # less what reports tell of the graph
    if told["unknown"]:
        columns.warnings.append(
            f"{told['unknown']:,} computations have no duration in the trace and count as 0: a replay leaves "
            "them out. Replay with a device profile (--profile), which costs what it knows by name"
        )
    if modelled:
        columns.warnings.append(
            f"{modelled:,} communication ops have no duration in the trace and take that of the model of "
            f"cluster {cluster.name}"
        )
    metadata: dict[str, Any] = {
        "imported_from": "chakra",
        "notes": notes,
    }
    if modelled:
        metadata |= {"modelled_communication": modelled, "modelled_by": cluster.name}
    if own:
        metadata |= _kept(traces[0])
    graph = columns.graph(world_size=world, matched=ops, waits=columns.wait_table(), metadata=metadata)
    return graph, columns.warnings


def _kept(trace: ChakraTrace) -> dict[str, Any]:
    """Of the metadata of the graph that the trace was made of: what a replay looks at."""
    try:
        noted = json.loads(str(trace.metadata.get("metadata", "")))
    except (ValueError, RecursionError):
        return {}
    return {key: noted[key] for key in _KEPT if key in noted} if isinstance(noted, dict) else {}


def _world(traces: Sequence[ChakraTrace]) -> int:
    told = [whole(trace.metadata.get("world_size")) or 0 for trace in traces]
    named = [max(members) + 1 for trace in traces for members in trace.groups.values()]
    return min(max([trace.rank + 1 for trace in traces] + told + named), 2**24)


def _without_waiting(columns: OpColumns, meeting: Any) -> None:
    """Of each meeting the shortest duration: who came last did not wait (there are no begins to take)."""
    durations = np.array(columns.duration_ns, dtype=np.int64)
    durations[list(columns.unmeasured)] = np.iinfo(np.int64).max
    shortest = segment_reduce(np.minimum, durations, meeting)
    talks = np.array(columns.kind) >= OpKind.ALL_REDUCE
    for row in np.flatnonzero(talks & (shortest < np.iinfo(np.int64).max)).tolist():
        columns.duration_ns[row] = int(shortest[row])
        if columns.unmeasured.pop(row, None) is not None:
            columns.provenance[row] = int(Provenance.MEASURED)
