"""What a Chakra node says about an op, in the bytes of the format.

Field numbers and enums are those of MLCommons' schema (mlcommons/chakra, ``schema/protobuf/et_def.proto``):
messages ``GlobalMetadata``, ``Node``, ``AttributeProto``, ``Int64List``. Types of attributes are those that
Chakra's feeder reads (``src/feeder/et_feeder_node.cpp``); names that it does not know are ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prismcore.graph import CopyDirection, DataType, Graph, MarkKind, OpKind, Provenance, Reduction
from prismcore.graph.op import OpFlag
from prismcore.report.protobuf import message, sint, text, uint, varint

__all__ = [
    "Saying",
    "Talk",
    "Vocabulary",
    "call_site_attr",
    "global_metadata",
    "launch_attr",
    "members_attr",
    "node",
]

VERSION = "0.0.4"
"""As Chakra's own converters write it."""

_COMP, _SEND, _RECV, _COLLECTIVE = 4, 5, 6, 7
_COMM_TYPES = {
    OpKind.ALL_REDUCE: 0,
    OpKind.REDUCE: 1,
    OpKind.ALL_GATHER: 2,
    OpKind.GATHER: 3,
    OpKind.SCATTER: 4,
    OpKind.BROADCAST: 5,
    OpKind.ALL_TO_ALL: 6,
    OpKind.REDUCE_SCATTER: 7,
}
_REDUCING = (OpKind.ALL_REDUCE, OpKind.REDUCE_SCATTER, OpKind.REDUCE)
_ROOTED = (OpKind.BROADCAST, OpKind.REDUCE, OpKind.GATHER, OpKind.SCATTER)

_NODE_ID, _NODE_NAME, _NODE_TYPE, _NODE_CTRL, _NODE_DATA, _NODE_MICROS, _NODE_ATTR = 1, 2, 3, 4, 5, 7, 10
_META_VERSION, _META_ATTR = 1, 2
_NAME, _INT32, _INT64, _INT64_LIST, _UINT64, _BOOL, _STRING = 1, 7, 9, 10, 13, 27, 29
_VALUES = 1
_MOST = 2**63 - 1


@dataclass(kw_only=True, slots=True, frozen=True)
class Saying:
    """A node without its id and dependencies: the fields before them and behind them."""

    head: bytes
    tail: bytes


@dataclass(kw_only=True, slots=True, frozen=True)
class Talk:
    """A communicator as a rank's ops refer to it."""

    pg_name: str
    name: str
    members: Sequence[int]
    position: int


def _delimited(body: bytes) -> bytes:
    """A record of the file: its length, then itself."""
    return varint(len(body)) + body


def node(
    id: int, saying: Saying, ctrl_deps: Iterable[int], data_deps: Iterable[int], more: bytes = b""
) -> bytes:
    """A record: `more` are attributes beside those of `saying`."""
    body = [uint(_NODE_ID, id), saying.head]
    for field, deps in ((_NODE_CTRL, ctrl_deps), (_NODE_DATA, data_deps)):
        packed = b"".join(map(varint, deps))
        if packed:
            body.append(message(field, packed))
    body += (saying.tail, more)
    return _delimited(b"".join(body))


def global_metadata(attributes: Iterable[tuple[str, int | str]]) -> bytes:
    """The first record of a file."""
    body = text(_META_VERSION, VERSION)
    for name, value in attributes:
        attr = _string(name, value) if isinstance(value, str) else _int64(name, value)
        body += message(_META_ATTR, attr)
    return _delimited(body)


def members_attr(members: Iterable[int]) -> bytes:
    """Ranks of a communicator by position."""
    packed = message(_VALUES, b"".join(map(varint, members)))
    return _attr(text(_NAME, "members") + message(_INT64_LIST, packed))


def launch_attr(first: int) -> bytes:
    """Of the parts of a grouped launch: the id of its first."""
    return _attr(_int64("launch", first))


def call_site_attr(site: str) -> bytes:
    return _attr(_string("call_site", site)) if site else b""


