"""The protobuf wire format, as far as a writer needs it: varints, fixed 64 bits, length-delimited fields.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

_VARINT = 0
_FIXED64 = 1
_LENGTH = 2
_ONE_BYTE = tuple(bytes([i]) for i in range(128))


def varint(value: int) -> bytes:
    """`value` (0 to 2**64 - 1) in base 128, low group first."""
    if 0 <= value < 128:
        return _ONE_BYTE[value]
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} does not fit an unsigned 64-bit varint")
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def uint(field: int, value: int) -> bytes:
    """An unsigned, bool or enum field."""
    return varint(field << 3 | _VARINT) + varint(value)


def sint(field: int, value: int) -> bytes:
    """An int32 or int64 field: negative numbers in two's complement of 64 bits."""
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} does not fit a signed 64-bit varint")
    return varint(field << 3 | _VARINT) + varint(value & (1 << 64) - 1)


def fixed64(field: int, value: int) -> bytes:
    """A fixed64 field; `value` is 0 to 2**64 - 1."""
    if not 0 <= value < 1 << 64:
        raise ValueError(f"{value} does not fit an unsigned 64-bit number")
    return varint(field << 3 | _FIXED64) + value.to_bytes(8, "little")


def message(field: int, body: bytes) -> bytes:
    """A sub-message or bytes field."""
    return varint(field << 3 | _LENGTH) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    """A string field."""
    return message(field, value.encode("utf-8", "replace"))
