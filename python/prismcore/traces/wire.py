"""The protobuf wire format, as far as a reader needs it.

Source: https://protobuf.dev/programming-guides/encoding/. No schema and no package: fields come by number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["WireError", "delimited", "fields", "fixed", "packed", "signed", "varint", "zigzag"]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


class WireError(ValueError):
    """Bytes that are no protobuf; the position in the file is in the text."""


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number of 64 bits at ``at``, and the position behind it."""
    value = shift = 0
    while True:
        if at >= end:
            raise WireError(f"a number is cut off at byte {at:,}")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
        if shift > 63:
            raise WireError(f"a number of more than ten bytes ends at byte {at:,}")


def delimited(data: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of each record of a file: its length, then itself."""
    at, size = 0, len(data)
    while at < size:
        length, at = varint(data, at, size)
        if length > size - at:
            raise WireError(f"a record of {length:,} bytes at byte {at:,} is cut off, the file has {size:,}")
        yield at, at + length
        at += length


def fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, wire type, and either (value, 0) or begin and end of each field of a message."""
    while at < end:
        key, at = varint(data, at, end)
        number, type = key >> 3, key & 7
        if type == VARINT:
            value, at = varint(data, at, end)
            yield number, type, value, 0
        elif type == LENGTH:
            length, at = varint(data, at, end)
            if length > end - at:
                raise WireError(f"a field of {length:,} bytes at byte {at:,} is longer than its message")
            yield number, type, at, at + length
            at += length
        elif type in (FIXED64, FIXED32):
            length = 8 if type == FIXED64 else 4
            if length > end - at:
                raise WireError(f"a number is cut off at byte {at:,}")
            yield number, type, at, at + length
            at += length
        else:
            raise WireError(f"wire type {type} found at byte {at:,}, expected 0, 1, 2 or 5")


def packed(data: bytes, at: int, end: int) -> list[int]:
    """Numbers without keys."""
    found = []
    while at < end:
        value, at = varint(data, at, end)
        found.append(value)
    return found


def fixed(data: bytes, at: int, end: int, format: str) -> int | float:
    """A number of ``struct``'s format, of 4 or 8 bytes."""
    if end - at != struct.calcsize(format):
        raise WireError(f"{end - at} bytes found at byte {at:,}, expected {struct.calcsize(format)}")
    value: int | float = struct.unpack(format, data[at:end])[0]
    return value


def signed(value: int) -> int:
    """An int32 or int64 from its 64 bits."""
    return value - (1 << 64) if value >= 1 << 63 else value


def zigzag(value: int) -> int:
    """A sint32 or sint64."""
    return (value >> 1) ^ -(value & 1)