class Vocabulary:
    """Sayings, made once for each different op."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._work: dict[tuple[Any, ...], Saying] = {}
        self._talk: dict[tuple[Any, ...], Saying] = {}
        self._slots: Sequence[Talk] = ()

    def enter(self, slots: Sequence[Talk]) -> None:
        """From here on, communicators are those of another rank."""
        self._slots = slots
        self._talk.clear()

    def host(self, kind: OpKind, duration_ns: int = 0) -> Saying:
        """Host time, or a wait of the host for the device."""
        key = (kind, duration_ns)
        if key not in self._work:
            name = "host" if kind == OpKind.HOST_GAP else kind.name.lower()
            self._work[key] = _saying(name, _COMP, kind, duration_ns, is_cpu_op=True)
        return self._work[key]

    def mark(self, detail: int, label: int) -> Saying:
        key = (OpKind.MARK, detail, label)
        if key not in self._work:
            mark, said = MarkKind(detail).name.lower(), self._graph.string(label)
            more = _attr(_string("mark", mark)) + (_attr(_string("label", said)) if said else b"")
            self._work[key] = _saying(said or mark, _COMP, OpKind.MARK, 0, is_cpu_op=True, more=more)
        return self._work[key]

    def device(self, op: tuple[int, ...]) -> Saying:
        """A kernel, copy, set or host callback: fields kind, flags, dtype, detail, ref, stream, duration_ns,
        bytes of its op."""
        if op not in self._work:
            kind, flags, _, detail, ref, stream, duration_ns, size = op
            name, more = OpKind(kind).name.lower(), b""
            if kind == OpKind.KERNEL:
                name, more = self._kernel(ref)
            elif kind == OpKind.COPY:
                direction = CopyDirection(detail).name.lower()
                name = f"copy {direction.replace('_', ' ')}"
                more = _attr(_string("direction", direction)) + _attr(_uint64("tensor_size", size))
            elif kind == OpKind.SET:
                more = _attr(_uint64("tensor_size", size))
            more += _place(stream, flags)
            self._work[op] = _saying(name, _COMP, OpKind(kind), duration_ns, more=more)
        return self._work[op]

    def talk(self, op: tuple[int, ...]) -> Saying:
        """A part of a communication launch: kind, flags, dtype, detail, ref, stream, duration_ns, bytes,
        peer, tag of its op."""
        flags = op[1] & ~OpFlag.GROUP_CONTINUES
        key = (op[0], flags, *op[2:])
        if key not in self._talk:
            self._talk[key] = self._talk_of(key)
        return self._talk[key]

    def _talk_of(self, op: tuple[int, ...]) -> Saying:
        number, flags, dtype, detail, ref, stream, duration_ns, size, peer, tag = op
        kind, talk = OpKind(number), self._slots[ref]
        n = len(talk.members)
        attrs = [_int64("comm_size", size), _int32("comm_priority", 0), _string("pg_name", talk.pg_name)]
        if kind in (OpKind.SEND, OpKind.RECV):
            own, other = talk.members[talk.position], talk.members[(talk.position + peer) % n]
            source, target = (own, other) if kind == OpKind.SEND else (other, own)
            attrs += [_int32("comm_src", source), _int32("comm_dst", target), _int32("comm_tag", tag)]
        else:
            attrs.append(_int64("comm_type", _COMM_TYPES[kind]))
        attrs.append(_string("communicator", talk.name))
        if dtype != DataType.NONE:
            attrs.append(_string("dtype", DataType(dtype).name.lower()))
        if kind in _REDUCING:
            attrs.append(_string("reduction", Reduction(detail).name.lower()))
        if kind in _ROOTED:
            attrs.append(_int64("root", talk.members[peer]))
        more = b"".join(map(_attr, attrs)) + _place(stream, flags)
        type = {OpKind.SEND: _SEND, OpKind.RECV: _RECV}.get(kind, _COLLECTIVE)
        return _saying(kind.name.lower(), type, kind, duration_ns, more=more)

    def _kernel(self, ref: int) -> tuple[str, bytes]:
        kernel = self._graph.kernel(ref)
        more = b""
        if kernel.dtype != DataType.NONE:
            more += _attr(_string("dtype", kernel.dtype.name.lower()))
        if (gemm := kernel.gemm) is not None and (ops := 2 * gemm.m * gemm.n * gemm.k * gemm.batch) <= _MOST:
            more += _attr(_int64("num_ops", ops))
        return kernel.name, more


def _saying(
    name: str, type: int, kind: OpKind, duration_ns: int, *, is_cpu_op: bool = False, more: bytes = b""
) -> Saying:
    micros = (duration_ns + 500) // 1000
    attrs = (
        _bool("is_cpu_op", is_cpu_op),
        _string("op", kind.name.lower()),
        _int64("duration_ns", duration_ns),
    )
    tail = uint(_NODE_MICROS, micros) if micros else b""
    return Saying(
        head=text(_NODE_NAME, name) + uint(_NODE_TYPE, type), tail=tail + b"".join(map(_attr, attrs)) + more
    )


def _place(stream: int, flags: int) -> bytes:
    more = _attr(_int64("stream", stream)) + _attr(_string("provenance", Provenance(flags & 3).name.lower()))
    return more + (_attr(_bool("blocking", True)) if flags & OpFlag.BLOCKING else b"")


def _attr(body: bytes) -> bytes:
    return message(_NODE_ATTR, body)


def _int64(name: str, value: int) -> bytes:
    return text(_NAME, name) + sint(_INT64, value)


def _int32(name: str, value: int) -> bytes:
    """Of numbers up to 2**32 - 1: readers cast them back to unsigned."""
    return text(_NAME, name) + sint(_INT32, value - (1 << 32) if value >= 1 << 31 else value)


def _uint64(name: str, value: int) -> bytes:
    return text(_NAME, name) + uint(_UINT64, value)


def _bool(name: str, value: bool) -> bytes:
    return text(_NAME, name) + uint(_BOOL, int(value))


def _string(name: str, value: str) -> bytes:
    return text(_NAME, name) + text(_STRING, value)
