"""An order of the nodes of a rank in which each comes behind what it waits for."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from prismcore.errors import TraceError
from prismcore.traces.chakra import ChakraTrace
from prismcore.traces.chakra_node import ChakraNode

__all__ = ["Ordered", "ordered"]

#: Nodes in order, and for each the positions, in that order, of those it waits for.
Ordered = tuple[list[ChakraNode], list[list[int]]]

_SHOWN = 8


def ordered(trace: ChakraTrace, warnings: list[str]) -> Ordered:
    """By begin where the trace has one, else by id, as far as dependencies allow.

    Nodes wait for their ``data_deps``; ``ctrl_deps`` (the op that contains a node, in traces made of
    PyTorch's) count where no node has any data dependency. Dependencies on nodes that are not there are
    told and left out. Raises TraceError for a circle, which it names.
    """
    place: dict[int, int] = {}
    for at, node in enumerate(trace.nodes):
        if node.id in place:
            raise TraceError(
                f"{trace.path}: two nodes with id {node.id} found, "
                f"{trace.nodes[place[node.id]].name[:60]!r} and {node.name[:60]!r}; expected different ids"
            )
        place[node.id] = at
    data = any(node.data_deps for node in trace.nodes)
    missing = 0
    waits: list[list[int]] = []
    for node in trace.nodes:
        deps = node.data_deps if data else node.ctrl_deps
        known = {place[dep] for dep in deps if dep in place}
        missing += len(set(deps)) - len(known)
        waits.append(sorted(known))
    if missing:
        warnings.append(
            f"rank {trace.rank}: {missing:,} dependencies on nodes that are not in the trace are left out; "
            "the nodes that have them are kept"
        )
    followers: list[list[int]] = [[] for _ in trace.nodes]
    left = [len(of) for of in waits]
    for at, of in enumerate(waits):
        for dep in of:
            followers[dep].append(at)
    ready = [_key(trace.nodes, at) for at, count in enumerate(left) if count == 0]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        *_, at = heapq.heappop(ready)
        order.append(at)
        for follower in followers[at]:
            left[follower] -= 1
            if left[follower] == 0:
                heapq.heappush(ready, _key(trace.nodes, follower))
    if len(order) < len(trace.nodes):
        raise TraceError(f"{trace.path}: rank {trace.rank}: {_circle(trace.nodes, waits, left)}")
    position = {at: i for i, at in enumerate(order)}
    return [trace.nodes[at] for at in order], [[position[dep] for dep in waits[at]] for at in order]


def _key(nodes: Sequence[ChakraNode], at: int) -> tuple[int, int, int]:
    return nodes[at].start_ns, nodes[at].id, at


def _circle(nodes: Sequence[ChakraNode], waits: Sequence[Sequence[int]], left: Sequence[int]) -> str:
    """Each node that is left waits for another that is left: following these comes back."""
    at = next(i for i, count in enumerate(left) if count)
    seen: dict[int, int] = {}
    path: list[int] = []
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = next(dep for dep in waits[at] if left[dep])
    circle = path[seen[at] :]
    named = [f"{nodes[i].id} ({nodes[i].name[:40]})" for i in circle[:_SHOWN]]
    more = f" and {len(circle) - _SHOWN} more" if len(circle) > _SHOWN else ""
    return f"nodes wait for each other in a circle: {' -> '.join(named)}{more}; a trace must be free of them"
