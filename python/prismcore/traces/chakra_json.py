"""Chakra execution traces in JSON, as the project's jsonizer and feeder have it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from prismcore.errors import TraceError
from prismcore.traces.chakra_node import NODE_TYPES, Attributes, ChakraNode, with_duration
from prismcore.traces.plain_values import listed, whole

__all__ = ["documents_of"]

_BETWEEN = re.compile(r"[ \t\r\n,]*")  #: documents
#: A message of protobuf may begin as JSON does: with its length, as a brace, and a tag, as a newline.
_BEGINS = re.compile(rb"""\s*[\[{]\s*["{}\[\]]""")


def documents_of(data: bytes) -> tuple[Attributes, list[ChakraNode]] | None:
    """Metadata and nodes of a file; None: it is no JSON (a length of 123 looks like a brace).

    Raises TraceError where it is cut off, or holds what cannot be.
    """
    if data.lstrip()[:1] not in (b"{", b"["):
        return None
    documents: list[Any] = []
    try:
        text = data.decode()
        decoder, at = json.JSONDecoder(), _BETWEEN.match(text).end()  # type: ignore[union-attr]
        while at < len(text):
            document, at = decoder.raw_decode(text, at)
            documents.append(document)
            at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
    except (ValueError, RecursionError) as error:
        if documents or _BEGINS.match(data):
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
    return with_duration(node, _number(plain.get("durationmicros", 0)))


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
