"""Calls of torch.distributed and process groups, as nodes of a PyTorch execution trace tell them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from prismcore.graph import DataType
from prismcore.graph.op import MOST_BYTES
from prismcore.traces.collectives import kind_of_call
from prismcore.traces.plain_values import distinct_ranks, group_size, whole, wholes

__all__ = [
    "COMMUNICATION",
    "DTYPES",
    "Call",
    "Group",
    "GroupKey",
    "calls_of",
    "groups_of",
    "tell_unrecorded",
    "tensors_of",
]

#: What a trace calls a process group: an address (older), or name and description.
GroupKey = int | tuple[str, str]

COMMUNICATION = "record_param_comms"
#: Ranks of a group that is the root's own, or the sender's, stand where others give their own place.
_ROOTED = ("broadcast", "reduce", "gather", "scatter", "send", "recv")
DTYPES = {
    "float": DataType.FLOAT32, "half": DataType.FLOAT16, "c10::half": DataType.FLOAT16,
    "bfloat16": DataType.BFLOAT16, "c10::bfloat16": DataType.BFLOAT16, "double": DataType.FLOAT64,
    "long": DataType.INT64, "long int": DataType.INT64, "int": DataType.INT32, "byte": DataType.UINT8,
    "unsigned char": DataType.UINT8, "char": DataType.INT8, "signed char": DataType.INT8,
    "bool": DataType.UINT8, "float8_e4m3fn": DataType.FLOAT8E4M3, "c10::float8_e4m3fn": DataType.FLOAT8E4M3,
    "float8_e5m2": DataType.FLOAT8E5M2, "c10::float8_e5m2": DataType.FLOAT8E5M2,
}  # fmt: skip
_TENSOR = re.compile(r"Tensor\(([^()]*)\)")


@dataclass(kw_only=True, slots=True)
class Group:
    """A process group, as one rank's trace tells it; None: not told."""

    name: str | None = None
    size: int | None = None
    members: tuple[int, ...] | None = None
    place: int | None = None  #: of the rank in it
    backend: str | None = None  #: ``nccl``, ``cpu:gloo,cuda:nccl``, ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """A call of torch.distributed, from a ``record_param_comms`` node."""

    node: int  #: position in the columns
    name: str  #: ``allreduce``, ``all_to_allv``, ``wait``, ...
    number: int  #: in the order of its group; of a wait that of what it waits for
    group: GroupKey
    bytes: int  #: the larger of what goes in and out
    dtype: DataType
    peer: int | None = None  #: place in the group of a root, or of the other side of a message
    splits: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  #: elements in and out, where uneven


def tell_unrecorded(name: str, nodes: list[dict[str, Any]]) -> list[str]:
    """Calls without a record below them: only NCCL's groups write records."""
    recorded = {node["parent"] for node in nodes if node["name"] == COMMUNICATION}
    bare = sum(
        node["name"].startswith("c10d::")
        and node["id"] not in recorded
        and kind_of_call(node["name"]) is not None
        for node in nodes
    )
    if not bare:
        return []
    return [
        f"{name}: {bare:,} calls of torch.distributed have no {COMMUNICATION} (as on gloo), so that their "
        "group is not told; they are left out"
    ]


def groups_of(nodes: list[dict[str, Any]]) -> dict[GroupKey, Group]:
    """What nodes about process groups tell, by name and by address."""
    groups: dict[GroupKey, Group] = {}
    for node in nodes:
        if "process_group:init" not in node["name"]:
            continue
        for text in node["inputs"]:
            try:
                listed = json.loads(text) if isinstance(text, str) else None
            except (ValueError, RecursionError):
                continue
            for told in listed if isinstance(listed, list) else []:
                if not isinstance(told, dict) or not isinstance(told.get("pg_name"), str):
                    continue
                size = group_size(told.get("group_size"))
                ranks = distinct_ranks(told.get("ranks"))
                if ranks is None and size is not None and _small(size):
                    ranks = tuple(range(size))
                backend = told.get("backend_config")
                group = Group(
                    name=told["pg_name"],
                    size=size,
                    members=ranks,
                    backend=backend[:40] if isinstance(backend, str) else None,
                )
                groups[told["pg_name"], str(told.get("pg_desc", ""))] = group
                address = whole(told.get("backend_id"))
                if address:
                    groups[address] = group
    return groups


def calls_of(
    name: str, nodes: list[dict[str, Any]], groups: dict[GroupKey, Group], warnings: list[str]
) -> list[Call]:
    calls: list[Call] = []
    unknown = 0
    for at, node in enumerate(nodes):
        if node["name"] != COMMUNICATION:
            continue
        call = _call(at, node, groups)
        if call is None:
            unknown += 1
        else:
            calls.append(call)
    if unknown:
        warnings.append(f"{name}: {unknown:,} records of communication cannot be read, and are left out")
    return calls


def _call(at: int, node: dict[str, Any], groups: dict[GroupKey, Group]) -> Call | None:
    """The record's arguments are: tensors (not of a wait), number, group, rank, name, splits in and out,
    then, by version, start and stride of ranks, and size of the group."""
    values = node["inputs"]
    place = next((i for i, v in enumerate(values) if isinstance(v, str) and i >= 3), None)
    if place is None:
        return None
    name, rank, key = values[place].lower(), whole(values[place - 1]), _key(values[place - 2])
    number = values[place - 3]
    number = whole(number[0] if isinstance(number, list) and number else number)
    if key is None or number is None:
        return None
    splits = [wholes(v) for v in values[place + 1 : place + 3]] + [(), ()]
    figures = [whole(v) for v in values[place + 3 :]]
    attrs = node["attrs"]
    if name != "wait":
        group = groups.setdefault(key, Group(name=key[0] if isinstance(key, tuple) else None))
        if group.size is None:
            group.size = group_size(attrs.get("pg_size")) or group_size(figures[-1] if figures else None)
        if group.members is None and len(figures) >= 3 and _small(group.size):
            start, stride = figures[0], figures[1]
            if start is not None and stride and group.size:
                group.members = distinct_ranks([start + n * stride for n in range(group.size)])
        if group.place is None and not name.startswith(_ROOTED) and rank is not None:
            group.place = rank
    return Call(
        node=at,
        name=name,
        number=number,
        group=key,
        bytes=_bytes(node),
        dtype=_dtype(node),
        peer=rank if name.startswith(_ROOTED) else None,
        splits=(splits[0], splits[1]),
    )


def _key(value: Any) -> GroupKey | None:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(v, str) for v in value):
        return value[0], value[1]
    return whole(value)


def _bytes(node: dict[str, Any]) -> int:
    sizes = [sum(int(t[3]) * int(t[4]) for t in tensors_of(node[key])) for key in ("inputs", "outputs")]
    return min(max(sizes), MOST_BYTES)


def tensors_of(value: Any) -> list[list[Any]]:
    """All tensors in nested lists: each is [id, storage, offset, elements, bytes of one, device]."""
    found, stack = [], [value]
    while stack:
        item = stack.pop()
        if not isinstance(item, list):
            continue
        if len(item) == 6 and isinstance(item[5], str) and len(wholes(item[:5])) == 5:
            found.append(item)
        else:
            stack.extend(item)
    return found


def _dtype(node: dict[str, Any]) -> DataType:
    for text in (*node["types"], *node["out_types"]):
        match = _TENSOR.search(text) if isinstance(text, str) else None
        if match:
            return DTYPES.get(match[1].lower(), DataType.NONE)
    return DataType.NONE


def _small(size: int | None) -> bool:
    return size is not None and 0 < size <= 2**20
