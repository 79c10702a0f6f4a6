"""Chakra execution traces in protobuf: fields of ``GlobalMetadata``, ``Node`` and ``AttributeProto``."""

from __future__ import annotations

from typing import Any

from prismcore.traces import wire
from prismcore.traces.chakra_node import Attributes, ChakraNode, with_duration

__all__ = ["messages_of"]

#: Fields of ``AttributeProto`` that hold a value, by wire form.
_DOUBLE, _FLOAT, _STRING, _BYTES, _BOOL = 3, 5, 29, 31, 27
_FIXED = {_DOUBLE: "<d", _FLOAT: "<f", 19: "<I", 21: "<Q", 23: "<i", 25: "<q"}
_SIGNED, _ZIGZAG = (7, 9), (15, 17)
_INTEGER_LISTS = (8, 10, 12, 14)
_BOOL_LIST, _STRING_LIST = 28, 30


def messages_of(data: bytes) -> tuple[Attributes, list[ChakraNode]]:
    """Metadata and nodes of a file. Raises WireError for bytes that are none, TraceError for times that
    cannot be."""
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
    return with_duration(node, micros)


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
