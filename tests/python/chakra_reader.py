"""Chakra execution traces read with the protobuf package, from a schema of our own writing, and run as a
simulator would: the oracle of tests/python/test_exports_chakra.py, no code of the package.

Field numbers: mlcommons/chakra, ``schema/protobuf/et_def.proto``.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

_KINDS = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "int32": _KINDS.TYPE_INT32,
    "int64": _KINDS.TYPE_INT64,
    "uint64": _KINDS.TYPE_UINT64,
    "bool": _KINDS.TYPE_BOOL,
    "string": _KINDS.TYPE_STRING,
    "double": _KINDS.TYPE_DOUBLE,
}
_MESSAGES = {
    "Int64List": [("repeated int64", "values", 1)],
    "AttributeProto": [
        ("string", "name", 1),
        ("string", "doc_string", 2),
        ("oneof double", "double_val", 3),
        ("oneof int32", "int32_val", 7),
        ("oneof int64", "int64_val", 9),
        ("oneof Int64List", "int64_list", 10),
        ("oneof uint64", "uint64_val", 13),
        ("oneof bool", "bool_val", 27),
        ("oneof string", "string_val", 29),
    ],
    "GlobalMetadata": [("string", "version", 1), ("repeated AttributeProto", "attr", 2)],
    "IOInfo": [("string", "values", 1), ("string", "shapes", 2), ("string", "types", 3)],
    "Node": [
        ("uint64", "id", 1),
        ("string", "name", 2),
        ("NodeType", "type", 3),
        ("repeated uint64", "ctrl_deps", 4),
        ("repeated uint64", "data_deps", 5),
        ("uint64", "start_time_micros", 6),
        ("uint64", "duration_micros", 7),
        ("IOInfo", "inputs", 8),
        ("IOInfo", "outputs", 9),
        ("repeated AttributeProto", "attr", 10),
    ],
}
_NODE_TYPES = ["INVALID", "METADATA", "MEM_LOAD", "MEM_STORE", "COMP", "COMM_SEND", "COMM_RECV", "COMM_COLL"]


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="chakra.proto", package="chakra", syntax="proto3")
    types = file.enum_type.add(name="NodeType")
    for number, name in enumerate(_NODE_TYPES):
        types.value.add(name=f"{name}_NODE", number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for words, field, number in fields:
            *how, kind = words.split()
            made = message.field.add(name=field, number=number)
            made.label = _KINDS.LABEL_REPEATED if how == ["repeated"] else _KINDS.LABEL_OPTIONAL
            if how == ["oneof"]:
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
                made.oneof_index = 0
            if kind in _SCALARS:
                made.type = _SCALARS[kind]
            else:
                made.type = _KINDS.TYPE_ENUM if kind == "NodeType" else _KINDS.TYPE_MESSAGE
                made.type_name = f".chakra.{kind}"
    pool = DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"chakra.{name}"))
        for name in _MESSAGES
    }


CLASSES = _classes()


def read(path: Path) -> tuple[Any, list[Any]]:
    """Metadata and nodes of a file."""
    data, at, records = path.read_bytes(), 0, []
    while at < len(data):
        length = shift = 0
        while True:
            byte = data[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        assert at + length <= len(data)
        records.append(data[at : at + length])
        at += length
    return CLASSES["GlobalMetadata"].FromString(records[0]), [
        CLASSES["Node"].FromString(r) for r in records[1:]
    ]


def said(message: Any) -> dict[str, Any]:
    """Attributes by name."""
    found = {}
    for attr in message.attr:
        kind = attr.WhichOneof("value")
        value = getattr(attr, kind)
        found[attr.name] = list(value.values) if kind == "int64_list" else value
    return found


def types_of(message: Any) -> dict[str, str]:
    return {attr.name: attr.WhichOneof("value") for attr in message.attr}


def run(folder: Path) -> dict[int, list[int]]:
    """By rank, when it comes to the end of each iteration: each node starts when its dependencies have ended,
    collectives when all members are there, messages when both sides are."""
    ranks = {int(p.name.split(".")[1]): read(p)[1] for p in folder.glob("chakra.*.et")}
    facts = {rank: {n.id: said(n) for n in nodes} for rank, nodes in ranks.items()}
    members: dict[str, list[int]] = {}
    for of_rank in facts.values():
        for fact in of_rank.values():
            if "members" in fact:
                members.setdefault(fact["pg_name"], fact["members"])
    partners = _partners(ranks, facts, members)
    ready: dict[tuple[int, int], int] = {}
    ends: dict[tuple[int, int], int] = {}
    left = {(rank, n.id): n for rank, nodes in ranks.items() for n in nodes}
    while left:
        before = len(left)
        for key, node in list(left.items()):
            rank = key[0]
            if any((rank, dep) not in ends for dep in node.data_deps):
                continue
            ready[key] = max((ends[rank, dep] for dep in node.data_deps), default=0)
            _end(key, facts, partners, ready, ends)
            for done in partners.get(key, [key]):
                _end(done, facts, partners, ready, ends)
            for done in (key, *partners.get(key, [])):
                if done in ends:
                    left.pop(done, None)
        if len(left) == before:
            raise AssertionError(f"stuck: {sorted(left)[:5]}")
    return {rank: _iterations(rank, nodes, facts[rank], ends) for rank, nodes in ranks.items()}


def _end(key, facts, partners, ready, ends):
    """The end of a node whose partners have all come."""
    if key in ends or key not in ready:
        return
    together = partners.get(key, [key])
    if all(k in ready for k in together):
        longest = max(facts[rank][id]["duration_ns"] for rank, id in together)
        ends[key] = max(ready[k] for k in together) + longest


def _partners(ranks, facts, members):
    meetings = defaultdict(list)
    for rank, nodes in ranks.items():
        numbers: defaultdict[Any, int] = defaultdict(int)
        for n in nodes:
            fact = facts[rank][n.id]
            if fact["op"] in ("send", "recv"):
                channel = (fact["pg_name"], fact["comm_src"], fact["comm_dst"], fact["comm_tag"])
                side = (*channel, fact["op"])
                meetings[(*channel, numbers[side])].append((rank, n.id))
                numbers[side] += 1
            elif "comm_type" in fact:
                meetings[fact["pg_name"], numbers[fact["pg_name"]]].append((rank, n.id))
                numbers[fact["pg_name"]] += 1
    for key, together in meetings.items():
        expected = 2 if len(key) > 2 else len(members[key[0]])
        assert len(together) == expected, (key, together)
    return {key: together for together in meetings.values() for key in together}


def _iterations(rank, nodes, facts, ends):
    """Host and streams have come to the end of all that was issued up to the mark; a launch ends with its
    last part for all streams."""
    latest, marks = 0, []
    for n in nodes:
        latest = max(latest, ends[rank, n.id])
        if facts[n.id].get("mark") == "iteration":
            marks.append(latest)
    return marks or [latest]
