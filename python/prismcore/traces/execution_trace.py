"""Reads PyTorch execution traces (host ops and calls of torch.distributed of one rank) into columns.

Source of the layout: torch's execution trace observer (``csrc/profiler/standalone`` of torch 1.13 to
2.14), schemas 1.0.1 (``parent``, ``inputs``) and 1.0.2-chakra to 1.1.1-chakra (``ctrl_deps``, ``attrs``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from prismcore.errors import TraceError
from prismcore.stitch.rows import Ints
from prismcore.traces.execution_trace_calls import (
    Call,
    Group,
    GroupKey,
    calls_of,
    groups_of,
    tell_unrecorded,
    tensors_of,
)
from prismcore.traces.json_files import read_json
from prismcore.traces.plain_values import listed, whole
from prismcore.traces.trace_files import read_trace_files
from prismcore.traces.trace_formats import OtherFormatError

__all__ = ["ExecutionTrace", "read_execution_trace_set"]


@dataclass(kw_only=True, slots=True)
class ExecutionTrace:
    """Nodes of one rank in the order in which the host began them; arrays have shape [nodes]."""

    path: str
    rank: int | None  #: as the name of the file says, else :func:`place_ranks`
    schema: str
    id: Ints
    parent: Ints  #: id; that of no node for roots
    thread: Ints
    record: Ints  #: ``rf_id``: number of the host op, as Kineto counts them
    name: list[str]
    shapes: list[Any]  #: of inputs
    types: list[Any]
    devices: list[str]  #: that tensors of the op lie on, by name and comma
    calls: list[Call]
    groups: dict[GroupKey, Group]
    warnings: list[str] = field(default_factory=list)


def read_execution_trace_set(paths: Sequence[str | os.PathLike[str]]) -> list[ExecutionTrace]:
    """The traces of a job: JSON, gzip or not. A folder stands for all that are traces of the ``*.json`` and
    ``*.json.gz`` in it, a tar archive alike; others there are told in a warning.

    Raises TraceError where it cannot be read, is damaged, of another schema, or empty. Nodes that cannot be
    are left out, orphans kept; both are counted in ``warnings``.
    """
    traces, warnings = read_trace_files(
        [Path(path) for path in paths],
        "pytorch-et",
        lambda file: _read(file.name, read_json(file.path, file.name)),
    )
    if traces:
        traces[0].warnings += warnings
    return traces


def _read(name: str, document: Any) -> ExecutionTrace:
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise OtherFormatError(f"{name}: no list of nodes found, expected a PyTorch execution trace")
    schema = str(document.get("schema", "none"))
    if not re.match(r"1\.[01]\.", schema):
        raise TraceError(f"{name}: schema {schema[:40]!r} found, expected 1.0.1 to 1.1.1")
    nodes: dict[int, dict[str, Any]] = {}
    damaged = twice = 0
    for node in document["nodes"]:
        plain = _plain(node)
        if plain is None:
            damaged += 1
        elif plain["id"] in nodes:
            twice += 1
        else:
            nodes[plain["id"]] = plain
    if not nodes:
        raise TraceError(f"{name}: none of its {len(document['nodes']):,} nodes can be read, expected some")
    warnings = []
    if damaged or twice:
        warnings.append(
            f"{name}: {damaged:,} nodes without an id or a name, and {twice:,} with an id that another has, "
            "are left out"
        )
    ordered = [nodes[id] for id in sorted(nodes)]
    warnings += _tell_parents(name, nodes)
    groups = groups_of(ordered)
    calls = calls_of(name, ordered, groups, warnings)
    warnings += tell_unrecorded(name, ordered)
    found = re.findall(r"(?:rank|worker|gpu)[-_.]?(\d{1,8})", os.path.basename(name), re.IGNORECASE)
    return ExecutionTrace(
        path=name,
        rank=int(found[-1]) if found else None,
        schema=schema,
        id=np.array([n["id"] for n in ordered], dtype=np.int64),
        parent=np.array([n["parent"] for n in ordered], dtype=np.int64),
        thread=np.array([n["tid"] for n in ordered], dtype=np.int64),
        record=np.array([n["rf_id"] for n in ordered], dtype=np.int64),
        name=[n["name"] for n in ordered],
        shapes=[n["shapes"] for n in ordered],
        types=[n["types"] for n in ordered],
        devices=[",".join(sorted({t[5] for t in tensors_of([n["inputs"], n["outputs"]])})) for n in ordered],
        calls=calls,
        groups=groups,
        warnings=warnings,
    )


def _plain(node: Any) -> dict[str, Any] | None:
    """A node of any schema under one set of names; None: it has no id or no name."""
    if not isinstance(node, dict) or not isinstance(node.get("name"), str):
        return None
    inputs, outputs, attrs = node.get("inputs"), node.get("outputs"), node
    shapes, types = node.get("input_shapes"), node.get("input_types")
    out_shapes, out_types = node.get("output_shapes"), node.get("output_types")
    if isinstance(inputs, dict):
        shapes, types, inputs = inputs.get("shapes"), inputs.get("types"), inputs.get("values")
    if isinstance(outputs, dict):
        out_shapes, out_types, outputs = outputs.get("shapes"), outputs.get("types"), outputs.get("values")
    if isinstance(node.get("attrs"), list):
        pairs = [a for a in node["attrs"] if isinstance(a, dict) and isinstance(a.get("name"), str)]
        attrs = {a["name"]: a.get("value") for a in pairs}
    parent = node.get("ctrl_deps", node.get("parent"))
    id = whole(node.get("id"))
    if id is None:
        return None
    return {
        "id": id,
        "name": node["name"],
        "parent": _whole_or(parent, -1),
        "tid": _whole_or(attrs.get("tid"), 0),
        "rf_id": _whole_or(attrs.get("rf_id"), -1),
        "inputs": listed(inputs),
        "outputs": listed(outputs),
        "shapes": listed(shapes),
        "types": listed(types),
        "out_shapes": listed(out_shapes),
        "out_types": listed(out_types),
        "attrs": attrs,
    }


#: Ranges of process groups end on threads of their own, under whatever began there meanwhile.
_BESIDE = ("gloo:", "nccl:")


def _tell_parents(name: str, nodes: Mapping[int, dict[str, Any]]) -> list[str]:
    roots = [i for i, n in nodes.items() if n["name"].startswith("[pytorch|profiler|execution_")]
    orphans = wrong = 0
    for id, node in nodes.items():
        if id in roots or node["parent"] < 2:
            continue
        orphans += node["parent"] not in nodes
        wrong += node["parent"] >= id and not node["name"].startswith(_BESIDE)
    warnings = []
    if orphans:
        warnings.append(f"{name}: the parents of {orphans:,} nodes are not in it; these nodes are kept")
    if wrong:
        warnings.append(
            f"{name}: {wrong:,} nodes name a parent that begins after them or is themselves; the order of "
            "ids is kept"
        )
    return warnings


def _whole_or(value: Any, other: int) -> int:
    found = whole(value)
    return other if found is None else found
