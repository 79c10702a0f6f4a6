"""Reads MLCommons Chakra execution traces, one file a rank: protobuf or JSON.

Schema: mlcommons/chakra, ``schema/protobuf/et_def.proto`` (0.0.4 and later): a ``GlobalMetadata``, then
``Node`` records, each behind its length. JSON as the project's own tools write it (one document a message,
a list of them, or ``workload_graph``); 64-bit numbers may be texts there, enums names.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismcore.errors import TraceError
from prismcore.rank_list import MAX_RANK
from prismcore.traces import wire
from prismcore.traces.json_files import read_limited
from prismcore.traces.plain_values import distinct, listed, whole

__all__ = ["NODE_TYPES", "ChakraNode", "ChakraTrace", "read_chakra", "read_chakra_set"]

NODE_TYPES = (
    "INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE",
    "COMM_RECV_NODE", "COMM_COLL_NODE", "STORAGE_NODE", "BATCH_NODE", "CHECKPOINT_NODE",
)  # fmt: skip
COMM_TYPES = (
    "ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER",
    "REDUCE_SCATTER_BLOCK", "BARRIER",
)  # fmt: skip
#: Fields of ``AttributeProto`` that hold a value, by wire form.
_DOUBLE, _FLOAT, _STRING, _BYTES, _BOOL = 3, 5, 29, 31, 27
_FIXED = {_DOUBLE: "<d", _FLOAT: "<f", 19: "<I", 21: "<Q", 23: "<i", 25: "<q"}
_SIGNED, _ZIGZAG = (7, 9), (15, 17)
_INTEGER_LISTS = (8, 10, 12, 14)
_BOOL_LIST, _STRING_LIST = 28, 30

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


@dataclass(kw_only=True, slots=True)
class ChakraTrace:
    """The trace of one rank."""

    path: str
    rank: int
    version: str
    metadata: Attributes
    nodes: list[ChakraNode]  #: in the order of the file
    groups: dict[str, tuple[int, ...]]  #: members of process groups, by name, from ``comm_groups.json``
    warnings: list[str] = field(default_factory=list)


def read_chakra_set(paths: Sequence[Path]) -> list[ChakraTrace]:
    """The traces of a job, by rank. A ``comm_groups.json`` beside them tells members of groups.

    Raises TraceError where one cannot be read, holds no nodes, or two are of one rank.
    """
    files = [path for path in paths if path.name != "comm_groups.json"]
    if not files:
        raise TraceError("no traces given, expected one file a rank, as trace.0.et")
    traces: dict[int, ChakraTrace] = {}
    for path in files:
        trace = read_chakra(path, alone=len(files) == 1)
        if trace.rank in traces:
            raise TraceError(f"{path}: rank {trace.rank} found, which {traces[trace.rank].path} is as well")
        traces[trace.rank] = trace
    return [traces[rank] for rank in sorted(traces)]


def read_chakra(path: str | os.PathLike[str], *, alone: bool = True) -> ChakraTrace:
    """One trace. Its rank is told by its metadata, else by its name (``trace.3.et``), else, ``alone``, 0.

    Raises TraceError where it cannot be read, is damaged, is no such trace, or its rank is not told.
    """
    file = os.fspath(path)
    try:
        with open(file, "rb") as raw:
            data = read_limited(raw, file)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        found = _json(data)
        metadata, nodes = _messages(data) if found is None else found
    except wire.WireError as error:
        raise TraceError(f"{file}: damaged Chakra trace: {error}") from error
    except TraceError as error:
        raise TraceError(f"{file}: {error}") from error
    if not nodes and not metadata:
        raise TraceError(f"{file}: no nodes found, expected a Chakra execution trace")
    warnings: list[str] = []
    rank = whole(metadata.get("rank"))
    if rank is None:
        named = re.findall(r"(?:^|[._-]|rank|npu)(\d{1,8})(?=[._-]|$)", Path(file).name)
        rank = int(named[-1]) if named else 0
        if not named and not alone:
            raise TraceError(f"{file}: its rank is not told by its name; expected one as trace.3.et")
        if not named:
            warnings.append(f"{file}: its rank is not told, and taken as 0")
    if rank > MAX_RANK:
        raise TraceError(f"{file}: rank {rank:,} found, expected 0 to {MAX_RANK:,}")
    return ChakraTrace(
        path=file,
        rank=rank,
        version=str(metadata.get("version", ""))[:20],
        metadata=metadata,
        nodes=nodes,
        groups=_groups(Path(file).parent / "comm_groups.json", warnings),
        warnings=warnings,
    )


def _groups(path: Path, warnings: list[str]) -> dict[str, tuple[int, ...]]:
    try:
        told = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        warnings.append(f"{path}: cannot be read, so that members of groups are not told: {error}")
        return {}
    found = {str(k): distinct(v) for k, v in told.items()} if isinstance(told, dict) else {}
    return {name: members for name, members in found.items() if members is not None}


def _messages(data: bytes) -> tuple[Attributes, list[ChakraNode]]:
    metadata: Attributes = {}
    nodes: list[ChakraNode] = []
    for number, (begin, end) in enumerate(wire.delimited(data)):
        if number == 0 and _is_metadata(data, begin, end):
            for field_number, type, at, to in wire.fields(data, begin, end):
                if field_number == 1 and type == wire.LENGTH:
                    metadata["version"] = _text(data, at, to)
                elif field_number == 2 and type == wire.LENGTH:
                    name, value = _attribute(data, at, to)
                    metadata[name] = value
        else:
            nodes.append(_node(data, begin, end))
    return metadata, nodes


def _is_metadata(data: bytes, begin: int, end: int) -> bool:
    """Whether a record is a ``GlobalMetadata``: its first field is a text, or it has attributes alone."""
    for number, type, _, _ in wire.fields(data, begin, end):
        return type == wire.LENGTH and number in (1, 2) and not _has_type(data, begin, end)
    return True


def _has_type(data: bytes, begin: int, end: int) -> bool:
    return any(n == 3 and t == wire.VARINT for n, t, _, _ in wire.fields(data, begin, end))


def _node(data: bytes, begin: int, end: int) -> ChakraNode:
    node = ChakraNode(id=0, name="", type=0)
    deps: dict[int, list[int]] = {4: [], 5: []}
    micros = 0
    for number, type, value, to in wire.fields(data, begin, end):
        if number == 1 and type == wire.VARINT:
            node.id = value
        elif number == 2 and type == wire.LENGTH:
            node.name = _text(data, value, to)
        elif number == 3 and type == wire.VARINT:
            node.type = value
        elif number in deps:
            deps[number] += wire.packed(data, value, to) if type == wire.LENGTH else [value]
        elif number == 6 and type == wire.VARINT:
            node.start_ns = value * 1000
        elif number == 7 and type == wire.VARINT:
            micros = value
        elif number == 10 and type == wire.LENGTH:
            name, told = _attribute(data, value, to)
            node.attributes[name] = told
    node.ctrl_deps, node.data_deps = deps[4], deps[5]
    return _checked(node, micros)


def _attribute(data: bytes, begin: int, end: int) -> tuple[str, Any]:
    name = ""
    value: Any = None
    for number, type, at, to in wire.fields(data, begin, end):
        if number == 1 and type == wire.LENGTH:
            name = _text(data, at, to)
        elif number in _FIXED and type in (wire.FIXED32, wire.FIXED64):
            value = wire.fixed(data, at, to, _FIXED[number])
        elif type == wire.VARINT:
            value = wire.signed(at) if number in _SIGNED else wire.zigzag(at) if number in _ZIGZAG else at
            value = bool(value) if number == _BOOL else value
        elif number in (_STRING, _BYTES):
            value = _text(data, at, to)
        elif number in _INTEGER_LISTS or number == _BOOL_LIST:
            value = []
            for inner, kind, first, last in wire.fields(data, at, to):
                if inner == 1:
                    value += wire.packed(data, first, last) if kind == wire.LENGTH else [first]
        elif number == _STRING_LIST:
            value = [_text(data, f, t) for inner, _, f, t in wire.fields(data, at, to) if inner == 1]
    return name, value


def _text(data: bytes, begin: int, end: int) -> str:
    return data[begin:end].decode("utf-8", "replace")


def _checked(node: ChakraNode, micros: int | None) -> ChakraNode:
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


def _json(data: bytes) -> tuple[Attributes, list[ChakraNode]] | None:
    """Nodes of a JSON file; None: it is none (a length of 123 looks like a brace)."""
    if data.lstrip()[:1] not in (b"{", b"["):
        return None
    documents: list[Any] = []
    try:
        text = data.decode()
        decoder, at = json.JSONDecoder(), 0
        while at < len(text):
            document, at = decoder.raw_decode(text, at)
            documents.append(document)
            at = len(text) - len(text[at:].lstrip(" \t\r\n,")) if at < len(text) else at
    except (ValueError, RecursionError) as error:
        if documents or data[:2] in (b'{"', b"[{", b"{ "):
            raise TraceError(f"no JSON: {error}") from error
        return None
    metadata: Attributes = {}
    nodes: list[ChakraNode] = []
    stack = documents[::-1]
    while stack:
        document = stack.pop()
        if isinstance(document, list):
            stack += document[::-1]
            continue
        if not isinstance(document, dict):
            raise TraceError(f"{str(document)[:40]!r} found, expected nodes")
        plain = {_key(k): v for k, v in document.items()}
        inner = plain.get("workloadgraph", plain.get("nodes"))
        if isinstance(inner, list):
            stack += inner[::-1]
        elif "version" in plain or not plain.keys() & {"id", "name", "type", "nodetype"}:
            metadata = {"version": plain.get("version", ""), **_json_attributes(plain.get("attr"))}
        else:
            nodes.append(_json_node(document, plain))
    return metadata, nodes


_NODE_KEYS = frozenset(
    ("id", "name", "type", "nodetype", "ctrldeps", "datadeps", "starttimemicros", "durationmicros", "attr")
)


def _json_node(document: Mapping[str, Any], plain: Mapping[str, Any]) -> ChakraNode:
    attributes = {k: _number(v) for k, v in document.items() if _key(k) not in _NODE_KEYS}
    type = _number(plain.get("type", plain.get("nodetype", 0)))
    if isinstance(type, str) and type in NODE_TYPES:
        type = NODE_TYPES.index(type)
    id = _number(plain.get("id", 0))
    node = ChakraNode(
        id=_whole(id, f"id of node {str(plain.get('name'))[:60]!r}"),
        name=str(plain.get("name", "")),
        type=_whole(type, f"node {id}: type"),
        ctrl_deps=_ids(plain.get("ctrldeps"), f"node {id}: ctrl_deps"),
        data_deps=_ids(plain.get("datadeps"), f"node {id}: data_deps"),
        start_ns=_whole(_number(plain.get("starttimemicros", 0)), f"node {id}: start_time_micros") * 1000,
        attributes={**attributes, **_json_attributes(plain.get("attr"))},
    )
    return _checked(node, _number(plain.get("durationmicros", 0)))


def _json_attributes(attributes: Any) -> Attributes:
    found: Attributes = {}
    for told in listed(attributes):
        if not isinstance(told, dict) or not isinstance(told.get("name"), str):
            continue
        values = [v for k, v in told.items() if _key(k) not in ("name", "docstring")]
        value = values[0] if values else None
        if isinstance(value, dict):
            value = [_number(v) for v in listed(value.get("values"))]
        is_text = any(_key(k) == "stringval" for k in told)
        found[told["name"]] = value if is_text else _number(value)
    return found


def _ids(value: Any, what: str) -> list[int]:
    return [_whole(_number(v), what) for v in value] if isinstance(value, list) else []


def _whole(value: Any, what: str) -> int:
    found = whole(value)
    if found is None:
        raise TraceError(f"{what} {str(value)[:40]!r} found, expected a whole number from 0")
    return found


def _number(value: Any) -> Any:
    """Of a text that is a whole number, that number: so JSON holds those of 64 bits."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,20}", value, re.ASCII):
        return int(value)
    return value


def _key(name: Any) -> str:
    return str(name).replace("_", "").lower()
