"""Files whole: bounded, gzip undone, and as JSON."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from typing import IO, Any

from prismcore.errors import TraceError

__all__ = ["MOST_TEXT_BYTES", "read_json", "read_limited"]

#: A document longer than this, unpacked, is refused: it is held in memory whole.
MOST_TEXT_BYTES = 2 << 30

_CHUNK = 1 << 20


def read_json(path: str | os.PathLike[str], name: str) -> Any:
    """The document of a file that messages call ``name``.

    Raises TraceError where it cannot be read, is cut off or damaged, or is no JSON.
    """
    try:
        with open(path, "rb") as raw:
            text = read_limited(raw, name)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or "it ends early"
        raise TraceError(f"{name}: cannot be read: {reason}") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{name}: no JSON: {error}") from error


def read_limited(raw: IO[bytes], path: str) -> bytes:
    """All bytes of a file, gzip undone; raises TraceError beyond ``MOST_TEXT_BYTES``, OSError, EOFError or
    zlib.error where it is damaged."""
    head = raw.read(2)
    raw.seek(-len(head), os.SEEK_CUR)
    source: IO[bytes] = gzip.GzipFile(fileobj=raw) if head == b"\x1f\x8b" else raw  # type: ignore[assignment]
    parts, size = [], 0
    while part := source.read(_CHUNK):
        size += len(part)
        if size > MOST_TEXT_BYTES:
            raise TraceError(f"{path}: more than {MOST_TEXT_BYTES:,} bytes unpacked, expected a smaller file")
        parts.append(part)
    return b"".join(parts)
