"""What a file is by its first bytes, so that one of another format is named, and not read to its end."""

from __future__ import annotations

import gzip
import os
import re
import zlib

from prismcore.errors import TraceError

__all__ = ["MANY", "OtherFormatError", "format_of", "other_format"]

_HEAD = 1 << 18  # a trace of torch's profiler may tell all process groups before its events
_NEAR = 1 << 12
_SCHEMA = re.compile(rb'"schema"\s*:\s*"\d')
_EVENT = re.compile(rb'"ph"\s*:\s*"')

#: By format, as ``prism import`` names it: what many files of it are called.
MANY = {
    "kineto": "traces of torch's profiler",
    "pytorch-et": "PyTorch execution traces",
    "chakra": "Chakra execution traces",
    "flight-recorder": "dumps of torch's flight recorder",
    "straggler": "a trace in parquet",
}
_ONE = {
    "kineto": "a trace of torch's profiler",
    "pytorch-et": "a PyTorch execution trace",
    "straggler": "a file of parquet",
    "graph": "a graph of prismcore",
}


class OtherFormatError(TraceError):
    """A file that is no trace of the format that it was read as."""


def format_of(path: str | os.PathLike[str]) -> str | None:
    """``kineto``, ``pytorch-et``, ``straggler``, ``graph``; None: not told by the first bytes, or the file
    cannot be read."""
    try:
        with open(path, "rb") as raw:
            head = raw.read(_HEAD)
        if head[:2] == b"\x1f\x8b":
            with gzip.open(path) as unzipped:
                head = unzipped.read(_HEAD)
    except (OSError, EOFError, zlib.error):
        return None
    if head.startswith(b"\x89PRISM"):
        return "graph"
    if head.startswith(b"PAR1"):
        return "straggler"
    text = head.lstrip()
    if text[:1] not in (b"{", b"["):
        return None
    if b'"traceEvents"' in text or (text[:1] == b"[" and _EVENT.search(text[:_NEAR])):
        return "kineto"
    return "pytorch-et" if _SCHEMA.search(text[:_NEAR]) else None


def other_format(name: str, found: str, expected: str) -> OtherFormatError:
    """That a file which was asked for is of another format, and which command takes it."""
    takes = "prism replay takes it as it is" if found == "graph" else f"prism import {found} takes it"
    return OtherFormatError(f"{name}: {_ONE[found]} found, expected {MANY[expected]}; {takes}")
